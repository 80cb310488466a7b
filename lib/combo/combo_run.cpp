#include "combo/combo_run.hpp"

#include "combo/call_group_state.hpp"
#include "core/coroutine.hpp"

#include <boost/asio/error.hpp>
#include <fmt/format.h>
#include <google/protobuf/descriptor.h>

#include <utility>

namespace braid::combo {

std::unique_ptr<combo_run> combo_run::make(client::call& of, keep_request keep) {
  return std::unique_ptr<combo_run>(new combo_run(of, keep));
}

combo_run::combo_run(client::call& of, keep_request keep)
    : home_(of.home()),
      call_(&of),
      method_(of.method()),
      request_(&of.request()),
      response_(of.response().New()),
      deadline_(of.deadline()),
      kind_(keep) {
  if (keep == keep_request::always || !of.request_lives()) {
    request_copy_.reset(request_->New());
    request_copy_->CopyFrom(*request_);
    request_ = request_copy_.get();
    of.replace_request(*request_);
  }
  if (keep == keep_request::always) client::sub_calls::copy_settings(kept_control_, of.control());
  attach(of);
  of.set_runner(*this);
}

combo_run::~combo_run() = default;

void combo_run::start(std::unique_ptr<combo_run> run, std::unique_ptr<combo_function> function) noexcept {
  run->function_ = std::move(function);
  combo_run* const started = run.release();  // ended() takes it back
  const detail::coroutine_context context{.parent = started, .deadline = started->deadline_};
  if (detail::coroutine::start(started->home_, *started, context, detail::start_mode::now)) return;
  started->set_result(outcome::local_failure({ENOMEM, boost::system::system_category()}),
                      "no memory for the combo's coroutine");
  started->settle();
  delete started;
}

void combo_run::refuse(const error_code& why, std::string_view text) noexcept {
  set_result(outcome{.code = why}, text);
  settle();
}

client::sub_calls& combo_run::new_subs(std::size_t count) {
  return *subs_.emplace_back(std::make_unique<client::sub_calls>(count));
}

controller& combo_run::sub_control(client::sub_calls& subs, std::size_t index) const noexcept {
  const bool is_new = subs.at(index) == nullptr;
  controller& made = subs.make(index).control;
  if (is_new) client::sub_calls::inherit_metadata(made, control());
  return made;
}

// A function that passes on the "aborted" of what it waited for ends as its call was ended.
void combo_run::set_result(const outcome& result, std::string_view text) {
  has_result_ = true;
  const bool aborted = result.origin == outcome_origin::local && result.cause == cancel_cause::none &&
                       result.code == boost::asio::error::operation_aborted;
  result_ = aborted && cancelled() ? outcome::cancelled(cause()) : result;
  text_ = text;
}

void combo_run::call_settled() noexcept {
  call_ = nullptr;
  detach();
}

void combo_run::run(yield_context yield) {
  combo_call call(*this);
  try {
    function_->run(call, yield);
  } catch (...) {
    failed(detail::describe_current_exception());
  }
  join(yield);
}

// No sub call lives on; what was left behind may need a turn to end.
void combo_run::join(yield_context yield) {
  for (auto& group : groups_) group->cancel(cancel_cause::sibling_won);
  for (auto& group : groups_) group->join(yield);
}

// What a cancelled function throws is most often the "aborted" of its last wait.
void combo_run::failed(detail::failure why) noexcept {
  if (cancelled()) {
    set_result(outcome::cancelled(cause()), {});
    return;
  }
  detail::report_failure(why, describe());
  set_result(outcome::local_failure(errc::internal), fmt::format("{} failed", describe()));
}

// What a user's function brings after the deadline's instant is late, though its loop was too busy to say so.
// Our own ends by then and may only be merging.
bool combo_run::is_late() const noexcept {
  return kind_ == keep_request::always && !cancelled() && home_.now() >= deadline_;
}

void combo_run::ended(const detail::loop_executor&) noexcept {
  if (is_late()) set_result(outcome::cancelled(cancel_cause::deadline), {});
  if (!has_result_ && cancelled()) set_result(outcome::cancelled(cause()), {});
  if (!has_result_) {
    set_result(outcome::local_failure(errc::internal),
               fmt::format("{} returned without a result", describe()));
  }
  settle();
  delete this;
}

bool combo_run::ended_by_other_than_deadline() const noexcept {
  return call_->cancelled() && call_->cause() != cancel_cause::deadline;
}

void combo_run::settle() noexcept {
  client::call* const of = call_;
  if (!of) return;
  if (!subs_.empty()) of->set_sub_calls(std::move(subs_.back()));
  if (ended_by_other_than_deadline()) {
    // Success never, and the code of the cause: which one, 1006 or 125, the call knows.
    if (of->cause() == cancel_cause::success_limit) {
      of->settle_cancelled();
    } else {
      of->settle(outcome::cancelled(of->cause()), text_);
    }
    return;
  }
  if (result_.succeeded()) {
    google::protobuf::Message& target = of->response();
    target.GetReflection()->Swap(&target, response_.get());
  }
  of->settle(result_, text_);
}

std::string combo_run::describe() const {
  return function_ ? function_->describe() : fmt::format("a combo call of {}", method_.full_name());
}

}  // namespace braid::combo
