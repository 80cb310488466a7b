#include "core/stack_switch.hpp"

#include <catch2/catch.hpp>

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

using braid::core::carve;
using braid::core::contains;
using braid::core::stack_pool;
using braid::core::stack_switch;

namespace {

// A coroutine with its stack; the body gets the switch to suspend with.
class routine {
 public:
  routine(stack_pool& pool, std::function<void(stack_switch&)> body) : pool_(pool), body_(std::move(body)) {
    stack_ = pool_.allocate();
    REQUIRE(stack_);
    switch_.create(
        stack_, [](void* self) { static_cast<routine*>(self)->run(); }, this);
  }

  ~routine() {
    if (switch_.finished()) pool_.release(stack_);
  }

  routine(const routine&) = delete;
  routine& operator=(const routine&) = delete;

  void resume() { switch_.resume(); }
  bool finished() const { return switch_.finished(); }
  const stack_pool::stack& stack() const { return stack_; }

 private:
  void run() { body_(switch_); }

  stack_pool& pool_;
  std::function<void(stack_switch&)> body_;
  stack_pool::stack stack_;
  stack_switch switch_;
};

[[gnu::noinline]] int recurse(int depth) {
  volatile char frame[512];
  frame[0] = static_cast<char>(depth);
  if (depth == 1'000'000) return 0;
  return recurse(depth + 1) + frame[0];
}

}  // namespace

TEST_CASE("a coroutine runs only while it is resumed", "[core][stack_switch]") {
  stack_pool pool;
  std::string trace;
  {
    routine r(pool, [&](stack_switch& self) {
      for (char c = 'a'; c != 'e'; ++c) {
        trace += c;
        self.suspend();
      }
    });
    CHECK(trace.empty());
    for (int i = 0; i < 4; ++i) {
      trace += '>';
      r.resume();
      CHECK_FALSE(r.finished());
    }
    r.resume();
    CHECK(r.finished());
    CHECK(trace == ">a>b>c>d");
    CHECK(pool.stats().live == 1);
  }
  CHECK(pool.stats().live == 0);
}

TEST_CASE("a coroutine runs on its own stack", "[core][stack_switch]") {
  stack_pool pool;
  bool on_own = false;
  const stack_pool::stack* own = nullptr;
  routine r(pool, [&](stack_switch& self) {
    self.suspend();
    on_own = contains(*own, __builtin_frame_address(0));
  });
  own = &r.stack();
  r.resume();
  CHECK_FALSE(contains(*own, __builtin_frame_address(0)));
  r.resume();
  CHECK(on_own);
}

TEST_CASE("many coroutines keep their locals apart over many turns", "[core][stack_switch]") {
  stack_pool pool;
  std::vector<std::unique_ptr<routine>> routines;
  std::vector<int> sums(300);
  for (int i = 0; i < 300; ++i) {
    routines.push_back(std::make_unique<routine>(pool, [&sums, i](stack_switch& self) {
      int local[100];
      for (int& x : local) x = i;
      int sum = 0;
      for (const int x : local) {
        self.suspend();
        sum += x;
      }
      sums[static_cast<std::size_t>(i)] = sum;
    }));
  }
  for (int turn = 0; turn < 101; ++turn) {
    for (auto& r : routines) r->resume();
  }
  for (int i = 0; i < 300; ++i) {
    CHECK(routines[static_cast<std::size_t>(i)]->finished());
    CHECK(sums[static_cast<std::size_t>(i)] == 100 * i);
  }
  routines.clear();
  CHECK(pool.stats().live == 0);
}

TEST_CASE("the control block and the switch may lie on the stack", "[core][stack_switch]") {
  struct block {
    stack_switch control;
    stack_pool::stack whole;
    int turns = 0;
  };
  stack_pool pool;
  const auto whole = pool.allocate();
  const auto cut = carve(whole, sizeof(block), alignof(block));
  REQUIRE(cut.block != nullptr);
  auto* b = new (cut.block) block;
  b->whole = whole;
  b->control.create(
      cut.rest,
      [](void* argument) {
        auto* self = static_cast<block*>(argument);
        while (++self->turns < 3) self->control.suspend();
      },
      b);
  while (!b->control.finished()) b->control.resume();
  CHECK(b->turns == 3);
  b->~block();
  pool.release(whole);
  CHECK(pool.stats().live == 0);
}

TEST_CASE("a switch is ready for another coroutine after the end", "[core][stack_switch]") {
  stack_pool pool;
  const auto stack = pool.allocate();
  stack_switch control;
  int runs = 0;
  for (int i = 0; i < 3; ++i) {
    control.create(
        stack, [](void* argument) { ++*static_cast<int*>(argument); }, &runs);
    CHECK_FALSE(control.finished());
    control.resume();
    CHECK(control.finished());
  }
  CHECK(runs == 3);
  pool.release(stack);
}

TEST_CASE("each thread switches its own coroutines", "[core][stack_switch]") {
  int totals[2] = {0, 0};
  const auto work = [](int& total) {
    stack_pool pool;
    const auto stack = pool.allocate();
    struct state {
      stack_switch control;
      int turns = 0;
    } s;
    s.control.create(
        stack,
        [](void* argument) {
          auto* self = static_cast<state*>(argument);
          for (; self->turns < 1000; ++self->turns) self->control.suspend();
        },
        &s);
    while (!s.control.finished()) s.control.resume();
    total = s.turns;
    pool.release(stack);
  };
  std::thread other([&] { work(totals[1]); });
  work(totals[0]);
  other.join();
  CHECK(totals[0] == 1000);
  CHECK(totals[1] == 1000);
}

TEST_CASE("an exception thrown and caught inside a coroutine", "[core][stack_switch]") {
  stack_pool pool;
  std::string seen;
  routine r(pool, [&](stack_switch& self) {
    for (int i = 0; i < 3; ++i) {
      try {
        throw std::runtime_error("turn " + std::to_string(i));
      } catch (const std::exception& e) {
        seen += e.what();
      }
      self.suspend();
    }
  });
  while (!r.finished()) r.resume();
  CHECK(seen == "turn 0turn 1turn 2");
}

TEST_CASE("a coroutine that overflows its stack dies in the guard", "[core][stack_switch]") {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const rlimit no_core{0, 0};
    ::setrlimit(RLIMIT_CORE, &no_core);
    std::signal(SIGSEGV, SIG_DFL);
    stack_pool pool;
    const auto below = pool.allocate();
    static_cast<void>(below);
    stack_switch control;
    control.create(
        pool.allocate(), [](void*) { recurse(0); }, nullptr);
    control.resume();
    ::_exit(0);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGSEGV);
}
