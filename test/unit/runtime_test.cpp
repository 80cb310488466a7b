#include "core/loop.hpp"
#include "core/run_on.hpp"
#include "core/runtime_core.hpp"
#include "coroutine_fixture.hpp"
#include "unit/child_process.hpp"

#include <boost/asio/bind_executor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <catch2/catch.hpp>

#include <atomic>
#include <memory>
#include <optional>
#include <random>

using namespace std::chrono_literals;
using namespace coroutine_fixture;
using child_process::in_own_process;

TEST_CASE("runtime: destroyed right after its construction") {
  for (int i = 0; i < 50; ++i) braid::runtime rt({.loops = 3});
  CHECK(braid::runtime().loop_count() >= 1);
}

TEST_CASE("runtime: several at once, each with its own loops") {
  braid::runtime a({.loops = 2});
  braid::runtime b({.loops = 2});
  const auto thread_of = [](braid::runtime& rt) {
    return get(braid::spawn(
        rt, [](yield_context) { return std::this_thread::get_id(); }, asio::use_future));
  };
  CHECK(thread_of(a) != thread_of(b));
  const int both = get(braid::spawn(
      a,
      [&](yield_context yield) {
        return braid::spawn(
            b,
            [&](yield_context far) {
              return braid::spawn(
                  a, [](yield_context) { return 2; }, far);
            },
            yield);
      },
      asio::use_future));
  CHECK(both == 2);
}

TEST_CASE("shutdown: suspended coroutines are cancelled and joined") {
  std::atomic<int> ended{0};
  std::atomic<int> with_cause{0};
  {
    braid::runtime rt({.loops = 2});
    std::promise<void> all_wait;
    std::atomic<int> waiting{0};
    for (int i = 0; i < 100; ++i) {
      asio::post(rt.loop_executor(static_cast<std::size_t>(i % 2)), [&, i] {
        braid::spawn(rt, [&, i](yield_context self) {
          if (++waiting == 100) all_wait.set_value();
          error_code ec;
          if (i % 4 < 2) {
            asio::steady_timer(self.get_executor(), 1h).async_wait(self[ec]);
          } else {
            braid::sleep_for(1h, self[ec]);
          }
          if (ec == aborted && self.cancelled() == braid::cancel_cause::shutdown) ++with_cause;
          ++ended;
        });
      });
    }
    get(all_wait.get_future());
  }
  CHECK(ended == 100);
  CHECK(with_cause == 100);
}

TEST_CASE("shutdown: catch-all around a suspension survives it") {
  int caught = 0;
  bool cleaned = false;
  {
    braid::runtime rt({.loops = 1});
    std::promise<void> waits;
    braid::spawn(rt, [&](yield_context self) {
      waits.set_value();
      for (int i = 0; i < 40; ++i) {
        try {
          braid::sleep_for(1h, self);
        } catch (...) {
          ++caught;
        }
      }
      const braid::shield guard(self, 1h);
      braid::sleep_for(1ms, self);
      cleaned = true;
    });
    get(waits.get_future());
  }
  CHECK(caught == 40);
  CHECK(cleaned);
}

TEST_CASE("shutdown: a coroutine that ignores it is named in the log each second") {
  log_lines lines;
  std::atomic<bool> stubborn{true};
  std::promise<void> waits;
  std::optional<braid::runtime> rt;
  rt.emplace(braid::runtime_options{.loops = 1, .log = lines.sink()});
  braid::spawn(*rt, [&](yield_context self) {
    waits.set_value();
    const braid::shield guard(self, 1h);
    while (stubborn) braid::sleep_for(2ms, self);
  });
  get(waits.get_future());
  std::thread destroyer([&] { rt.reset(); });
  lines.wait_for("runtime_test.cpp", 2);
  stubborn = false;
  destroyer.join();
  CHECK(lines.count("waits for 1") == lines.all().size());
}

TEST_CASE("shutdown: a blocked loop is reported too") {
  log_lines lines;
  std::optional<braid::runtime> rt;
  rt.emplace(braid::runtime_options{.loops = 1, .log = lines.sink()});
  std::promise<void> blocks;
  std::promise<void> release;
  asio::post(rt->get_executor(), [&] {
    blocks.set_value();
    get(release.get_future());
  });
  get(blocks.get_future());
  std::thread destroyer([&] { rt.reset(); });
  lines.wait_for("does not answer", 1);
  release.set_value();
  destroyer.join();
  CHECK(lines.count("does not answer") >= 1);
}

