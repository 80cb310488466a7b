#include "call_fixture.hpp"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_future.hpp>
#include <catch2/catch.hpp>

#include <memory>
#include <tuple>

namespace {

using namespace call_over_tcp;
namespace asio = boost::asio;
using braid::yield_context;

struct fixture {
  fixture() { channel.init(server.address(), {.timeout = 100s, .connect_timeout = 100s}); }

  /// Runs in a coroutine of `where`.
  template <typename Function>
  void in_coroutine(braid::runtime& where, Function function) {
    get(braid::spawn(where, std::move(function), asio::use_future));
  }

  echo_server server;
  braid::runtime rt{{.loops = 1}};
  braid::runtime other{{.loops = 1}};
  braid::channel channel{rt};
};

/// What protobuf calls at the end of an asynchronous call.
class promise_closure final : public google::protobuf::Closure {
 public:
  void Run() override { ended_.set_value(std::this_thread::get_id()); }
  std::thread::id wait() { return get(ended_.get_future()); }

 private:
  std::promise<std::thread::id> ended_;
};

class foreign_controller final : public google::protobuf::RpcController {
 public:
  void Reset() override {}
  bool Failed() const override { return !text_.empty(); }
  std::string ErrorText() const override { return text_; }
  void StartCancel() override {}
  void SetFailed(const std::string& reason) override { text_ = reason; }
  bool IsCanceled() const override { return false; }
  void NotifyOnCancel(google::protobuf::Closure*) override {}

 private:
  std::string text_;
};

}  // namespace

TEST_CASE_METHOD(fixture, "call styles: a yield_context suspends, also in a coroutine of another runtime",
                 "[call]") {
  in_coroutine(GENERATE(false, true) ? rt : other, [&](yield_context yield) {
    const auto thread = std::this_thread::get_id();
    EchoResponse response;
    channel.async_call(echo(), request("one"), response, yield);
    CHECK(response.message() == "one");
    controller control;
    channel.async_call(echo(), control, request("two"), response, yield);
    CHECK(response.message() == "two");
    error_code ec;
    channel.async_call(echo(), control, request("x", 0, 77), response, yield[ec]);
    CHECK(ec == braid::from_wire(77));
    CHECK(control.ErrorText() == "as asked");
    CHECK(std::this_thread::get_id() == thread);
  });
}

TEST_CASE_METHOD(fixture, "call styles: the throwing forms throw a call_error with text, peer and attempts",
                 "[call]") {
  const auto check = [&](auto call) {
    try {
      call();
    } catch (const braid::call_error& e) {
      CHECK(e.code() == braid::from_wire(77));
      CHECK(e.text() == "as asked");
      CHECK(e.peer() == server.address());
      CHECK(e.attempts() == 1);
      return;
    }
    FAIL("nothing was thrown");
  };
  EchoResponse response;
  controller control;
  check([&] { channel.call(echo(), request("x", 0, 77), response); });
  check([&] { channel.call(echo(), control, request("x", 0, 77), response); });
  in_coroutine(rt, [&](yield_context yield) {
    EchoResponse answer;
    check([&] { channel.async_call(echo(), request("x", 0, 77), answer, yield); });
    check([&] { channel.call(echo(), request("x", 0, 77), answer); });
  });
}

TEST_CASE_METHOD(fixture, "call styles: a synchronous call suspends in a coroutine", "[call]") {
  in_coroutine(GENERATE(false, true) ? rt : other, [&](yield_context yield) {
    bool others_ran = false;
    asio::post(yield.get_executor(), [&] { others_ran = true; });
    EchoResponse response;
    channel.call(echo(), request("one", 5), response);
    CHECK(response.message() == "one");
    CHECK(others_ran);
  });
}

TEST_CASE_METHOD(fixture, "call styles: a synchronous call blocks a foreign thread", "[call]") {
  EchoResponse response;
  channel.call(echo(), request("one"), response);
  CHECK(response.message() == "one");
  controller control;
  error_code ec = aborted;
  channel.call(echo(), control, request("two"), response, ec);
  CHECK_FALSE(ec);
  CHECK(response.message() == "two");
}

TEST_CASE_METHOD(fixture, "call styles: a synchronous call on a loop outside of a coroutine is 1 at once",
                 "[call]") {
  std::promise<error_code> ended, of_stub;
  auto& where = GENERATE(false, true) ? rt : other;
  asio::post(where.get_executor(), [&] {
    controller control;
    EchoResponse response;
    error_code ec;
    channel.call(echo(), control, request(), response, ec);
    CHECK(control.ErrorText().find("loop") != std::string::npos);
    ended.set_value(ec);
    const EchoRequest message = request();
    golden::EchoService_Stub(&channel).Echo(&control, &message, &response, nullptr);
    of_stub.set_value(control.error());
  });
  const error_code not_permitted(EPERM, boost::system::system_category());
  CHECK(get(ended.get_future()) == not_permitted);
  CHECK(get(of_stub.get_future()) == not_permitted);
  CHECK(server.calls() == 0);
}

TEST_CASE_METHOD(fixture, "call styles: a callback runs on the call's loop", "[call]") {
  std::promise<std::thread::id> loop, ended;
  asio::post(rt.get_executor(), [&] { loop.set_value(std::this_thread::get_id()); });
  EchoResponse response;
  channel.async_call(echo(), request(), response, [&](error_code ec) {
    CHECK_FALSE(ec);
    ended.set_value(std::this_thread::get_id());
  });
  CHECK(get(ended.get_future()) == get(loop.get_future()));
}

