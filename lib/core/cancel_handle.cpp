#include "core/cancel_handle.hpp"

#include "core/loop.hpp"
#include "core/runtime_core.hpp"

namespace braid::detail {

void cancel_handle::bind(cancel_node& node, core::loop& home) noexcept {
  cancel_cause earlier;
  {
    const std::lock_guard lock(mutex_);
    node_ = &node;
    home_ = &home;
    keep_ = home.owner().shared_from_this();
    earlier = requested_;
  }
  if (earlier != cancel_cause::none) node.cancel(earlier);
}

void cancel_handle::release() noexcept {
  std::shared_ptr<core::runtime_core> released;
  const std::lock_guard lock(mutex_);
  node_ = nullptr;
  home_ = nullptr;
  released = std::move(keep_);
}

void cancel_handle::request(cancel_cause cause) noexcept {
  const std::lock_guard lock(mutex_);
  if (requested_ != cancel_cause::none) return;
  requested_ = cause;
  if (!home_) return;
  // Posted also on the node's own loop: the caller may be inside an emit, or hold a lock of its own.
  home_->post([self = shared_from_this()] {
    cancel_node* node;
    cancel_cause cause;
    {
      const std::lock_guard lock_again(self->mutex_);
      node = self->node_;
      cause = self->requested_;
    }
    if (node) node->cancel(cause);
  });
}

bool cancel_handle::requested() const noexcept {
  const std::lock_guard lock(mutex_);
  return requested_ != cancel_cause::none;
}

std::shared_ptr<cancel_handle> make_cancel_handle() { return std::make_shared<cancel_handle>(); }

void request_cancel(const std::shared_ptr<cancel_handle>& handle) noexcept {
  handle->request(cancel_cause::user);
}

}  // namespace braid::detail
