// What Boost.Asio 1.81 does that a call could stumble over, each shown not to:
//  1. spawn() and async_result of its yield_context mishandle completion signatures with exception_ptr (a
//  nested
//     spawn crashes on success): a handler of ours sees an error_code, and a nested spawn with as_tuple
//     works.
//  2. yield_context lets only terminal cancellation through unless told otherwise.
//  3. Cancellation of a yield_context ends the operation in flight only; the next one starts as if nothing
//  was.
//  4. An awaitable throws at its next co_await once it was cancelled: our call is then not started.
//  5. A slot keeps its handler after the operation has ended, unless that clears it.
//  6. A parallel_group over a range calls back off the executor, unless each operation is bound to it.
//  7. A group that is cancelled with total leaves alone what ignores total: a call that was sent goes on to
//  its
//     deadline, and no further.
//  8. The executor of an any_completion_handler can dispatch and not post (also in token_styles_test).
//  9. A context that is destroyed unwinds its suspended coroutines by an exception, through our frames.
// 10. A coroutine of Asio on a loop of ours is no coroutine of ours: a synchronous call there would stop the
// loop.
// 11. co_spawn hands its cancellation on by dispatch: it ends the call inside the awaitable.
// 12. A handler that starts the next call from within itself must find the memory and the slot of the last
// free.
// 13. With throw_if_cancelled(true) a cancelled coroutine of Asio throws before it starts its next call; left
// on when
//     the coroutine returns, it ends the process.
// 14. A completion of asio::spawn that throws is called a second time, with its own exception; ours is not.
// 15. A group may touch what is gone if its operations complete while it launches: no call of ours does, also
// one
//     that fails at once.

#include <braid/stub.hpp>

#include "call_fixture.hpp"
#include "unit/server_fixture.hpp"

#include <boost/asio/any_completion_handler.hpp>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/deferred.hpp>
#include <boost/asio/experimental/parallel_group.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/spawn.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/use_future.hpp>
#include <catch2/catch.hpp>

#include <array>
#include <atomic>
#include <memory>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <vector>

namespace {

using namespace call_over_tcp;
namespace asio = boost::asio;
namespace experimental = boost::asio::experimental;
using service = golden::EchoService;
constexpr int for_ever = 1'000'000;

struct fixture {
  fixture() { channel.init(server.address(), {.timeout = 100s, .connect_timeout = 100s}); }

  template <typename Function, typename... Token>
  void spawn_here(Function function, asio::cancellation_slot slot = {}) {
    std::exception_ptr thrown;
    asio::spawn(mine, std::move(function),
                asio::bind_cancellation_slot(slot, [&](std::exception_ptr e) noexcept { thrown = e; }));
    mine.run();
    mine.restart();
    if (thrown) std::rethrow_exception(thrown);
  }
  /// Emits on the test's context once the server has got `calls` requests.
  void emit_after(int calls, asio::cancellation_type type) {
    asio::post(mine, [this, calls, type] {
      wait_until([&] { return server.calls() >= calls; });
      signal.emit(type);
    });
  }

  asio::io_context mine;
  asio::cancellation_signal signal;
  echo_server server;
  braid::runtime rt{{.loops = 1}};
  braid::channel channel{rt};
  braid::stub<service> stub{channel};
};

/// A token that tells the signature of the operation that it is given to.
struct signature_probe {};
template <typename Signature>
struct is_signature {};

}  // namespace

template <typename Signature>
class boost::asio::async_result<signature_probe, Signature> {
 public:
  template <typename Initiation, typename... Args>
  static is_signature<Signature> initiate(Initiation&&, signature_probe, Args&&...) {
    return {};
  }
};

TEST_CASE_METHOD(fixture, "asio traps: no token but use_awaitable and use_future sees an exception_ptr",
                 "[call]") {
  EchoResponse filled;
  const auto returning = stub.async_call(&service::Echo, request(), signature_probe());
  CHECK(std::is_same_v<decltype(returning), const is_signature<void(error_code, EchoResponse)>>);
  const auto filling = stub.async_call(&service::Echo, request(), filled, signature_probe());
  CHECK(std::is_same_v<decltype(filling), const is_signature<void(error_code)>>);
  const auto bound =
      channel.async_call(echo(), request(), filled, asio::bind_executor(mine, signature_probe()));
  CHECK(std::is_same_v<decltype(bound), const is_signature<void(error_code)>>);

  std::string said;
  spawn_here([&](asio::yield_context outer) {
    asio::spawn(
        mine,
        [&](asio::yield_context inner) {
          said = stub.async_call(&service::Echo, request("nested"), inner).message();
        },
        asio::as_tuple(outer));
  });
  CHECK(said == "nested");
}

