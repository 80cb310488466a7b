// Calls with each of Asio's tokens and adapters: where the handler runs, with whose memory, what it can
// cancel, and what is thrown.

#include <braid/combo_channel.hpp>
#include <braid/method.hpp>
#include <braid/stub.hpp>

#include "call_fixture.hpp"

#include <boost/asio/any_completion_handler.hpp>
#include <boost/asio/append.hpp>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/bind_allocator.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/consign.hpp>
#include <boost/asio/deferred.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/spawn.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/use_future.hpp>
#include <catch2/catch.hpp>

#include <memory>
#include <tuple>
#include <utility>
#include <variant>

namespace {

using namespace call_over_tcp;
namespace asio = boost::asio;
using braid::yield_context;
using service = golden::EchoService;
constexpr int for_ever = 1'000'000;
const error_code failure_77 = braid::from_wire(77);

struct fixture {
  fixture() { channel.init(server.address(), {.timeout = 100s, .connect_timeout = 100s}); }

  /// Runs an awaitable on the test's own context, in this thread.
  template <typename Function>
  void await_here(Function function) {
    auto ended = asio::co_spawn(mine, std::move(function), asio::use_future);
    mine.run();
    mine.restart();
    get(std::move(ended));
  }
  /// Runs a coroutine of Asio there.
  template <typename Function>
  void spawn_here(Function function) {
    std::exception_ptr thrown;
    bool over = false;
    asio::spawn(mine, std::move(function), [&](std::exception_ptr e) noexcept {
      thrown = e;
      over = true;
    });
    mine.run();
    mine.restart();
    CHECK(over);
    if (thrown) std::rethrow_exception(thrown);
  }
  template <typename Function>
  void in_braid(Function function) {
    get(braid::spawn(rt, std::move(function), asio::use_future));
  }
  bool here() const { return std::this_thread::get_id() == home; }
  auto failing() const { return request("x", 0, 77); }

  template <typename Call>
  void check_throws(Call call) {
    try {
      call();
    } catch (const braid::call_error& e) {
      check(e);
      return;
    }
    FAIL("no call_error was thrown");
  }
  void check(const braid::call_error& e) {
    CHECK(e.code() == failure_77);
    CHECK(e.text() == "as asked");
    CHECK(e.peer() == server.address());
    CHECK(e.attempts() == 1);
  }

  std::thread::id home = std::this_thread::get_id();
  asio::io_context mine;
  echo_server server;
  braid::runtime rt{{.loops = 1}};
  braid::channel channel{rt};
  braid::stub<service> stub{channel};
};

/// An allocator that counts.
struct memory_count {
  std::atomic<int> live{0};
  std::atomic<int> total{0};
};
template <typename T>
struct counting_allocator {
  using value_type = T;
  explicit counting_allocator(memory_count& of) noexcept : count(&of) {}
  template <typename U>
  explicit(false) counting_allocator(const counting_allocator<U>& other) noexcept : count(other.count) {}
  T* allocate(std::size_t n) {
    ++count->live;
    ++count->total;
    return std::allocator<T>().allocate(n);
  }
  void deallocate(T* p, std::size_t n) noexcept {
    --count->live;
    std::allocator<T>().deallocate(p, n);
  }
  friend bool operator==(const counting_allocator& a, const counting_allocator& b) noexcept {
    return a.count == b.count;
  }
  memory_count* count;
};

}  // namespace

TEST_CASE_METHOD(fixture, "tokens: use_awaitable returns on the awaitable's executor", "[call]") {
  await_here([&]() -> asio::awaitable<void> {
    controller control;
    EchoResponse answer, filled;  // Catch2 would evaluate an await in CHECK twice
    answer = co_await stub.async_call(&service::Echo, request("one"), asio::use_awaitable);
    CHECK(answer.message() == "one");
    CHECK(here());
    co_await stub.async_call(&service::Echo, control, request("two"), filled, asio::use_awaitable);
    CHECK(here());
    CHECK(filled.message() == "two");
    co_await channel.async_call(echo(), control, request("three"), filled, asio::use_awaitable);
    CHECK(here());
    CHECK(filled.message() == "three");
  });
}

