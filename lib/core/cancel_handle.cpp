#include "core/cancel_handle.hpp"

#include "core/call_scope.hpp"
#include "core/loop.hpp"
#include "core/runtime_core.hpp"

#include <utility>

namespace braid::detail {

void cancel_handle::bind(cancel_node& node, core::loop& home, total_cancel total) noexcept {
  cancel_cause earlier;
  {
    const std::lock_guard lock(mutex_);
    node_ = &node;
    home_ = &home;
    total_ = total;
    keep_ = home.owner().shared_from_this();
    earlier = requested_;
  }
  if (earlier != cancel_cause::none) node.cancel(earlier);
}

void cancel_handle::release() noexcept {
  std::shared_ptr<core::runtime_core> released;
  std::function<void(cancel_cause)> unused;
  const std::lock_guard lock(mutex_);
  unused.swap(told_);
  node_ = nullptr;
  home_ = nullptr;
  ended_ = true;
  released = std::move(keep_);
}

void cancel_handle::request(cancel_cause cause, cancel_extent extent) noexcept {
  std::function<void(cancel_cause)> told;
  {
    const std::lock_guard lock(mutex_);
    if (ended_ || requested_ != cancel_cause::none) return;
    // Before the start nothing was sent; later, only the node's loop can tell.
    if (extent == cancel_extent::whatever_was_done || !home_) requested_ = cause;
    // Posted also on the node's own loop: the caller may be inside an emit, or hold a lock of its own.
    if (home_) home_->post([self = shared_from_this(), cause, extent] { self->carry_out(cause, extent); });
    if (requested_ != cancel_cause::none) told.swap(told_);
  }
  if (told) told(cause);
}

void cancel_handle::watch(std::function<void(cancel_cause)> told) {
  cancel_cause earlier;
  {
    const std::lock_guard lock(mutex_);
    if (ended_) return;
    earlier = requested_;
    if (earlier == cancel_cause::none) told_ = std::move(told);
  }
  if (earlier != cancel_cause::none) told(earlier);
}

void cancel_handle::carry_out(cancel_cause cause, cancel_extent extent) noexcept {
  cancel_node* node;
  bool only_if_unsent;
  {
    const std::lock_guard lock(mutex_);
    node = node_;
    only_if_unsent = extent == cancel_extent::only_if_unsent && total_ == total_cancel::while_unsent;
  }
  if (node && !(only_if_unsent && node->anything_sent())) node->cancel(cause);
}

bool cancel_handle::ended() const noexcept {
  const std::lock_guard lock(mutex_);
  return ended_;
}

std::shared_ptr<cancel_handle> make_cancel_handle() { return std::make_shared<cancel_handle>(); }

// A slot that is emitted since the server call around it was cancelled passes that cause on.
void request_cancel(const std::shared_ptr<cancel_handle>& handle, cancel_extent extent) noexcept {
  core::call_scope* const scope = core::call_scope::current();
  const cancel_cause outer = scope ? scope->cause() : cancel_cause::none;
  handle->request(outer != cancel_cause::none ? outer : cancel_cause::user, extent);
}

}  // namespace braid::detail
