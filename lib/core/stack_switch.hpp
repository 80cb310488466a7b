#pragma once

#include "core/exception_state.hpp"
#include "core/stack_pool.hpp"

#include <boost/context/fiber.hpp>

#include <cstddef>
#include <memory>
#include <new>
#include <utility>

namespace braid::core {

/// One coroutine's line of execution: where it is suspended, or who resumed it.
///
/// Control is asymmetric: resume() runs the coroutine until it suspends or ends, suspend() goes back to the
/// caller of resume(). Each side keeps its own exceptions in flight. Nothing here allocates. Whoever resumes
/// decides the thread: a loop's own, always the same; on a lent context, the one that runs it then.
///
/// A suspended coroutine is never unwound from outside: destroying this object while it is suspended leaves
/// its frames as they are, and the stack must then not be reused. The object may lie on the stack itself, in
/// a block cut off with carve().
class stack_switch {
 public:
  stack_switch() noexcept = default;
  stack_switch(const stack_switch&) = delete;
  stack_switch& operator=(const stack_switch&) = delete;

  /// Prepares `entry(argument)` to run on `stack` at the first resume(). `entry` must not throw. The stack
  /// stays the caller's: release it once finished() says so. Call it once, or again after the end.
  void create(const stack_pool::stack& stack, void (*entry)(void*), void* argument);

  /// Runs the coroutine until it suspends or ends. Not from the coroutine itself, not after its end.
  void resume() {
    const auto globals = exception_state::of_thread();
    exceptions_.exchange(globals);
    fiber back = std::move(*peer()).resume();
    exceptions_.exchange(globals);
    if (back) {
      keep(std::move(back));
    } else {
      finished_ = true;
    }
  }

  /// Goes back to the caller of resume(); returns at the next one. From inside the coroutine only.
  void suspend() { keep(std::move(*peer()).resume()); }

  /// Whether the entry has returned. From then on nothing is left on the stack.
  bool finished() const noexcept { return finished_; }

 private:
  using fiber = boost::context::fiber;

  // ~fiber of a suspended coroutine throws into it, so the fiber has no destructor call here: resuming
  // empties it, and one that has ended is destroyed as the local of resume().
  fiber* peer() noexcept { return std::launder(reinterpret_cast<fiber*>(peer_)); }
  void keep(fiber&& other) noexcept { std::construct_at(peer(), std::move(other)); }

  // The coroutine while it is suspended, the caller of resume() while it runs.
  alignas(fiber) std::byte peer_[sizeof(fiber)];
  exception_state exceptions_;
  bool finished_ = false;
};

}  // namespace braid::core