TEST_CASE("shutdown: destroying a runtime on its own loop aborts with a message") {
  const auto destroy_on_loop = [](bool in_coroutine) {
    return in_own_process([in_coroutine] {
      auto* rt = new braid::runtime({.loops = 1});
      std::promise<void> never;
      if (in_coroutine) {
        braid::spawn(*rt, [rt](yield_context) { delete rt; });
      } else {
        asio::post(rt->get_executor(), [rt] { delete rt; });
      }
      never.get_future().wait();
    });
  };
  for (const bool in_coroutine : {false, true}) {
    const auto [status, text] = destroy_on_loop(in_coroutine);
    CHECK((WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT));
    CHECK(text.find("must not be destroyed on one of its own loops") != std::string::npos);
  }
}

TEST_CASE("shutdown: spawn after stop is refused with 125, from any thread") {
  braid::runtime rt({.loops = 2});
  rt.stop();
  rt.stop();
  int started = 0;
  const auto spawned = [&](auto token) {
    return braid::spawn(
        rt, [&](yield_context) { ++started; }, token);
  };
  std::promise<error_code> told;
  spawned([&](error_code ec) { told.set_value(ec); });
  CHECK(get(told.get_future()) == aborted);
  std::promise<error_code> told_on_loop;
  asio::post(rt.loop_executor(1), [&] { spawned([&](error_code ec) { told_on_loop.set_value(ec); }); });
  CHECK(get(told_on_loop.get_future()) == aborted);
  CHECK(started == 0);
}

TEST_CASE("shutdown: stop from within a loop, destruction elsewhere") {
  for (int i = 0; i < 20; ++i) {
    braid::runtime rt({.loops = 2});
    error_code refused_here;
    get(braid::spawn(
        rt,
        [&](yield_context self) {
          rt.stop();
          braid::spawn(
              rt, [](yield_context) {}, self[refused_here]);
          error_code ec;
          braid::sleep_for(1h, self[ec]);
          rt.stop();
        },
        asio::use_future));
    CHECK(refused_here == aborted);
  }
}

TEST_CASE("shutdown: a coroutine spawned while its loop stops is cancelled at once") {
  braid::cancel_cause cause{};
  {
    braid::runtime rt({.loops = 1});
    std::promise<void> waits;
    braid::spawn(rt, [&](yield_context self) {
      waits.set_value();
      error_code ec;
      braid::sleep_for(1h, self[ec]);
      braid::spawn(self, [&](yield_context child) { cause = child.cancelled(); });
    });
    get(waits.get_future());
  }
  CHECK(cause == braid::cancel_cause::shutdown);
}

TEST_CASE("shutdown: a loop keeps working while a coroutine of another loop needs it") {
  bool hopped = false;
  {
    braid::runtime rt({.loops = 2});
    std::promise<void> waits;
    asio::post(rt.loop_executor(1), [&] {
      braid::spawn(rt, [&](yield_context self) {
        waits.set_value();
        error_code ec;
        braid::sleep_for(1h, self[ec]);
        const braid::shield guard(self, 1h);
        braid::sleep_for(20ms, self);  // loop 0 has long had nothing left to do
        asio::post(rt.loop_executor(0), self);
        hopped = rt.core()->at(0).post([] {});
      });
    });
    get(waits.get_future());
  }
  CHECK(hopped);
}

TEST_CASE("shutdown: posts to a stopped runtime are refused") {
  std::shared_ptr<braid::core::runtime_core> core;
  {
    braid::runtime rt({.loops = 2});
    core = rt.core();
    CHECK(core->at(0).post([] {}));
  }
  bool ran = false;
  CHECK_FALSE(core->at(0).post([&] { ran = true; }));
  CHECK_FALSE(core->at(1).post([&] { ran = true; }));
  core.reset();
  CHECK_FALSE(ran);
}

TEST_CASE("shutdown: what only waits in a loop is destroyed, even where it owns what owns the loop") {
  std::weak_ptr<braid::core::runtime_core> watched;
  bool called = false;
  {
    braid::runtime rt({.loops = 1});
    watched = rt.core();
    auto timer = std::make_shared<asio::steady_timer>(rt.get_executor(), 1h);
    timer->async_wait([timer, core = rt.core(), &called](error_code) { called = true; });
  }
  CHECK(watched.expired());
  CHECK_FALSE(called);
}