TEST_CASE_METHOD(fixture, "tokens: use_awaitable throws a call_error, also below the bind adapters",
                 "[call]") {
  int thrown = 0;
  await_here([&]() -> asio::awaitable<void> {
    asio::cancellation_signal signal;
    EchoResponse filled;
    const auto expect = [&](asio::awaitable<void> call) -> asio::awaitable<void> {
      try {
        co_await std::move(call);
      } catch (const braid::call_error& e) {
        check(e);
        ++thrown;
      }
    };
    const auto without_result = [](asio::awaitable<EchoResponse> call) -> asio::awaitable<void> {
      co_await std::move(call);
    };
    const auto wrong = failing();
    co_await expect(without_result(stub.async_call(&service::Echo, wrong, asio::use_awaitable)));
    co_await expect(stub.async_call(&service::Echo, wrong, filled, asio::use_awaitable));
    co_await expect(channel.async_call(echo(), wrong, filled, asio::use_awaitable));
    co_await expect(stub.async_call(&service::Echo, wrong, filled,
                                    asio::bind_executor(mine.get_executor(), asio::use_awaitable)));
    co_await expect(stub.async_call(&service::Echo, wrong, filled,
                                    asio::bind_cancellation_slot(signal.slot(), asio::use_awaitable)));
    co_await expect(stub.async_call(&service::Echo, wrong, filled,
                                    asio::bind_allocator(std::allocator<void>(), asio::use_awaitable)));
  });
  CHECK(thrown == 6);
}

TEST_CASE_METHOD(fixture, "tokens: use_future returns, and throws a call_error", "[call]") {
  EchoResponse filled;
  CHECK(get(stub.async_call(&service::Echo, request("one"), asio::use_future)).message() == "one");
  get(stub.async_call(&service::Echo, request("two"), filled, asio::use_future));
  CHECK(filled.message() == "two");
  check_throws([&] { get(stub.async_call(&service::Echo, failing(), asio::use_future)); });
  check_throws([&] { get(stub.async_call(&service::Echo, failing(), filled, asio::use_future)); });
  check_throws([&] { get(channel.async_call(echo(), failing(), filled, asio::use_future)); });
  asio::thread_pool pool(1);
  check_throws(
      [&] { get(stub.async_call(&service::Echo, failing(), asio::bind_executor(pool, asio::use_future))); });
  pool.join();
}

TEST_CASE_METHOD(fixture,
                 "tokens: asio's yield_context returns on its executor, throws a call_error or stores",
                 "[call]") {
  spawn_here([&](asio::yield_context yield) {
    controller control;
    EchoResponse filled;
    error_code ec = aborted;
    CHECK(stub.async_call(&service::Echo, request("one"), yield).message() == "one");
    CHECK(here());
    stub.async_call(&service::Echo, control, request("two"), filled, yield[ec]);
    CHECK(here());
    CHECK_FALSE(ec);
    CHECK(filled.message() == "two");
    CHECK_FALSE(stub.async_call(&service::Echo, failing(), yield[ec]).has_message());
    CHECK(ec == failure_77);
    check_throws([&] { stub.async_call(&service::Echo, failing(), yield); });
    check_throws([&] { stub.async_call(&service::Echo, failing(), filled, yield); });
    check_throws([&] { channel.async_call(echo(), failing(), filled, yield); });
    check_throws(
        [&] { stub.async_call(&service::Echo, failing(), asio::bind_executor(mine.get_executor(), yield)); });
  });
}

TEST_CASE_METHOD(fixture, "tokens: braid's yield_context throws a call_error below the bind adapters too",
                 "[call]") {
  in_braid([&](yield_context yield) {
    asio::cancellation_signal signal;
    EchoResponse filled;
    asio::thread_pool pool(1);
    check_throws([&] { stub.async_call(&service::Echo, failing(), yield); });
    check_throws([&] { stub.async_call(&service::Echo, failing(), filled, yield); });
    check_throws([&] { stub.async_call(&service::Echo, failing(), asio::bind_executor(pool, yield)); });
    check_throws([&] {
      stub.async_call(&service::Echo, failing(), asio::bind_cancellation_slot(signal.slot(), yield));
    });
    CHECK(stub.async_call(&service::Echo, request("one"), asio::bind_executor(pool, yield)).message() ==
          "one");
  });
}

