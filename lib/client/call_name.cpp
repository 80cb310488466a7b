#include <braid/call_id.hpp>

#include "client/root_call.hpp"
#include "core/cancel_handle.hpp"

namespace braid {

void call_id::cancel() const noexcept {
  if (handle_) detail::request_cancel(handle_);
}

namespace detail {

// The call's loop stores its state and then reads named_; handle() stores named_ and then reads the state. At
// least one of them sees the other, so no call runs unbound with a name.

std::shared_ptr<cancel_handle> call_name::handle() {
  const std::lock_guard lock(mutex_);
  if (handle_) return handle_;
  handle_ = make_cancel_handle();
  named_.store(true);
  std::uintptr_t seen = state_.load();
  if (seen != idle && seen != over && state_.compare_exchange_strong(seen, seen | pinned)) {
    bound_ = true;
    reinterpret_cast<client::root_call*>(seen)->bind_name(*handle_);
    state_.store(seen);
  } else if (seen == over) {
    handle_->release();
  }
  return handle_;
}

void call_name::forget() noexcept {
  handle_.reset();
  named_.store(false);
}

void call_name::renew() noexcept {
  state_.store(idle, std::memory_order_relaxed);
  if (!named_.load()) return;
  const std::lock_guard lock(mutex_);
  bound_ = false;
  if (handle_->ended()) forget();
}

std::shared_ptr<cancel_handle> call_name::begin(client::root_call& running) noexcept {
  state_.store(reinterpret_cast<std::uintptr_t>(&running));
  if (!named_.load()) return nullptr;
  const std::lock_guard lock(mutex_);
  if (std::exchange(bound_, true)) return nullptr;
  if (!handle_->ended()) return handle_;
  // Somebody asked just when the call before had ended.
  bound_ = false;
  forget();
  return nullptr;
}

std::shared_ptr<cancel_handle> call_name::end() noexcept {
  std::uintptr_t seen = state_.load(std::memory_order_relaxed);
  while ((seen & pinned) == 0 && !state_.compare_exchange_weak(seen, over)) continue;
  if ((seen & pinned) == 0 && !named_.load()) return nullptr;
  const std::lock_guard lock(mutex_);
  state_.store(over);
  return handle_;
}

void call_name::reset() noexcept {
  const std::lock_guard lock(mutex_);
  state_.store(idle);
  bound_ = false;
  forget();
}

void call_name::adopt(std::shared_ptr<cancel_handle> callers) {
  const std::lock_guard lock(mutex_);
  handle_ = std::move(callers);
  named_.store(true);
}

std::shared_ptr<cancel_handle> call_name::leave() noexcept {
  const std::lock_guard lock(mutex_);
  auto left = handle_;
  forget();
  state_.store(over);
  return left;
}

}  // namespace detail
}  // namespace braid
