#pragma once

#include <braid/cancellation.hpp>
#include <braid/completion.hpp>

#include <functional>
#include <memory>
#include <mutex>

namespace braid::core {
class loop;
class runtime_core;
}  // namespace braid::core

namespace braid::detail {

/// What a `total` request does to the node.
enum class total_cancel : bool {
  always,        ///< The same as any other.
  while_unsent,  ///< Cancels while nothing below the node was sent, else nothing.
};

class cancel_handle : public std::enable_shared_from_this<cancel_handle> {
 public:
  /// On the node's loop: from now on requests reach `node`; one that came earlier does so at once.
  void bind(cancel_node& node, core::loop& home, total_cancel total = total_cancel::always) noexcept;
  /// On the node's loop: the node has ended, and requests have no effect any more.
  void release() noexcept;
  /// From any thread. Idempotent.
  void request(cancel_cause cause, cancel_extent extent = cancel_extent::whatever_was_done) noexcept;
  /// Calls `told` once there was a request that counts, also an earlier one, on the thread that makes it; at
  /// most once, and not after the node has ended. One at a time.
  void watch(std::function<void(cancel_cause)> told);
  /// Whether release() was called.
  bool ended() const noexcept;

 private:
  void carry_out(cancel_cause cause, cancel_extent extent) noexcept;

  mutable std::mutex mutex_;
  cancel_node* node_ = nullptr;
  core::loop* home_ = nullptr;
  std::shared_ptr<core::runtime_core> keep_;
  cancel_cause requested_ = cancel_cause::none;
  total_cancel total_ = total_cancel::always;
  std::function<void(cancel_cause)> told_;
  bool ended_ = false;
};

}  // namespace braid::detail
