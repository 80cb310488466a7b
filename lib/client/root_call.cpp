#include "client/root_call.hpp"

#include "client/sub_calls.hpp"
#include "core/coroutine.hpp"

#include <boost/asio/error.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <utility>

namespace braid::client {

root_call::root_call(core::loop& home, const call_request& wanted,
                     std::shared_ptr<detail::cancel_handle> cancel)
    : control_(wanted.control ? *wanted.control : own_control_.emplace()),
      call_(home, *wanted.method, *wanted.request, *wanted.response, control_, *this),
      started_(home.now()),
      slot_handle_(std::move(cancel)) {
  control_.clear_results();
  if (!own_control_) control_.name_.renew();
}

root_call::~root_call() = default;

void root_call::copy_request() {
  request_copy_.reset(call_.request().New());
  request_copy_->CopyFrom(call_.request());
  call_.replace_request(*request_copy_);
  call_.set_request_lives(true);
}

void root_call::begin(const std::shared_ptr<call_target>& target, const call_origin& origin,
                      core::time_point now) noexcept {
  core::loop& home = call_.home();
  home.add_live(*this);
  core::time_point deadline = origin.latest;
  const auto timeout = control_.timeout().value_or(target->timeout());
  if (timeout.count() >= 0) deadline = std::min(deadline, core::saturating_add(started_, timeout));
  call_.set_deadline(started_, deadline);
  call_.set_begun(now);
  bind_names();
  if (!call_.settled()) {
    if (origin.caller) {
      call_.attach(origin.caller->node());
    } else if (origin.from) {
      caller_link_ = origin.from;
      caller_link_->attach(call_, home);
    } else if (origin.scope) {
      scope_link_ = std::make_unique<core::scope_link>(origin.scope);
      scope_link_->attach(call_, home);
    }
  }
  if (home.stopping()) call_.cancel(cancel_cause::shutdown);
  if (deadline <= now) call_.cancel(cancel_cause::deadline);
  if (!call_.settled()) target->start(call_, target);
}

// Each of these may end the call at once.
void root_call::bind_names() noexcept {
  std::shared_ptr<detail::cancel_handle> named;
  if (!own_control_) named = control_.name_.begin(*this);
  if (slot_handle_) slot_handle_->bind(call_, home(), detail::total_cancel::while_unsent);
  if (named && !call_.settled()) bind_name(*named);
}

void root_call::bind_name(detail::cancel_handle& name) noexcept {
  name.bind(call_, home(), detail::total_cancel::while_unsent);
}

void root_call::end_names() noexcept {
  if (!own_control_) {
    if (const auto named = control_.name_.end()) named->release();
  }
  if (slot_handle_) slot_handle_->release();
}

void root_call::on_settled(call&) noexcept {
  end_names();
  if (caller_link_) std::exchange(caller_link_, nullptr)->release();
  scope_link_.reset();
  ended();
}

std::string root_call::describe() const { return fmt::format("a call of {}", call_.method().full_name()); }

async_root_call::async_root_call(core::loop& home, const call_request& wanted,
                                 detail::call_completion* completion,
                                 std::shared_ptr<detail::cancel_handle> cancel)
    : root_call(home, wanted, std::move(cancel)),
      core::ready_node(&async_root_call::run_ready),
      completion_(completion) {}

async_root_call* async_root_call::create(core::loop& home, const call_request& wanted,
                                         detail::call_completion* completion,
                                         std::shared_ptr<detail::cancel_handle> cancel) {
  void* memory = detail::pool_allocate(sizeof(async_root_call));
  return ::new (memory) async_root_call(home, wanted, completion, std::move(cancel));
}

detail::call_completion* async_root_call::destroy() noexcept {
  auto* completion = completion_;
  this->~async_root_call();
  detail::pool_deallocate(this, sizeof(async_root_call));
  return completion;
}

void async_root_call::run_ready(core::ready_node& node) noexcept {
  auto& self = static_cast<async_root_call&>(node);
  const auto executor = self.home().executor();
  const error_code ec = self.error();
  if (ec) self.completion_->failed(self.control());
  self.destroy()->complete(executor, ec);
}

void async_root_call::end_without_loop() noexcept {
  control().fail_without_call(outcome::cancelled(cancel_cause::shutdown), "the channel's runtime is gone");
  end_names();
  completion_->failed(control());
  destroy()->complete_without_loop(boost::asio::error::operation_aborted);
}

}  // namespace braid::client