TEST_CASE_METHOD(fixture, "tokens: as_tuple and redirect_error below every kind of coroutine", "[call]") {
  error_code ec;
  await_here([&]() -> asio::awaitable<void> {
    auto [code, empty] =
        co_await stub.async_call(&service::Echo, failing(), asio::as_tuple(asio::use_awaitable));
    CHECK(code == failure_77);
    CHECK_FALSE(empty.has_message());
    co_await stub.async_call(&service::Echo, failing(), asio::redirect_error(asio::use_awaitable, ec));
    CHECK(ec == failure_77);
  });
  spawn_here([&](asio::yield_context yield) {
    auto [code, response] = stub.async_call(&service::Echo, request("one"), asio::as_tuple(yield));
    CHECK_FALSE(code);
    CHECK(response.message() == "one");
    CHECK(stub.async_call(&service::Echo, request("two"), asio::redirect_error(yield, ec)).message() ==
          "two");
    CHECK_FALSE(ec);
  });
  in_braid([&](yield_context yield) {
    auto [code, response] = stub.async_call(&service::Echo, failing(), asio::as_tuple(yield));
    CHECK(code == failure_77);
    stub.async_call(&service::Echo, failing(), asio::redirect_error(yield, ec));
    CHECK(ec == failure_77);
  });
}

TEST_CASE_METHOD(fixture,
                 "tokens: deferred starts when it is invoked, each time anew, and keeps an rvalue request",
                 "[call]") {
  auto operation = stub.async_call(&service::Echo, request("one"), asio::deferred);
  CHECK(server.calls() == 0);
  CHECK(get(operation(asio::use_future)).message() == "one");
  CHECK(get(operation(asio::use_future)).message() == "one");
  CHECK(get(std::move(operation)(asio::use_future)).message() == "one");
  CHECK(server.calls() == 3);

  EchoRequest changing = request("two");
  auto of_lvalue = stub.async_call(&service::Echo, changing, asio::deferred);
  changing.set_message("three");
  CHECK(get(std::move(of_lvalue)(asio::use_future)).message() == "three");

  // As a function returns it whose result is const.
  auto of_const = stub.async_call(&service::Echo, std::move(std::as_const(changing)), asio::deferred);
  changing.set_message("four");
  CHECK(get(std::move(of_const)(asio::use_future)).message() == "three");

  // The token that it is given to is not ours to adapt: the code alone, unless there is a controller.
  controller control;
  auto wrong = stub.async_call(&service::Echo, control, failing(), asio::deferred);
  try {
    get(std::move(wrong)(asio::use_future));
    FAIL("nothing was thrown");
  } catch (const boost::system::system_error& e) {
    CHECK(e.code() == failure_77);
    CHECK(dynamic_cast<const braid::call_error*>(&e) == nullptr);
  }
  CHECK(control.ErrorText() == "as asked");
}

TEST_CASE_METHOD(fixture, "tokens: an awaitable that is never awaited starts nothing", "[call]") {
  await_here([&]() -> asio::awaitable<void> {
    { auto never = stub.async_call(&service::Echo, request("never"), asio::use_awaitable); }
    auto later = stub.async_call(&service::Echo, request("later"), asio::use_awaitable);
    CHECK(server.calls() == 0);
    const auto answer = co_await std::move(later);
    CHECK(answer.message() == "later");
    CHECK(server.calls() == 1);
  });
}

