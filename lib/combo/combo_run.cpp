#include "combo/combo_run.hpp"

#include "combo/call_group_state.hpp"
#include "core/coroutine.hpp"

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
      deadline_(of.deadline()) {
  if (keep == keep_request::always || !of.request_lives()) {
    request_copy_.reset(request_->New());
    request_copy_->CopyFrom(*request_);
    request_ = request_copy_.get();
    of.replace_request(*request_);
  }
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

client::sub_calls& combo_run::subs(std::size_t count) {
  if (!subs_) subs_ = std::make_unique<client::sub_calls>(count);
  return *subs_;
}

void combo_run::set_result(const outcome& result, std::string_view text) {
  has_result_ = true;
  result_ = result;
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

// Groups left behind have been cancelled; their sub calls may need a turn to end.
void combo_run::join(yield_context yield) {
  for (auto& group : groups_) group->join(yield);
}

void combo_run::failed(detail::failure why) noexcept {
  if (!cancelled()) detail::report_failure(why, describe());
  set_result(outcome::local_failure(errc::internal), fmt::format("{} failed", describe()));
}

void combo_run::ended(const detail::loop_executor&) noexcept {
  if (!has_result_) {
    set_result(outcome::local_failure(errc::internal), fmt::format("{} returned without a result", describe()));
  }
  settle();
  delete this;
}

void combo_run::settle() noexcept {
  client::call* const of = call_;
  if (!of) return;
  if (subs_) of->set_sub_calls(std::move(subs_));
  const bool counts = !of->cancelled() || of->cause() == cancel_cause::deadline;
  if (result_.succeeded() && counts) {
    google::protobuf::Message& target = of->response();
    target.GetReflection()->Swap(&target, response_.get());
  }
  of->settle(result_, text_);
}

std::string combo_run::describe() const {
  return function_ ? function_->describe() : fmt::format("a combo call of {}", method_.full_name());
}

}  // namespace braid::combo
