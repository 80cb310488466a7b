#pragma once

#include <braid/cancellation.hpp>
#include <braid/completion.hpp>

#include <memory>
#include <mutex>

namespace braid::core {
class loop;
class runtime_core;
}  // namespace braid::core

namespace braid::detail {

class cancel_handle : public std::enable_shared_from_this<cancel_handle> {
 public:
  /// On the node's loop: from now on requests reach `node`; one that came earlier does so at once.
  void bind(cancel_node& node, core::loop& home) noexcept;
  /// On the node's loop: the node has ended.
  void release() noexcept;
  /// From any thread. Idempotent.
  void request(cancel_cause cause) noexcept;
  /// Whether a request came before bind().
  bool requested() const noexcept;

 private:
  mutable std::mutex mutex_;
  cancel_node* node_ = nullptr;
  core::loop* home_ = nullptr;
  std::shared_ptr<core::runtime_core> keep_;
  cancel_cause requested_ = cancel_cause::none;
};

}  // namespace braid::detail