TEST_CASE_METHOD(fixture, "tokens: append, consign and detached", "[call]") {
  in_braid([&](yield_context yield) {
    auto [response, number] = stub.async_call(&service::Echo, request("one"), asio::append(yield, 7));
    CHECK(response.message() == "one");
    CHECK(number == 7);
  });
  auto kept = std::make_shared<int>(1);
  const std::weak_ptr<int> watched = kept;
  auto ended =
      stub.async_call(&service::Echo, request("x", 1), asio::consign(asio::use_future, std::move(kept)));
  CHECK(get(std::move(ended)).message() == "x");
  wait_until([&] { return watched.expired(); });
  stub.async_call(&service::Echo, request("nobody waits"), asio::detached);
  wait_until([&] { return server.calls() == 3; });
}

TEST_CASE_METHOD(fixture, "tokens: every kind of handler runs once, on its bound executor", "[call]") {
  asio::thread_pool pool(2);
  auto strand = asio::make_strand(pool);
  std::atomic<int> here_count{0}, pool_count{0}, strand_count{0}, failures{0};
  constexpr int count = 50;
  for (int i = 0; i < count; ++i) {
    const auto wanted = i % 2 == 0 ? request("x", i % 3) : failing();
    stub.async_call(&service::Echo, wanted,
                    asio::bind_executor(mine, [&](error_code ec, const EchoResponse&) {
                      if (ec) ++failures;
                      if (mine.get_executor().running_in_this_thread() && here()) ++here_count;
                    }));
    stub.async_call(&service::Echo, wanted, asio::bind_executor(pool, [&](error_code, const EchoResponse&) {
      if (pool.get_executor().running_in_this_thread()) ++pool_count;
    }));
    stub.async_call(&service::Echo, wanted, asio::bind_executor(strand, [&](error_code, const EchoResponse&) {
      if (strand.running_in_this_thread()) ++strand_count;
    }));
  }
  mine.run();
  pool.join();  // its executors have work until the last handler was called
  CHECK(here_count == count);
  CHECK(pool_count == count);
  CHECK(strand_count == count);
  CHECK(failures == count / 2);
}

TEST_CASE_METHOD(fixture, "tokens: any_completion_handler keeps executor and slot, also without a runtime",
                 "[call]") {
  using any_handler = asio::any_completion_handler<void(error_code, EchoResponse)>;
  asio::cancellation_signal signal;
  int ended = 0;
  const auto handler = [&](error_code wanted) {
    return any_handler(asio::bind_executor(
        mine, asio::bind_cancellation_slot(signal.slot(), [&, wanted](error_code ec, const EchoResponse&) {
          CHECK(ec == wanted);
          CHECK(here());
          ++ended;
        })));
  };
  stub.async_call(&service::Echo, request("one"), handler({}));
  mine.run();
  mine.restart();
  CHECK(ended == 1);

  stub.async_call(&service::Echo, request("x", for_ever), handler(aborted));
  asio::post(mine, [&] { signal.emit(asio::cancellation_type::terminal); });
  mine.run();
  mine.restart();
  CHECK(ended == 2);

  std::promise<std::pair<error_code, std::thread::id>> elsewhere;
  auto gone = std::make_unique<braid::runtime>(braid::runtime_options{.loops = 1});
  braid::channel orphan(*gone);
  orphan.init(server.address());
  gone.reset();
  const braid::stub<service> orphaned(orphan);
  orphaned.async_call(&service::Echo, request(), handler(aborted));
  orphaned.async_call(&service::Echo, request(), any_handler([&](error_code ec, const EchoResponse&) {
    elsewhere.set_value({ec, std::this_thread::get_id()});
  }));
  CHECK(ended == 2);
  const auto [its_error, its_thread] = get(elsewhere.get_future());
  CHECK(its_error == aborted);
  CHECK(its_thread != home);
  mine.run();
  CHECK(ended == 3);
}