TEST_CASE_METHOD(fixture,
                 "asio traps: a yield_context passes partial cancellation on only where it was told to",
                 "[call]") {
  bool emitted = false;
  spawn_here(
      [&](asio::yield_context yield) {
        asio::post(mine, [&] {
          signal.emit(asio::cancellation_type::partial);
          emitted = true;
        });
        CHECK(stub.async_call(&service::Echo, request("goes on", 20), yield).message() == "goes on");
        CHECK(emitted);

        yield.reset_cancellation_state(asio::enable_partial_cancellation());
        emit_after(2, asio::cancellation_type::partial);
        error_code ec;
        stub.async_call(&service::Echo, request("x", for_ever), yield[ec]);
        CHECK(ec == aborted);
      },
      signal.slot());
}

TEST_CASE_METHOD(fixture, "asio traps: a cancelled coroutine of Asio's may call again, and its slot is empty",
                 "[call]") {
  spawn_here(
      [&](asio::yield_context yield) {
        emit_after(1, asio::cancellation_type::terminal);
        error_code ec;
        stub.async_call(&service::Echo, request("x", for_ever), yield[ec]);
        CHECK(ec == aborted);
        CHECK(yield.cancelled() != asio::cancellation_type::none);
        CHECK_FALSE(yield.get_cancellation_slot().has_handler());
        CHECK(stub.async_call(&service::Echo, request("clean-up"), yield).message() == "clean-up");
      },
      signal.slot());
}

TEST_CASE_METHOD(fixture, "asio traps: a cancelled awaitable starts no further call", "[call]") {
  int thrown = 0;
  auto body = [&]() -> asio::awaitable<void> {
    emit_after(1, asio::cancellation_type::terminal);
    try {
      co_await stub.async_call(&service::Echo, request("x", for_ever), asio::use_awaitable);
    } catch (const braid::call_error& e) {
      CHECK(e.code() == aborted);
      ++thrown;
    }
    try {
      co_await stub.async_call(&service::Echo, request("never sent"), asio::use_awaitable);
    } catch (const boost::system::system_error& e) {
      CHECK(e.code() == aborted);
      ++thrown;
    }
  };
  asio::co_spawn(mine, body, asio::bind_cancellation_slot(signal.slot(), [](std::exception_ptr) {}));
  mine.run();
  CHECK(thrown == 2);
  CHECK(server.calls() == 1);
}

TEST_CASE_METHOD(fixture, "asio traps: a signal that is emitted after the end finds nothing", "[call]") {
  {
    auto doomed = std::make_unique<braid::runtime>(braid::runtime_options{.loops = 1});
    braid::channel short_lived(*doomed);
    short_lived.init(server.address(), {.timeout = 100s, .connect_timeout = 100s});
    int ended = 0;
    braid::stub<service>(short_lived)
        .async_call(&service::Echo, request(),
                    asio::bind_executor(
                        mine, asio::bind_cancellation_slot(signal.slot(), [&](error_code, EchoResponse) {
                          CHECK_FALSE(signal.slot().has_handler());
                          ++ended;
                        })));
    CHECK(signal.slot().has_handler());
    mine.run();
    CHECK(ended == 1);
  }
  signal.emit(asio::cancellation_type::all);
  CHECK_FALSE(signal.slot().has_handler());
}

TEST_CASE_METHOD(fixture,
                 "asio traps: a parallel_group of calls completes on a strand when each is bound to it",
                 "[call]") {
  asio::thread_pool pool(2);
  auto strand = asio::make_strand(pool);
  const auto make = [&] {
    return asio::bind_executor(strand,
                               stub.async_call(&service::Echo, request("one of many"), asio::deferred));
  };
  std::vector<decltype(make())> operations;
  constexpr std::size_t count = 16;
  for (std::size_t i = 0; i < count; ++i) operations.push_back(make());
  std::promise<std::size_t> ended;
  experimental::make_parallel_group(std::move(operations))
      .async_wait(experimental::wait_for_all(),
                  asio::bind_executor(strand, [&](std::vector<std::size_t>, std::vector<error_code> codes,
                                                  std::vector<EchoResponse> responses) {
                    std::size_t good = strand.running_in_this_thread() ? 0 : 1000;
                    for (std::size_t i = 0; i < responses.size(); ++i)
                      if (!codes[i] && responses[i].message() == "one of many") ++good;
                    ended.set_value(good);
                  }));
  CHECK(get(ended.get_future()) == count);
  pool.join();  // its executors have work until the last hand-over is over
}

