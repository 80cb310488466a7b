#include "server/running_call.hpp"

#include "core/call_scope.hpp"
#include "core/coroutine.hpp"
#include "core/scoped_executor.hpp"
#include "server/connection.hpp"
#include "server/handler_chain.hpp"
#include "server/handler_run.hpp"
#include "server/loop_part.hpp"

#include <fmt/format.h>

#include <chrono>
#include <mutex>
#include <utility>
#include <variant>

namespace braid::server_side {
namespace {

// How long after a cancellation a handler that has returned may take to run `done`, before it is taken that
// it never will.
constexpr std::chrono::seconds time_to_finish{1};

}  // namespace

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

core::loop& running_call::home() const noexcept { return part_->home(); }

void running_call::start() noexcept {
  if (deadline_ != core::time_point::max()) home().arm(timer_, deadline_);
  if (method_.interceptors.empty() && start_apart()) return;
  ++running_;
  if (!detail::coroutine::start(home(), *this, {.parent = this, .deadline = deadline_},
                                detail::start_mode::now))
    refuse({ENOMEM, boost::system::system_category()}, "no memory for the handler's coroutine");
}

bool running_call::start_apart() noexcept {
  core::loop* const where = part_->next_loop_for(method_);
  const bool in_coroutine = !std::holds_alternative<detail::awaitable_handler>(method_.handler) &&
                            !std::holds_alternative<detail::callback_handler>(method_.handler);
  if (where == &home() && in_coroutine) return false;
  const auto run = handler_run::make(*this, where);
  {
    const std::lock_guard lock(mutex_);
    scope_ = run;
    run_ = run.get();
  }
  ++running_;
  run->start();
  return true;
}

void running_call::refuse(const error_code& code, std::string_view text) noexcept {
  answer_with(code, text);
  delete this;
}

void running_call::refused(const error_code&) noexcept {}

bool running_call::invoke(yield_context yield) {
  const google::protobuf::Message& request = *messages_.request;
  google::protobuf::Message& response = *messages_.response;
  if (const auto* stackful = std::get_if<detail::stackful_handler>(&method_.handler)) {
    (*stackful)(*this, request, response, yield);
    return true;
  }
  if (const auto* plain = std::get_if<detail::plain_handler>(&method_.handler)) {
    (*plain)(*this, request, response);
    return true;
  }
  std::get<detail::generated_handler>(method_.handler)(*this, request, response, *this);
  return false;
}

void running_call::run(yield_context yield) {
  if (method_.interceptors.empty()) {
    if (invoke(yield)) Run();
    return;
  }
  handler_chain chain(*this);
  chain_ = &chain;
  chain.run(0, yield);
  chain_ = nullptr;
  if (chain.gave_up()) return;  // answered already; the handler still has the messages
  done_called_.store(true);
  finish();
}

void running_call::failed(detail::failure why) noexcept {
  report(why, "the handler");
  if (done_called_.exchange(true)) return;
  fail("the handler");
  answered();
}

void running_call::ended(const detail::loop_executor&) noexcept { part_over(); }

/// Runs `function` on the loop, now or later. False: it has ended.
template <typename Function>
bool running_call::on_loop(Function function) noexcept {
  if (home().is_current()) {
    function();
    return true;
  }
  return home().post([keep = part_, function = std::move(function)]() mutable { function(); });
}

void running_call::Run() {
  if (done_called_.exchange(true)) return;
  if (!on_loop([this] { finish(); })) note_without_loop(false, true);
}

// Also inside the handler's coroutine, which may go on after its answer.
void running_call::finish() noexcept {
  answered();
  destroy_if_over();
}

void running_call::answered() noexcept {
  if (chain_) {
    chain_->answered();
  } else {
    finished_ = true;
    answer();
  }
}

void running_call::part_over() noexcept {
  --running_;
  destroy_if_over();
}

void running_call::handler_returned(bool answers) noexcept {
  const bool finished = answers && !done_called_.exchange(true);
  const bool told = on_loop([this, finished] {
    if (finished) answered();
    part_over();
  });
  if (!told) note_without_loop(true, finished);
}

void running_call::handler_threw(detail::failure why, bool fails) noexcept {
  const bool told = on_loop([this, why = std::move(why), fails] {
    if (fails) {
      failed(why);
    } else {
      report(why, "the handler");
    }
    part_over();
  });
  if (!told) note_without_loop(true, fails && !done_called_.exchange(true));
}

void running_call::handler_refused(const error_code& code, std::string_view text) noexcept {
  const bool told = on_loop([this, code, text = std::string(text)] {
    set_failed(code, text);
    done_called_.store(true);
    answered();
    part_over();
  });
  if (!told) note_without_loop(true, !done_called_.exchange(true));
}

void running_call::done_dropped() noexcept {
  const bool told = on_loop([this] {
    if (cancelled() != cancel_cause::none) {
      finish();
    } else {
      dropped_ = true;
      part_->log_dropped(method());
    }
  });
  if (!told) note_without_loop(false, true);
}

// What a handler throws once its call is over is most often what ended its last wait or call.
void running_call::report(const detail::failure& why, std::string_view who) noexcept {
  const auto text = [&] {
    return fmt::format("{} of {} was ended by an exception: {}", who, method_.descriptor->full_name(),
                       why.text);
  };
  if (!is_over()) {
    part_->log_threw(text());
  } else if (home().log().enabled(log_level::debug)) {
    home().log().log(log_level::debug, text(), {});
  }
}

// A server behind this one may end up to a millisecond earlier: it is told the rest of the time rounded down.
bool running_call::is_over() const noexcept {
  return cancel_node::cancelled() || home().after(std::chrono::milliseconds(1)) >= deadline_;
}

void running_call::fail(std::string_view who) noexcept {
  set_failed(errc::internal, fmt::format("{} of {} failed", who, method_.descriptor->full_name()));
}

void running_call::clear_failure() noexcept {
  error_ = {};
  text_.clear();
}

void running_call::show_cancellation() noexcept {
  if (!cancel_node::cancelled()) return;
  set_failed(
      cause() == cancel_cause::shutdown ? make_error_code(errc::logoff) : outcome::cancelled(cause()).code,
      {});
}

// The runtime is gone, and with it all that this call was part of. The handler and `done` may tell so on
// different threads.
void running_call::note_without_loop(bool part_over, bool finished) noexcept {
  const auto part = part_;
  {
    const std::lock_guard lock(part->after_the_end());
    loop_ended_ = true;
    if (part_over) --running_;
    finished_ = finished_ || finished || dropped_;
    if (running_ != 0 || !finished_) return;
  }
  run_notifications();
  if (scope_) scope_->end();
  const std::lock_guard lock(part->after_the_end());
  delete this;
}

void running_call::notify_later() noexcept {
  if (!std::exchange(notify_.queued, true)) part_->home().make_ready(notify_);
}

void running_call::notify() noexcept {
  run_notifications();
  if (dropped_ && cancel_node::cancelled()) answered();
  notify_.queued = false;  // only now: a notification may run `done`, which must not destroy this in here
  destroy_if_over();
}

void running_call::on_cancel(cancel_cause cause) noexcept {
  shown_cause_.store(cause, std::memory_order_release);
  if (cause == cancel_cause::deadline) answer_with(errc::timed_out, "the deadline has passed");
  if (cause == cancel_cause::shutdown) answer_with(errc::logoff, "the server is stopping");
  if (cause != cancel_cause::shutdown && !finished_ && !dropped_)
    home().arm(timer_, home().after(time_to_finish));
  std::shared_ptr<core::call_scope> scope;
  bool notifies = dropped_;
  {
    const std::lock_guard lock(mutex_);
    scope = scope_;
    notifies = notifies || !notifications_.empty();
  }
  if (scope) scope->cancel(cause);
  if (notifies) notify_later();
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

void running_call::shut_down() noexcept {
  if (chain_) chain_->give_up();
  cancel(cancel_cause::shutdown);
  timer_.cancel();  // the stop names who does not end
}

void running_call::timer_fired() noexcept {
  if (!cancel_node::cancelled()) {
    cancel(cancel_cause::deadline);
  } else if (running_ == 0 && !finished_ && !dropped_) {
    part_->log_unanswered(method());
  }
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
  if (running_ != 0 || !finished_ || notify_.queued || notices_on_their_way_ != 0) return;
  notify_.queued = true;  // what a callback cancels or registers from here on queues nothing
  run_notifications();
  detach_children();  // calls that the handler left running go on
  if (scope_) scope_->end();
  delete this;
}

// On any thread, as is all below, as long as the handler has not answered.
void running_call::NotifyOnCancel(google::protobuf::Closure* callback) {
  {
    const std::lock_guard lock(mutex_);
    notifications_.push_back(callback);
    if (cancelled() == cancel_cause::none) return;  // on_cancel() will see it
    ++notices_on_their_way_;
  }
  const bool told = on_loop([this] {
    --notices_on_their_way_;
    notify_later();
  });
  if (!told) --notices_on_their_way_;
}

void running_call::run_notifications() noexcept {
  std::unique_lock lock(mutex_);
  while (!notifications_.empty()) {
    google::protobuf::Closure* const next = notifications_.back();
    notifications_.pop_back();
    lock.unlock();
    try {
      next->Run();
    } catch (...) {
      detail::report_failure(detail::describe_current_exception(), "a callback of " + describe());
    }
    lock.lock();
  }
}

std::shared_ptr<core::call_scope> running_call::scope() {
  const std::lock_guard lock(mutex_);
  if (!scope_) {
    scope_ = std::make_shared<core::call_scope>(deadline_, &home());
    scope_->set_node(this);
    if (const cancel_cause cause = cancelled(); cause != cancel_cause::none) scope_->cancel(cause);
  }
  return scope_;
}

boost::asio::any_io_executor running_call::get_executor() {
  handler_run* run;
  {
    const std::lock_guard lock(mutex_);  // behind interceptors it is set while others may ask
    run = run_;
  }
  if (run) return run->executor();
  return core::scoped_executor(home().executor(), scope());
}

}  // namespace braid::server_side