TEST_CASE_METHOD(fixture, "tokens: the associated allocator gives a handler's memory, back before it runs",
                 "[call]") {
  memory_count count;
  const counting_allocator<void> allocator(count);
  int live_in_handler = -1;
  const auto here_with = [&](auto handler) {
    return asio::bind_executor(mine, asio::bind_allocator(allocator, std::move(handler)));
  };
  stub.async_call(&service::Echo, request("one"), here_with([&](error_code ec, const EchoResponse&) {
    CHECK_FALSE(ec);
    live_in_handler = count.live;
  }));
  CHECK(count.live == 1);
  mine.run();
  mine.restart();
  CHECK(live_in_handler == 0);
  CHECK(count.live == 0);
  CHECK(count.total == 2);  // what waits for the answer, and what brings it over to the other context

  std::promise<int> on_loop;
  stub.async_call(&service::Echo, request("two"),
                  asio::bind_allocator(
                      allocator, [&](error_code, const EchoResponse&) { on_loop.set_value(count.live); }));
  CHECK(get(on_loop.get_future()) == 0);
  CHECK(count.total == 3);

  EchoResponse filled;
  channel.async_call(echo(), failing(), filled, here_with([&](error_code ec) { CHECK(ec == failure_77); }));
  mine.run();
  mine.restart();
  get(stub.async_call(&service::Echo, request("three"), asio::bind_allocator(allocator, asio::use_future)));
  wait_until([&] { return count.live == 0; });
  CHECK(count.total > 5);
}

TEST_CASE_METHOD(fixture, "tokens: the associated slot cancels a call of every style, and is left empty",
                 "[call]") {
  asio::cancellation_signal signal;
  const auto slow = request("x", for_ever);
  const auto cancel_soon = [&] { asio::post(mine, [&] { signal.emit(asio::cancellation_type::terminal); }); };
  int cancelled = 0;
  const auto expect_aborted = [&](const error_code& ec) {
    CHECK(ec == aborted);
    CHECK_FALSE(signal.slot().has_handler());
    ++cancelled;
  };

  stub.async_call(
      &service::Echo, slow,
      asio::bind_executor(mine, asio::bind_cancellation_slot(signal.slot(), [&](error_code ec, EchoResponse) {
                            expect_aborted(ec);
                          })));
  cancel_soon();
  mine.run();
  mine.restart();

  await_here([&]() -> asio::awaitable<void> {
    cancel_soon();
    try {
      co_await stub.async_call(&service::Echo, slow,
                               asio::bind_cancellation_slot(signal.slot(), asio::use_awaitable));
    } catch (const braid::call_error& e) {
      expect_aborted(e.code());
    }
  });
  spawn_here([&](asio::yield_context yield) {
    error_code ec;
    cancel_soon();
    stub.async_call(&service::Echo, slow, asio::bind_cancellation_slot(signal.slot(), yield[ec]));
    expect_aborted(ec);
  });
  auto future =
      stub.async_call(&service::Echo, slow, asio::bind_cancellation_slot(signal.slot(), asio::use_future));
  signal.emit(asio::cancellation_type::partial);
  try {
    get(std::move(future));
  } catch (const braid::call_error& e) {
    CHECK(e.code() == aborted);
    ++cancelled;
  }
  CHECK(cancelled == 4);
}

TEST_CASE_METHOD(fixture, "tokens: of two awaitables joined by or the loser is cancelled", "[call]") {
  using namespace asio::experimental::awaitable_operators;
  await_here([&]() -> asio::awaitable<void> {
    controller loser;
    const auto won =
        co_await (stub.async_call(&service::Echo, loser, request("slow", for_ever), asio::use_awaitable) ||
                  stub.async_call(&service::Echo, request("quick"), asio::use_awaitable));
    REQUIRE(won.index() == 1);
    CHECK(std::get<1>(won).message() == "quick");
    CHECK(loser.error() == aborted);
    CHECK(loser.result().cause == braid::cancel_cause::user);

    asio::steady_timer timer(mine, 1ms);
    controller late;
    const auto first =
        co_await (stub.async_call(&service::Echo, late, request("slow", for_ever), asio::use_awaitable) ||
                  timer.async_wait(asio::use_awaitable));
    CHECK(first.index() == 1);
    CHECK(late.error() == aborted);

    const auto both = co_await (stub.async_call(&service::Echo, request("one"), asio::use_awaitable) &&
                                stub.async_call(&service::Echo, request("two"), asio::use_awaitable));
    CHECK(std::get<0>(both).message() == "one");
    CHECK(std::get<1>(both).message() == "two");
    CHECK(here());
  });
}