TEST_CASE_METHOD(fixture, "asio traps: a loser in a parallel_group ends at once, or by total at its deadline",
                 "[call]") {
  const bool terminal = GENERATE(true, false);
  controller slow;
  slow.set_timeout(terminal ? 100s : 2s);
  // The quick one is answered after both were sent, since they share a connection.
  std::promise<std::array<error_code, 2>> ended;
  experimental::make_parallel_group(
      asio::bind_executor(mine,
                          stub.async_call(&service::Echo, slow, request("x", for_ever), asio::deferred)),
      asio::bind_executor(mine, stub.async_call(&service::Echo, request("quick"), asio::deferred)))
      .async_wait(experimental::wait_for_one(terminal ? asio::cancellation_type::terminal
                                                      : asio::cancellation_type::total),
                  asio::bind_executor(mine, [&](std::array<std::size_t, 2> order, error_code one,
                                                const EchoResponse&, error_code two, const EchoResponse&) {
                    CHECK(order[0] == 1);
                    ended.set_value({one, two});
                  }));
  mine.run();
  const auto codes = get(ended.get_future());
  CHECK_FALSE(codes[1]);
  CHECK(codes[0] == (terminal ? aborted : error_code(braid::errc::timed_out)));
}

TEST_CASE_METHOD(fixture, "asio traps: a context that is destroyed unwinds a coroutine out of a call",
                 "[call]") {
  struct witness {
    int& ended;
    ~witness() { ++ended; }
  };
  int unwound = 0;
  bool returned = false;
  auto doomed = std::make_unique<braid::runtime>(braid::runtime_options{.loops = 1});
  braid::channel orphan(*doomed);
  orphan.init(server.address(), {.timeout = 100s, .connect_timeout = 100s});
  auto context = std::make_unique<asio::io_context>();
  asio::spawn(
      *context,
      [&](asio::yield_context yield) {
        const witness local{unwound};
        try {
          braid::stub<service>(orphan).async_call(&service::Echo, request("x", for_ever), yield);
          returned = true;
        } catch (const boost::system::system_error&) {
          returned = true;
        }
      },
      [](std::exception_ptr) noexcept {});
  context->poll();
  wait_until([&] { return server.calls() == 1; });
  doomed.reset();   // the call ends, and its handler waits in the context
  context.reset();  // which never runs again
  CHECK(unwound == 1);
  CHECK_FALSE(returned);
}

TEST_CASE_METHOD(fixture, "asio traps: a coroutine of Asio's on our loop cannot make a synchronous call",
                 "[call]") {
  std::promise<error_code> seen;
  asio::spawn(
      rt.get_executor(),
      [&](asio::yield_context yield) {
        error_code ec;
        stub.call(&service::Echo, request(), ec);
        CHECK(stub.async_call(&service::Echo, request("this way"), yield).message() == "this way");
        seen.set_value(ec);
      },
      [](std::exception_ptr) noexcept {});
  CHECK(get(seen.get_future()) == error_code(EPERM, boost::system::system_category()));
  // Off our loops there is nothing to stop: it blocks, as on any thread.
  spawn_here([&](asio::yield_context) {
    CHECK(stub.call(&service::Echo, request("blocks")).message() == "blocks");
  });
}

TEST_CASE_METHOD(fixture, "asio traps: co_spawn passes its cancellation on to the call inside", "[call]") {
  controller control;
  auto body = [&]() -> asio::awaitable<void> {
    co_await stub.async_call(&service::Echo, control, request("x", for_ever), asio::use_awaitable);
  };
  std::exception_ptr thrown;
  asio::co_spawn(mine, body,
                 asio::bind_cancellation_slot(signal.slot(), [&](std::exception_ptr e) { thrown = e; }));
  emit_after(1, asio::cancellation_type::terminal);
  mine.run();
  CHECK(control.result().cause == braid::cancel_cause::user);
  CHECK_THROWS_AS(std::rethrow_exception(thrown), braid::call_error);
}

