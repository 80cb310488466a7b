#include "core/call_scope.hpp"

#include "core/cancel_handle.hpp"

#include <utility>

namespace braid::core {
namespace {

constinit thread_local call_scope* current_scope = nullptr;

}  // namespace

call_scope::~call_scope() = default;

call_scope* call_scope::current() noexcept { return current_scope; }

call_scope::entered::entered(call_scope* scope) noexcept : outer_(std::exchange(current_scope, scope)) {}
call_scope::entered::~entered() { current_scope = outer_; }

void call_scope::cancel(cancel_cause cause) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (ended_ || cause_ != cancel_cause::none) return;
    cause_ = cause;
    for (scope_link& each : links_) each.handle_->request(cause);
  }
  on_cancel(cause);
}

void call_scope::end() noexcept {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    links_.clear();
  }
  on_end();
}

void scope_link::attach(cancel_node& call, loop& home) noexcept {
  if (&home == scope_->home_) {
    if (scope_->node_) call.attach(*scope_->node_);
    return;
  }
  handle_ = braid::detail::make_cancel_handle();
  handle_->bind(call, home);
  cancel_cause earlier;
  {
    const std::lock_guard lock(scope_->mutex_);
    if (scope_->ended_) return;
    earlier = scope_->cause_;
    if (earlier == cancel_cause::none) scope_->links_.push_back(*this);
  }
  call.cancel(earlier);
}

void scope_link::release() noexcept {
  if (!handle_) return;
  {
    const std::lock_guard lock(scope_->mutex_);
    unlink();
  }
  std::exchange(handle_, nullptr)->release();
}

}  // namespace braid::core
