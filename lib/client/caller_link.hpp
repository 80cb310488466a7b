#pragma once

#include <braid/cancellation.hpp>

#include "core/cancel_handle.hpp"
#include "core/coroutine.hpp"
#include "core/loop.hpp"

#include <memory>

namespace braid::client {

/// Below a coroutine, the place of a call that it starts on a loop of another runtime: passes its
/// cancellation on to the call, whether it waits for that or not.
class caller_link {
 public:
  /// On the coroutine's loop.
  explicit caller_link(detail::coroutine& caller);
  caller_link(const caller_link&) = delete;
  caller_link& operator=(const caller_link&) = delete;
  /// On any thread.
  ~caller_link();

  /// On the call's loop, from its start to its end. May cancel `call` at once.
  void attach(cancel_node& call, core::loop& home) noexcept { handle_->bind(call, home); }
  void release() noexcept { handle_->release(); }

 private:
  class place;

  core::loop& home_;
  const std::shared_ptr<core::runtime_core> keep_home_;
  const std::shared_ptr<detail::cancel_handle> handle_;
  std::unique_ptr<place> place_;
};

}  // namespace braid::client