TEST_CASE_METHOD(fixture, "call styles: the handler runs on its associated executor", "[call]") {
  asio::thread_pool pool(1);
  asio::io_context context;
  auto strand = asio::make_strand(rt.get_executor());
  std::atomic<int> ended{0};
  EchoResponse one, two, three, four;
  channel.async_call(echo(), request(), one, asio::bind_executor(pool, [&](error_code) {
                       if (pool.get_executor().running_in_this_thread()) ++ended;
                     }));
  channel.async_call(echo(), request(), two, asio::bind_executor(context, [&](error_code) {
                       if (context.get_executor().running_in_this_thread()) ++ended;
                     }));
  channel.async_call(echo(), request(), three, asio::bind_executor(strand, [&](error_code) {
                       if (strand.running_in_this_thread()) ++ended;
                     }));
  channel.async_call(echo(), request(), four, asio::bind_executor(other.get_executor(), [&](error_code) {
                       if (other.get_executor().running_in_this_thread()) ++ended;
                     }));
  context.run();  // it has work until the handler was called
  wait_until([&] { return ended == 4; });
  pool.join();
  CHECK(ended == 4);
}

TEST_CASE_METHOD(fixture, "call styles: use_future, and as_tuple in a coroutine, work as with any operation",
                 "[call]") {
  EchoResponse response;
  get(channel.async_call(echo(), request("one"), response, asio::use_future));
  CHECK(response.message() == "one");
  CHECK_THROWS_AS(get(channel.async_call(echo(), request("x", 0, 5), response, asio::use_future)),
                  boost::system::system_error);
  in_coroutine(rt, [&](yield_context yield) {
    EchoResponse answer;
    const std::tuple<error_code> seen =
        channel.async_call(echo(), request("x", 0, 6), answer, asio::as_tuple(yield));
    CHECK(std::get<0>(seen) == braid::from_wire(6));
  });
}

TEST_CASE_METHOD(fixture, "call styles: the stub that protobuf generates, without done", "[call]") {
  golden::EchoService_Stub stub(&channel);
  const EchoRequest message = request("one"), failing = request("x", 0, 9);
  EchoResponse response;
  controller control;
  stub.Echo(&control, &message, &response, nullptr);
  CHECK_FALSE(control.Failed());
  CHECK(response.message() == "one");
  stub.Echo(&control, &failing, &response, nullptr);
  CHECK(control.Failed());
  CHECK(control.ErrorText() == "as asked");
  response.Clear();
  stub.Echo(nullptr, &message, &response, nullptr);
  CHECK(response.message() == "one");
  in_coroutine(rt, [&](yield_context) {
    EchoResponse answer;
    stub.Echo(nullptr, &message, &answer, nullptr);
    CHECK(answer.message() == "one");
  });
}

TEST_CASE_METHOD(fixture, "call styles: the stub that protobuf generates, with done", "[call]") {
  golden::EchoService_Stub stub(&channel);
  auto message = std::make_unique<EchoRequest>(request("one"));
  EchoResponse response;
  controller control;
  promise_closure done;
  stub.Echo(GENERATE(false, true) ? &control : nullptr, message.get(), &response, &done);
  message->set_message("changed");
  message.reset();
  CHECK(done.wait() != std::this_thread::get_id());
  CHECK(response.message() == "one");
}

TEST_CASE_METHOD(fixture,
                 "call styles: a controller of another type fails its call, later where there is a done",
                 "[call]") {
  golden::EchoService_Stub stub(&channel);
  const EchoRequest message = request("one");
  EchoResponse response;
  foreign_controller control, other_control;
  stub.Echo(&control, &message, &response, nullptr);
  CHECK(control.ErrorText().find("braid::controller") != std::string::npos);
  promise_closure done;
  stub.Echo(&other_control, &message, &response, &done);
  CHECK(done.wait() != std::this_thread::get_id());
  CHECK(other_control.Failed());
  CHECK(server.calls() == 0);
}

TEST_CASE_METHOD(fixture, "call styles: without the runtime calls end with 125, elsewhere than here",
                 "[call]") {
  auto gone = std::make_unique<braid::runtime>(braid::runtime_options{.loops = 1});
  braid::channel orphan(*gone);
  orphan.init(server.address());
  gone.reset();
  EchoResponse response;
  controller control;
  error_code ec;
  orphan.call(echo(), control, request(), response, ec);
  CHECK(ec == aborted);

  std::promise<std::thread::id> ended;
  orphan.async_call(echo(), request(), response, [&](error_code why) {
    CHECK(why == aborted);
    ended.set_value(std::this_thread::get_id());
  });
  CHECK(get(ended.get_future()) != std::this_thread::get_id());

  asio::io_context context;
  int completions = 0;
  orphan.async_call(echo(), request(), response, asio::bind_executor(context, [&](error_code why) {
                      CHECK(why == aborted);
                      ++completions;
                    }));
  CHECK(completions == 0);
  context.run();
  CHECK(completions == 1);

  promise_closure done;
  const EchoRequest message = request();
  golden::EchoService_Stub(&orphan).Echo(&control, &message, &response, &done);
  CHECK(done.wait() != std::this_thread::get_id());
  CHECK(control.error() == aborted);

  in_coroutine(rt, [&](yield_context yield) {
    EchoResponse answer;
    error_code seen;
    orphan.async_call(echo(), request(), answer, yield[seen]);
    CHECK(seen == aborted);
  });
}
