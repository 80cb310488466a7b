// The typed stub: each of its forms, and its default tokens.

#include <braid/stub.hpp>

#include "call_fixture.hpp"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/deferred.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/use_future.hpp>
#include <catch2/catch.hpp>

#include <memory>
#include <tuple>
#include <type_traits>

namespace {

using namespace call_over_tcp;
namespace asio = boost::asio;
using braid::yield_context;
using service = golden::EchoService;
using echo_stub = braid::stub<service>;

struct fixture {
  fixture() { channel->init(server.address(), {.timeout = 100s, .connect_timeout = 100s}); }

  echo_server server;
  braid::runtime rt{{.loops = 1}};
  std::shared_ptr<braid::channel> channel = std::make_shared<braid::channel>(rt);
  echo_stub stub{channel};
};

const error_code failure_77 = braid::from_wire(77);

void check_error(const braid::call_error& e, const echo_server& server) {
  CHECK(e.code() == failure_77);
  CHECK(e.text() == "as asked");
  CHECK(e.peer() == server.address());
  CHECK(e.attempts() == 1);
}

}  // namespace

TEST_CASE_METHOD(fixture, "stub: asynchronous calls return their response or fill the caller's", "[call]") {
  controller control;
  EchoResponse filled;
  CHECK(get(stub.async_call(&service::Echo, request("one"), asio::use_future)).message() == "one");
  CHECK(get(stub.async_call(&service::Echo, control, request("two"), asio::use_future)).message() == "two");
  CHECK(control.remote_side().to_string() == server.address());
  get(stub.async_call(&service::Echo, request("three"), filled, asio::use_future));
  CHECK(filled.message() == "three");
  get(stub.async_call(&service::Echo, control, request("four"), filled, asio::use_future));
  CHECK(filled.message() == "four");
}

TEST_CASE_METHOD(fixture, "stub: a callback gets code and response, which is empty on a failure", "[call]") {
  const EchoRequest lvalue = request("one");
  std::promise<EchoResponse> good, bad;
  stub.async_call(&service::Echo, lvalue, [&](error_code ec, EchoResponse response) {
    CHECK_FALSE(ec);
    good.set_value(std::move(response));
  });
  CHECK(get(good.get_future()).message() == "one");
  stub.async_call(&service::Echo, request("x", 0, 77), [&](error_code ec, EchoResponse response) {
    CHECK(ec == failure_77);
    bad.set_value(std::move(response));
  });
  CHECK_FALSE(get(bad.get_future()).has_message());
}

TEST_CASE_METHOD(fixture, "stub: in a coroutine it suspends, throws call_error, or stores the code",
                 "[call]") {
  get(braid::spawn(
      rt,
      [&](yield_context yield) {
        controller control;
        EchoResponse filled;
        error_code ec = aborted;
        CHECK(stub.async_call(&service::Echo, request("one"), yield).message() == "one");
        CHECK(stub.async_call(&service::Echo, control, request("two"), yield[ec]).message() == "two");
        CHECK_FALSE(ec);
        stub.async_call(&service::Echo, control, request("three"), filled, yield);
        CHECK(filled.message() == "three");
        CHECK_FALSE(stub.async_call(&service::Echo, request("x", 0, 77), yield[ec]).has_message());
        CHECK(ec == failure_77);
        try {
          stub.async_call(&service::Echo, request("x", 0, 77), yield);
          FAIL("nothing was thrown");
        } catch (const braid::call_error& e) {
          check_error(e, server);
        }
      },
      asio::use_future));
}

