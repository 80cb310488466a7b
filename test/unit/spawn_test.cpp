#include "coroutine_fixture.hpp"

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <catch2/catch.hpp>

#include <atomic>
#include <memory>
#include <set>

using namespace std::chrono_literals;
using namespace coroutine_fixture;

TEST_CASE("spawn: from a foreign thread it goes to one and the same loop") {
  braid::runtime rt({.loops = 4});
  const auto where = [&] {
    return get(braid::spawn(
        rt, [](yield_context) { return std::this_thread::get_id(); }, asio::use_future));
  };
  const auto first = where();
  for (int i = 0; i < 50; ++i) CHECK(where() == first);
  CHECK(first != std::this_thread::get_id());
}

TEST_CASE("spawn: on a loop it stays there, and starts after the caller") {
  braid::runtime rt({.loops = 4});
  for (std::size_t i = 0; i < 4; ++i) {
    std::promise<bool> result;
    asio::post(rt.loop_executor(i), [&] {
      const auto here = std::this_thread::get_id();
      auto started = std::make_shared<bool>(false);
      braid::spawn(rt, [&, here, started](yield_context) {
        *started = true;
        result.set_value(std::this_thread::get_id() == here);
      });
      if (*started) result.set_exception(std::make_exception_ptr(std::runtime_error("ran inside spawn")));
    });
    CHECK(get(result.get_future()));
  }
}

TEST_CASE("spawn: the token's handler runs on its own executor") {
  braid::runtime rt({.loops = 1});
  asio::thread_pool threads(1);
  const auto thread =
      get(asio::post(threads, std::packaged_task<std::thread::id()>(std::this_thread::get_id)));
  std::promise<std::thread::id> told;
  braid::spawn(
      rt, [](yield_context) {},
      asio::bind_executor(threads, [&](error_code) { told.set_value(std::this_thread::get_id()); }));
  CHECK(get(told.get_future()) == thread);
  threads.join();  // until the loop has let go of its executor
}

TEST_CASE("spawn: functions, results and handlers may be move-only") {
  braid::runtime rt({.loops = 1});
  std::promise<int> told;
  braid::spawn(
      rt, [in = std::make_unique<int>(4)](yield_context) { return std::make_unique<int>(*in + 1); },
      [&, extra = std::make_unique<int>(1)](error_code, std::unique_ptr<int> out) {
        told.set_value(*out + *extra);
      });
  CHECK(get(told.get_future()) == 6);
}

TEST_CASE("spawn: a capture may ask for more than the usual alignment") {
  struct alignas(128) wide {
    char bytes[128];
  };
  braid::runtime rt({.loops = 1});
  const bool aligned = get(braid::spawn(
      rt, [w = wide{}](yield_context) { return reinterpret_cast<std::uintptr_t>(&w) % alignof(wide) == 0; },
      asio::use_future));
  CHECK(aligned);
}

TEST_CASE("spawn: without memory for a stack the token gets ENOMEM, and others are unharmed") {
  in_coroutine([](yield_context) {});
  log_lines lines;
  braid::runtime rt({.loops = 1, .max_coroutines = 2, .log = lines.sink()});
  get(braid::spawn(
      rt,
      [&](yield_context yield) {
        const error_code no_memory(ENOMEM, boost::system::system_category());
        const auto waits = [](yield_context self) {
          error_code ec;
          braid::sleep_for(1h, self[ec]);
        };
        error_code ec;
        asio::cancellation_signal stop;
        int ended = 0;
        braid::spawn(yield, waits, asio::bind_cancellation_slot(stop.slot(), [&](error_code) { ++ended; }));
        braid::spawn(yield, waits, yield[ec]);
        CHECK(ec == no_memory);
        braid::spawn(rt, waits, yield[ec]);
        CHECK(ec == no_memory);
        stop.emit(asio::cancellation_type::terminal);
        while (ended == 0) asio::post(yield.get_executor(), yield);
        CHECK(braid::spawn(
                  yield, [](yield_context) { return 1; }, yield) == 1);
      },
      asio::use_future));
}

TEST_CASE("spawn: a child starts when its parent suspends, in order") {
  in_coroutine([](yield_context yield) {
    std::string order;
    for (const char name : {'a', 'b', 'c'}) braid::spawn(yield, [&, name](yield_context) { order += name; });
    order += '|';
    asio::post(yield.get_executor(), yield);
    CHECK(order == "|abc");
  });
}

TEST_CASE("spawn: the deadline of the parent is the child's, a shield's limit inside it") {
  in_coroutine([](yield_context yield) {
    CHECK(yield.deadline() == std::chrono::steady_clock::time_point::max());
    const auto before = yield.now();
    {
      const braid::shield outer(yield, 1h);
      const auto limit = yield.deadline();
      CHECK(limit >= before + 1h);
      const braid::shield inner(yield, 2h);
      CHECK(yield.deadline() == limit);
    }
    CHECK(yield.deadline() == std::chrono::steady_clock::time_point::max());
  });
}

TEST_CASE("spawn: many at once from many threads all run once") {
  braid::runtime rt({.loops = 2});
  constexpr int threads = 4;
  constexpr int each = 500;
  std::atomic<int> ran{0};
  std::atomic<int> told{0};
  std::promise<void> all;
  std::vector<std::thread> callers;
  for (int t = 0; t < threads; ++t) {
    callers.emplace_back([&] {
      for (int i = 0; i < each; ++i) {
        braid::spawn(
            rt,
            [&](yield_context self) {
              asio::post(self.get_executor(), self);
              ++ran;
            },
            [&](error_code) {
              if (++told == threads * each) all.set_value();
            });
      }
    });
  }
  for (auto& caller : callers) caller.join();
  get(all.get_future());
  CHECK(ran == threads * each);
}