TEST_CASE_METHOD(fixture, "tokens: the response is moved to the handler, not copied", "[call]") {
  // A combo runs on the client's side, so the test sees where it wrote the text.
  const char* written = nullptr;
  braid::combo_channel local(rt, [&](braid::combo_call& call, yield_context) {
    auto& response = static_cast<EchoResponse&>(call.response());
    response.set_message(std::string(1000, 'x'));
    written = response.message().data();
    call.succeed();
  });
  const braid::stub<service> of_combo(local);
  const auto where = [](const EchoResponse& response) { return response.message().data(); };

  std::promise<const char*> seen;
  of_combo.async_call(&service::Echo, request(),
                      [&](error_code, EchoResponse response) { seen.set_value(where(response)); });
  CHECK(get(seen.get_future()) == written);
  std::promise<EchoResponse> moved;
  of_combo.async_call(&service::Echo, request(),
                      asio::bind_executor(mine, [&](error_code, EchoResponse response) {
                        moved.set_value(std::move(response));
                      }));
  mine.run();
  mine.restart();
  CHECK(where(get(moved.get_future())) == written);
  CHECK(where(get(of_combo.async_call(&service::Echo, request(), asio::use_future))) == written);
  CHECK(where(of_combo.call(&service::Echo, request())) == written);
  await_here([&]() -> asio::awaitable<void> {
    const auto response = co_await of_combo.async_call(&service::Echo, request(), asio::use_awaitable);
    CHECK(where(response) == written);
  });
  spawn_here([&](asio::yield_context yield) {
    CHECK(where(of_combo.async_call(&service::Echo, request(), yield)) == written);
  });
  in_braid([&](yield_context yield) {
    CHECK(where(of_combo.async_call(&service::Echo, request(), yield)) == written);
    CHECK(where(std::get<1>(of_combo.async_call(&service::Echo, request(), asio::as_tuple(yield)))) ==
          written);
  });
}

TEST_CASE_METHOD(fixture, "tokens: a method by its name has the forms of a stub", "[call]") {
  const braid::method<EchoRequest, EchoResponse> by_name{"golden.EchoService", "Echo"};
  controller control;
  EchoResponse filled;
  error_code ec = aborted;
  CHECK(by_name.call(channel, request("one")).message() == "one");
  CHECK(by_name.call(channel, control, request("two")).message() == "two");
  CHECK(by_name.call(channel, request("three"), ec).message() == "three");
  CHECK(by_name.call(channel, control, request("four"), ec).message() == "four");
  CHECK_FALSE(ec);
  by_name.call(channel, request("five"), filled);
  CHECK(filled.message() == "five");
  by_name.call(channel, control, request("six"), filled);
  CHECK(filled.message() == "six");
  by_name.call(channel, request("seven"), filled, ec);
  CHECK(filled.message() == "seven");
  by_name.call(channel, control, request("eight"), filled, ec);
  CHECK(filled.message() == "eight");
  check_throws([&] { by_name.call(channel, failing()); });
  check_throws([&] { get(by_name.async_call(channel, failing(), asio::use_future)); });
  CHECK(get(by_name.async_call(channel, request("nine"), asio::use_future)).message() == "nine");
  CHECK(get(by_name.async_call(channel, control, request("ten"), asio::use_future)).message() == "ten");
  get(by_name.async_call(channel, request("eleven"), filled, asio::use_future));
  CHECK(filled.message() == "eleven");
  get(by_name.async_call(channel, control, request("twelve"), filled, asio::use_future));
  CHECK(filled.message() == "twelve");
  get(channel.async_call(by_name, request("thirteen"), filled, asio::use_future));
  CHECK(filled.message() == "thirteen");
  in_braid([&](yield_context yield) {
    CHECK(by_name.async_call(channel, request("fourteen"), yield).message() == "fourteen");
  });
}