TEST_CASE("shutdown: two runtimes that spawn on each other end, whoever goes first") {
  for (int round = 0; round < 40; ++round) {
    std::atomic<int> open{0};
    {
      std::optional<braid::runtime> a;
      std::optional<braid::runtime> b;
      a.emplace(braid::runtime_options{.loops = 2});
      b.emplace(braid::runtime_options{.loops = 2});
      const auto chatter = [&open](braid::runtime& own, braid::runtime& other) {
        ++open;
        braid::spawn(
            own,
            [&](yield_context self) {
              error_code ec;
              while (self.cancelled() == braid::cancel_cause::none) {
                braid::spawn(
                    other, [](yield_context far) { asio::post(far.get_executor(), far); }, self[ec]);
              }
            },
            [&open](error_code) { --open; });
      };
      for (int i = 0; i < 4; ++i) {
        chatter(*a, *b);
        chatter(*b, *a);
      }
      // Both must live until neither is used any more.
      a->stop();
      if (round % 2 == 0) b->stop();
      std::thread other([&] { b->stop(); });
      other.join();
      while (open != 0) std::this_thread::yield();
    }
    CHECK(open == 0);
  }
}

TEST_CASE("shutdown: brute force over the step at which a scenario is abandoned") {
  // A parent with children that sleep, wait for timers, for one another, and in shields, torn down after each
  // number of steps; then whatever was started must have ended, and all told exactly once.
  constexpr int last_step = 60;
  int complete_runs = 0;
  for (int abandon_at = 0; abandon_at <= last_step; ++abandon_at) {
    std::atomic<int> steps{0};
    std::atomic<int> alive{0};
    std::atomic<int> told{0};
    bool complete = false;
    {
      braid::runtime rt({.loops = 1, .log = [](auto, auto, auto) {}});
      std::promise<void> reached;
      const auto step = [&] {
        if (++steps == abandon_at) reached.set_value();
      };
      struct counted {
        explicit counted(std::atomic<int>& c) : count(c) { ++count; }
        ~counted() { --count; }
        std::atomic<int>& count;
      };
      const auto child = [&](yield_context self, int kind) {
        const counted here(alive);
        step();
        asio::post(self.get_executor(), self);
        step();
        if (kind == 0) braid::sleep_for(1ms, self);
        if (kind == 1) asio::steady_timer(self.get_executor(), 1ms).async_wait(self);
        if (kind == 2)
          braid::spawn(
              self,
              [&](yield_context below) {
                asio::post(below.get_executor(), below);
                step();
              },
              self);
        step();
        try {
          braid::sleep_for(0ms, self);
          throw std::runtime_error("to be caught");
        } catch (...) {
          const braid::shield guard(self, 50ms);
          error_code ec;
          braid::sleep_for(1ms, self[ec]);
        }
        step();
      };
      braid::spawn(
          rt,
          [&](yield_context self) {
            const counted here(alive);
            for (int i = 0; i < 9; ++i) {
              step();
              braid::spawn(
                  self, [&child, i](yield_context below) { child(below, i % 3); },
                  [&](error_code) { ++told; });
              if (i % 2 == 0) braid::sleep_for(1ms, self);
            }
            while (told < 9) asio::post(self.get_executor(), self);
            complete = true;
          },
          [&](error_code) {
            ++told;
            if (steps < abandon_at) reached.set_value();
          });
      if (abandon_at > 0) get(reached.get_future());
    }
    CHECK(alive == 0);
    if (complete) {
      ++complete_runs;
      CHECK(told == 10);
    }
  }
  CHECK(complete_runs > 0);
}

