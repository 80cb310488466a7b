#include "core/exception_state.hpp"

#include "core/stack_pool.hpp"
#include "core/stack_switch.hpp"

#include <catch2/catch.hpp>

#include <exception>
#include <stdexcept>
#include <string>

using braid::core::stack_pool;
using braid::core::stack_switch;

namespace {

// A coroutine that runs T's member run() on a stack of its own.
template <typename T>
class on_stack {
 public:
  on_stack(stack_pool& pool, T& body) : pool_(pool), body_(body), stack_(pool.allocate()) {
    control_.create(
        stack_,
        [](void* argument) {
          auto* self = static_cast<on_stack*>(argument);
          self->body_.run(self->control_);
        },
        this);
  }
  ~on_stack() { pool_.release(stack_); }
  on_stack(const on_stack&) = delete;
  on_stack& operator=(const on_stack&) = delete;

  void resume() { control_.resume(); }
  bool finished() const { return control_.finished(); }

 private:
  stack_pool& pool_;
  T& body_;
  stack_pool::stack stack_;
  stack_switch control_;
};

// Suspends inside a catch block and rethrows afterwards.
struct rethrower {
  std::string text;
  std::string caught;

  void run(stack_switch& control) {
    try {
      try {
        throw std::runtime_error(text);
      } catch (...) {
        control.suspend();
        throw;
      }
    } catch (const std::exception& e) {
      caught = e.what();
    }
  }
};

// Suspends in a destructor while an exception is on its way.
struct unwinder {
  int before = -1;
  int after = -1;
  int handled = -1;

  struct guard {
    unwinder& owner;
    stack_switch& control;
    ~guard() {
      owner.before = std::uncaught_exceptions();
      control.suspend();
      owner.after = std::uncaught_exceptions();
    }
  };

  void run(stack_switch& control) {
    try {
      guard g{*this, control};
      throw std::logic_error("unwinding");
    } catch (const std::logic_error&) {
      handled = std::uncaught_exceptions();
    }
  }
};

// Looks at what it starts with, then at what it has after a suspension.
struct observer {
  bool current[2] = {true, true};
  int uncaught[2] = {-1, -1};

  void run(stack_switch& control) {
    for (int i = 0; i < 2; ++i) {
      current[i] = std::current_exception() != nullptr;
      uncaught[i] = std::uncaught_exceptions();
      if (i == 0) control.suspend();
    }
  }
};

}  // namespace

TEST_CASE("two coroutines suspended in catch blocks rethrow each its own exception",
          "[core][exception_state]") {
  stack_pool pool;
  rethrower first{"first", {}};
  rethrower second{"second", {}};
  const bool first_ends_first = GENERATE(true, false);
  {
    on_stack a(pool, first);
    on_stack b(pool, second);
    a.resume();
    b.resume();
    CHECK(std::current_exception() == nullptr);
    if (first_ends_first) {
      a.resume();
      b.resume();
    } else {
      b.resume();
      a.resume();
    }
    CHECK(a.finished());
    CHECK(b.finished());
  }
  CHECK(first.caught == "first");
  CHECK(second.caught == "second");
}

TEST_CASE("the count of uncaught exceptions is the coroutine's own", "[core][exception_state]") {
  stack_pool pool;
  unwinder unwinding;
  observer watching;
  on_stack a(pool, unwinding);
  on_stack b(pool, watching);
  a.resume();
  CHECK(unwinding.before == 1);
  CHECK(std::uncaught_exceptions() == 0);
  b.resume();
  CHECK(watching.uncaught[0] == 0);
  a.resume();
  CHECK(unwinding.after == 1);
  CHECK(unwinding.handled == 0);
  CHECK(std::uncaught_exceptions() == 0);
  b.resume();
  CHECK(watching.uncaught[1] == 0);
  CHECK(a.finished());
  CHECK(b.finished());
}

TEST_CASE("a coroutine starts with no exception and its resumer keeps its own", "[core][exception_state]") {
  stack_pool pool;
  observer watching;
  rethrower inner{"inner", {}};
  std::string outer;
  {
    on_stack a(pool, watching);
    on_stack b(pool, inner);
    try {
      try {
        throw std::runtime_error("outer");
      } catch (...) {
        a.resume();
        b.resume();
        throw;
      }
    } catch (const std::exception& e) {
      outer = e.what();
      a.resume();
    }
    b.resume();
  }
  CHECK(outer == "outer");
  CHECK(inner.caught == "inner");
  CHECK_FALSE(watching.current[0]);
  CHECK_FALSE(watching.current[1]);
}

#if BOOST_VERSION < 108800
TEST_CASE("exchanging the exceptions of a thread hides them and brings them back",
          "[core][exception_state]") {
  braid::core::exception_state state;
  bool hidden = false;
  std::string again;
  try {
    throw std::runtime_error("kept");
  } catch (...) {
    const auto globals = braid::core::exception_state::of_thread();
    state.exchange(globals);
    hidden = std::current_exception() == nullptr;
    state.exchange(globals);
    try {
      throw;
    } catch (const std::exception& e) {
      again = e.what();
    }
  }
  CHECK(hidden);
  CHECK(again == "kept");
}
#endif
