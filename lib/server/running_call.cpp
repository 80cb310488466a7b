#include "server/running_call.hpp"

#include "core/coroutine.hpp"
#include "server/connection.hpp"
#include "server/loop_part.hpp"

#include <boost/asio/error.hpp>
#include <fmt/format.h>

#include <mutex>

namespace braid::server_side {

running_call::running_call(loop_part& part, connection& from, const method_entry& method, std::int64_t id,
                           message_pair messages, core::time_point deadline)
    : indexed_call(id),
      part_(part.shared_from_this()),
      connection_(&from),
      method_(method),
      messages_(std::move(messages)),
      remote_side_(from.remote()),
      deadline_(deadline) {
  part.add(*this);
  from.call_began(*this);
}

running_call::~running_call() {
  unlink();
  if (loop_ended_) return;
  if (place_) part_->recycle(method_, std::move(messages_), place_->size());
  part_->call_over();
}

std::string running_call::describe() const {
  return fmt::format("the handler of {}", method_.descriptor->full_name());
}

void running_call::start() noexcept {
  core::loop& home = part_->home();
  if (deadline_ != core::time_point::max()) home.arm(timer_, deadline_);
  if (!detail::coroutine::start(home, *this, {.parent = this, .deadline = deadline_},
                                detail::start_mode::now)) {
    refuse({ENOMEM, boost::system::system_category()}, "no memory for the handler's coroutine");
  }
}

void running_call::refuse(const error_code& code, std::string_view text) noexcept {
  answer_with(code, text);
  delete this;
}

void running_call::refused(const error_code&) noexcept {}

void running_call::run(yield_context yield) {
  method_.handler(*this, *messages_.request, *messages_.response, *this, yield);
}

void running_call::failed(detail::failure why) noexcept {
  detail::report_failure(why, describe());
  set_failed(errc::internal, fmt::format("the handler of {} failed", method_.descriptor->full_name()));
  if (!done_called_.exchange(true)) finished_ = true;
}

void running_call::ended(const detail::loop_executor&) noexcept {
  coroutine_ended_ = true;
  if (finished_) answer();
  destroy_if_over();
}

void running_call::Run() {
  if (done_called_.exchange(true)) return;
  core::loop& home = part_->home();
  if (home.is_current()) {
    finish();
    return;
  }
  if (!home.post([this, keep = part_] { finish(); })) finish_without_loop();
}

// Also inside the handler's coroutine, which may go on after its answer.
void running_call::finish() noexcept {
  finished_ = true;
  answer();
  destroy_if_over();
}

// The runtime is gone, and with it the coroutine and all that this call was part of.
void running_call::finish_without_loop() noexcept {
  const auto part = part_;
  run_notifications();
  const std::lock_guard lock(part->after_the_end());
  loop_ended_ = true;
  delete this;
}

void running_call::notify_later() noexcept {
  if (!std::exchange(notify_.queued, true)) part_->home().make_ready(notify_);
}

void running_call::notify() noexcept {
  run_notifications();
  notify_.queued = false;  // only now: a notification may run `done`, which must not destroy this in here
  destroy_if_over();
}

void running_call::on_cancel(cancel_cause cause) noexcept {
  shown_cause_.store(cause, std::memory_order_release);
  if (cause == cancel_cause::deadline) answer_with(errc::timed_out, "the deadline has passed");
  if (cause == cancel_cause::shutdown) answer_with(errc::logoff, "the server is stopping");
  if (coroutine_ended_ && !finished_) part_->log_unanswered(*this);
  if (!notifications_.empty()) notify_later();
}

void running_call::connection_lost() noexcept {
  leave_connection();
  cancel(cancel_cause::peer_gone);
}

void running_call::cancelled_by_client(cancel_cause cause) noexcept {
  connection* const from = connection_;
  leave_connection();
  from->call_ended();
  cancel(cause);
}

void running_call::answer() noexcept {
  if (!connection_) return;
  if (connection* const to = connection_; !error_ && !response().IsInitialized()) {
    answer_with(errc::bad_response, fmt::format("the response lacks required fields: {}",
                                                response().InitializationErrorString()));
  } else {
    leave_connection();
    to->answer(*this);
    to->call_ended();
  }
}

void running_call::answer_with(const error_code& code, std::string_view text) noexcept {
  connection* const to = connection_;
  if (!to) return;
  leave_connection();
  to->answer_error(id(), code, text);
  to->call_ended();
}

void running_call::leave_connection() noexcept {
  connection_ = nullptr;
  of_connection.unlink();
  leave_index();
  timer_.cancel();
}

void running_call::destroy_if_over() noexcept {
  if (!coroutine_ended_ || !finished_ || notify_.queued) return;
  run_notifications();
  detach_children();  // calls that the handler left running go on
  delete this;
}

void running_call::NotifyOnCancel(google::protobuf::Closure* callback) {
  notifications_.push_back(callback);
  if (cancel_node::cancelled()) notify_later();
}

void running_call::run_notifications() noexcept {
  while (!notifications_.empty()) {
    google::protobuf::Closure* const next = notifications_.back();
    notifications_.pop_back();
    try {
      next->Run();
    } catch (...) {
      detail::report_failure(detail::describe_current_exception(), "a callback of " + describe());
    }
  }
}

}  // namespace braid::server_side