TEST_CASE("loop timers: never early, in order of their time, those of one tick in order of arming") {
  braid::runtime rt({.loops = 1, .seed = 5});
  braid::core::loop& loop = rt.core()->at(0);
  struct timed : braid::core::timer_node {
    timed() : timer_node(&timed::fire) {}
    static void fire(timer_node& node) {
      auto& self = static_cast<timed&>(node);
      self.early = self.loop->now() < self.due;
      self.order->push_back(&self);
      if (self.order->size() == self.expected) self.all->set_value();
    }
    braid::core::loop* loop = nullptr;
    braid::core::time_point due;
    std::vector<timed*>* order = nullptr;
    std::size_t expected = 0;
    std::promise<void>* all = nullptr;
    bool early = false;
  };
  std::vector<timed> timers(200);
  std::vector<timed*> order;
  std::promise<void> all;
  std::mt19937 random(7);
  CHECK(loop.post([&] {
    const auto start = loop.now();
    for (auto& timer : timers) {
      timer.loop = &loop;
      timer.due = start + std::chrono::microseconds(random() % 20'000);
      timer.order = &order;
      timer.expected = timers.size();
      timer.all = &all;
      loop.arm(timer, timer.due);
    }
  }));
  get(all.get_future());
  CHECK(order.size() == timers.size());
  bool sorted = true;
  bool early = false;
  for (std::size_t i = 1; i < order.size(); ++i) {
    const auto& a = *order[i - 1];
    const auto& b = *order[i];
    sorted = sorted && (a.expiry() < b.expiry() || (a.expiry() == b.expiry() && &a < &b));
  }
  for (const auto& timer : timers) early = early || timer.early;
  CHECK(sorted);
  CHECK_FALSE(early);
}

TEST_CASE("loop: a chain of wake-ups without end keeps nothing else from running, and its order") {
  braid::runtime rt({.loops = 1});
  braid::core::loop& loop = rt.core()->at(0);
  struct again : braid::core::ready_node {
    again() : ready_node(&again::run_again) {}
    static void run_again(braid::core::ready_node& node) noexcept {
      auto& self = static_cast<again&>(node);
      if (self.order->size() < 10'000) self.order->push_back(self.name);
      if (!*self.over) self.loop->make_ready(self);
    }
    braid::core::loop* loop = nullptr;
    std::string* order = nullptr;
    const bool* over = nullptr;
    char name = 0;
  };
  struct flush final : braid::core::turn_end_hook {
    void at_turn_end() noexcept override { done.set_value(); }
    std::promise<void> done;
  };
  std::string order;
  bool over = false;
  again nodes[3];
  flush hook;
  std::promise<void> started;
  CHECK(loop.post([&] {
    for (char name = 'a'; again & each : nodes) {
      each.loop = &loop;
      each.order = &order;
      each.over = &over;
      each.name = name++;
      loop.make_ready(each);
    }
    loop.at_turn_end(hook);
    started.set_value();
  }));
  get(started.get_future());
  get(hook.done.get_future());
  get(braid::spawn(
      rt, [](yield_context self) { braid::sleep_for(5ms, self); }, asio::use_future));
  CHECK(loop.post([&] { over = true; }));
  get(braid::spawn(
      rt, [](yield_context) {}, asio::use_future));
  std::string wanted;
  while (wanted.size() < order.size()) wanted += "abc"[wanted.size() % 3];
  CHECK(order.size() > 300);
  CHECK(order == wanted);
}

TEST_CASE("loop: a program's handler that throws is logged, and the loop goes on") {
  log_lines lines;
  braid::runtime rt({.loops = 1, .log = lines.sink()});
  asio::post(rt.get_executor(), [] { throw std::runtime_error("plain"); });
  asio::post(rt.get_executor(), [] { throw 5; });
  braid::spawn(
      rt, [](yield_context) {}, [](error_code) { throw std::runtime_error("told of an end"); });
  braid::spawn(
      rt, [](yield_context) {}, asio::bind_executor(asio::any_io_executor(rt.get_executor()), [](error_code) {
        throw std::runtime_error("told by dispatch");
      }));
  for (const char* text :
       {"threw: plain", "no std::exception", "threw: told of an end", "threw: told by dispatch"})
    lines.wait_for(text, 1);
  CHECK(get(braid::spawn(
            rt, [](yield_context) { return 1; }, asio::use_future)) == 1);
  CHECK(lines.count("error: a handler on loop 0 threw: ") == 4);
}

TEST_CASE("run_on: what the function throws is thrown to who waits for it, on whatever thread") {
  log_lines lines;
  braid::runtime rt({.loops = 1, .log = lines.sink()});
  auto& home = rt.core()->at(0);
  CHECK_THROWS_AS(braid::core::run_on(home, [] { throw std::bad_alloc(); }), std::bad_alloc);
  bool ran = false;
  CHECK(braid::core::run_on(home, [&] {
    CHECK_THROWS_AS(braid::core::run_on(home, [] { throw std::bad_alloc(); }), std::bad_alloc);
    ran = true;
  }));
  CHECK(ran);
  CHECK(lines.all().empty());
}