TEST_CASE_METHOD(fixture, "stub: synchronous calls return, fill, throw and store; in a coroutine too",
                 "[call]") {
  const auto calls = [&] {
    controller control;
    EchoResponse filled;
    error_code ec = aborted;
    CHECK(stub.call(&service::Echo, request("one")).message() == "one");
    CHECK(stub.call(&service::Echo, control, request("two")).message() == "two");
    CHECK(stub.call(&service::Echo, request("three"), ec).message() == "three");
    CHECK_FALSE(ec);
    CHECK(stub.call(&service::Echo, control, request("four"), ec).message() == "four");
    stub.call(&service::Echo, request("five"), filled);
    CHECK(filled.message() == "five");
    stub.call(&service::Echo, control, request("six"), filled);
    CHECK(filled.message() == "six");
    stub.call(&service::Echo, request("seven"), filled, ec);
    CHECK(filled.message() == "seven");
    stub.call(&service::Echo, control, request("eight"), filled, ec);
    CHECK(filled.message() == "eight");
    CHECK_FALSE(ec);

    CHECK_FALSE(stub.call(&service::Echo, request("x", 0, 77), ec).has_message());
    CHECK(ec == failure_77);
    CHECK_FALSE(stub.call(&service::Echo, control, request("x", 0, 77), ec).has_message());
    CHECK(control.ErrorText() == "as asked");
    ec = {};
    stub.call(&service::Echo, request("x", 0, 77), filled, ec);
    CHECK(ec == failure_77);
    try {
      stub.call(&service::Echo, request("x", 0, 77));
      FAIL("nothing was thrown");
    } catch (const braid::call_error& e) {
      check_error(e, server);
    }
    CHECK_THROWS_AS(stub.call(&service::Echo, control, request("x", 0, 77), filled), braid::call_error);
  };
  calls();
  get(braid::spawn(
      rt, [&](yield_context) { calls(); }, asio::use_future));
}

TEST_CASE_METHOD(fixture, "stub: a call that is never sent has no peer and no attempts", "[call]") {
  controller control;
  control.call_id().cancel();
  try {
    stub.call(&service::Echo, control, request());
    FAIL("nothing was thrown");
  } catch (const braid::call_error& e) {
    CHECK(e.code() == aborted);
    CHECK(e.peer().empty());
    CHECK(e.attempts() == 0);
  }
}

TEST_CASE_METHOD(fixture, "stub: it keeps or borrows its channel, and needs one", "[call]") {
  CHECK_THROWS_AS(echo_stub(std::shared_ptr<braid::channel>()), std::invalid_argument);
  const echo_stub borrowing(*channel);
  CHECK(&borrowing.channel() == channel.get());
  CHECK(borrowing.call(&service::Echo, request("one")).message() == "one");
  CHECK(channel.use_count() == 2);
  channel.reset();
  CHECK(stub.call(&service::Echo, request("two")).message() == "two");
  CHECK(stub.get_executor() == rt.get_executor());
  auto pending = stub.async_call(&service::Echo, request("three"), asio::use_future);
  stub = echo_stub(std::make_shared<braid::channel>(rt));  // the channel goes during the call
  CHECK(get(std::move(pending)).message() == "three");
}

TEST_CASE_METHOD(fixture, "stub: default tokens, as on any I/O object", "[call]") {
  const auto awaiting = asio::use_awaitable_t<>::as_default_on(stub);
  asio::use_awaitable_t<>::as_default_on_t<echo_stub> same(stub);
  static_assert(std::is_same_v<decltype(same), std::remove_const_t<decltype(awaiting)>>);
  using tuples = asio::as_tuple_t<asio::use_awaitable_t<>>;
  const auto telling = tuples::as_default_on(stub);
  const auto deferring = asio::deferred_t::as_default_on(stub);
  CHECK(awaiting.get_executor() == rt.get_executor());

  asio::io_context mine;
  auto ended = asio::co_spawn(
      mine,
      [&]() -> asio::awaitable<void> {
        controller control;
        EchoResponse answer, filled;  // Catch2 would evaluate an await in CHECK twice
        const EchoRequest lvalue = request("one");
        answer = co_await awaiting.async_call(&service::Echo, lvalue);
        CHECK(answer.message() == "one");
        answer = co_await same.async_call(&service::Echo, control, request("two"));
        CHECK(answer.message() == "two");
        co_await awaiting.async_call(&service::Echo, lvalue, filled);
        CHECK(filled.message() == "one");
        co_await awaiting.async_call(&service::Echo, control, request("three"), filled);
        CHECK(filled.message() == "three");
        auto [ec, empty] = co_await telling.async_call(&service::Echo, request("x", 0, 77));
        CHECK(ec == failure_77);
        CHECK_FALSE(empty.has_message());
        auto later = deferring.async_call(&service::Echo, request("four"));
        answer = co_await std::move(later)(asio::use_awaitable);
        CHECK(answer.message() == "four");
        answer = co_await awaiting.async_call(&service::Echo, request("five"), asio::use_awaitable);
        CHECK(answer.message() == "five");
      },
      asio::use_future);
  mine.run();
  get(std::move(ended));
}
