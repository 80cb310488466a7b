#pragma once

#include <braid/coroutine.hpp>
#include <braid/interceptor.hpp>

#include <cstddef>

namespace braid::server_side {

class running_call;

/// The interceptors of a call, and its handler behind them. It lies in the call's own coroutine.
class handler_chain {
 public:
  explicit handler_chain(running_call& call) noexcept : call_(call) {}
  handler_chain(const handler_chain&) = delete;
  handler_chain& operator=(const handler_chain&) = delete;

  running_call& call() const noexcept { return call_; }

  /// Runs the interceptor of that index, or the handler behind the last one.
  void run(std::size_t index, yield_context yield) noexcept;

  /// The handler has answered; on the loop.
  void answered() noexcept;
  /// The interceptors do not wait any more for a handler that has returned, or runs elsewhere, and has not
  /// answered; on the loop.
  void give_up() noexcept;
  /// Whether they went on without the answer of a handler, which has not come yet: its call's error is still
  /// its own, to be written on whatever thread.
  bool gave_up() const noexcept { return left_handler_ && !answered_; }

 private:
  class pause;

  void run_handler(yield_context yield) noexcept;
  void wake() noexcept;

  running_call& call_;
  pause* waiting_ = nullptr;
  bool answered_ = false;
  bool gave_up_ = false;
  bool left_handler_ = false;
};

}  // namespace braid::server_side