TEST_CASE_METHOD(fixture, "asio traps: a handler may start the next call with its own slot and memory",
                 "[call]") {
  struct chain {
    using executor_type = asio::io_context::executor_type;
    using cancellation_slot_type = asio::cancellation_slot;
    fixture& all;
    int left;
    error_code& last;
    executor_type get_executor() const noexcept { return all.mine.get_executor(); }
    cancellation_slot_type get_cancellation_slot() const noexcept { return all.signal.slot(); }
    void operator()(error_code ec, const EchoResponse&) {
      last = ec;
      if (ec || left == 0) return;
      const bool at_last = left == 1;
      all.stub.async_call(&service::Echo, at_last ? request("x", for_ever) : request(),
                          chain{all, left - 1, last});
      if (at_last) all.emit_after(10, asio::cancellation_type::terminal);
    }
  };
  error_code last;
  chain{*this, 10, last}({}, {});
  mine.run();
  CHECK(last == aborted);
  CHECK(server.calls() == 10);
}

TEST_CASE_METHOD(fixture, "asio traps: a cancelled coroutine that throws if cancelled starts no further call",
                 "[call]") {
  int sent = 0;
  spawn_here(
      [&](asio::yield_context yield) {
        emit_after(1, asio::cancellation_type::terminal);
        error_code ec;
        stub.async_call(&service::Echo, request("x", for_ever), yield[ec]);
        CHECK(ec == aborted);
        yield.throw_if_cancelled(true);
        CHECK_THROWS_AS(stub.async_call(&service::Echo, request("never sent"), yield),
                        boost::system::system_error);
        yield.throw_if_cancelled(false);  // or the coroutine's return would end the process
        sent = server.calls();
        CHECK(stub.async_call(&service::Echo, request("clean-up"), yield).message() == "clean-up");
      },
      signal.slot());
  CHECK(sent == 1);
  CHECK(server.calls() == 2);
}

TEST_CASE("asio traps: a completion that throws is called once by braid::spawn, and a loop outlives it",
          "[call]") {
  server_test::log_lines log;
  echo_server server;
  braid::runtime rt({.loops = 1, .log = log.sink()});
  braid::channel channel(rt);
  channel.init(server.address(), {.timeout = 100s, .connect_timeout = 100s});
  const braid::stub<service> stub{channel};
  std::atomic<int> by_asio{0};
  std::atomic<int> by_braid{0};
  asio::spawn(
      rt.get_executor(),
      [&](asio::yield_context yield) { stub.async_call(&service::Echo, request("x"), yield); },
      [&](std::exception_ptr) {
        if (++by_asio == 1) throw std::runtime_error("once is enough");
      });
  braid::spawn(
      rt, [&](braid::yield_context yield) { stub.async_call(&service::Echo, request("x"), yield); },
      [&](error_code) {
        ++by_braid;
        throw std::runtime_error("told of an end");
      });
  wait_until([&] { return log.count("told of an end") == 1 && by_asio >= 1; });
  CHECK(stub.call(&service::Echo, request("still here")).message() == "still here");
  CHECK(by_braid == 1);
  CHECK(server.calls() == 3);
}

TEST_CASE_METHOD(fixture,
                 "asio traps: calls that fail at once do not end a parallel_group that still launches",
                 "[call]") {
  const bool all = GENERATE(true, false);
  braid::channel unset(rt);
  const braid::stub<service> nowhere{unset};
  constexpr std::size_t count = 16;
  std::promise<std::vector<error_code>> ended;
  asio::post(rt.get_executor(), [&] {
    const auto make = [&] {
      return asio::bind_executor(rt.get_executor(),
                                 nowhere.async_call(&service::Echo, request("x"), asio::deferred));
    };
    std::vector<decltype(make())> operations;
    for (std::size_t i = 0; i < count; ++i) operations.push_back(make());
    auto group = experimental::make_parallel_group(std::move(operations));
    const auto wait = [&](auto condition) {
      group.async_wait(
          condition,
          asio::bind_executor(rt.get_executor(),
                              [&ended](std::vector<std::size_t>, std::vector<error_code> codes,
                                       std::vector<EchoResponse>) { ended.set_value(std::move(codes)); }));
    };
    if (all) {
      wait(experimental::wait_for_all());
    } else {
      wait(experimental::wait_for_one_error());
    }
  });
  const auto codes = get(ended.get_future());
  CHECK(codes == std::vector<error_code>(count, {EINVAL, boost::system::system_category()}));
}
