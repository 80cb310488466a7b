#include "combo/call_group_state.hpp"

#include "combo/bridged_call.hpp"
#include "core/runtime_core.hpp"

#include <fmt/format.h>
#include <google/protobuf/message.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace braid::combo {

/// The coroutine's wait for the next sub call.
class call_group_state::pause final : public detail::await_base {
 public:
  using await_base::await_base;
};

call_group_state::call_group_state(combo_run& parent, client::sub_calls& subs)
    : parent_(parent), subs_(subs), members_(subs.size()) {
  ended_.reserve(subs.size());
}

call_group_state::~call_group_state() = default;

controller& call_group_state::control(std::size_t index) {
  if (index >= members_.size())
    throw std::out_of_range("braid: there is no sub call of that index in the group");
  return parent_.sub_control(subs_, index);
}

// The same message of the same method in the same format is serialised once, by the parent.
bool call_group_state::shares_payload(const sub_call_request& request,
                                      const controller& control) const noexcept {
  return !request.request && !request.owned_request &&
         (!request.method || request.method == &parent_.method()) &&
         control.request_metadata().format == parent_.control().request_metadata().format;
}

core::time_point call_group_state::deadline_of(const controller& control, const sub_call_request& request,
                                               core::time_point now) const noexcept {
  core::time_point deadline =
      std::min(parent_.deadline(), request.deadline.value_or(core::time_point::max()));
  if (const auto timeout = control.timeout(); timeout && timeout->count() >= 0)
    deadline = std::min(deadline, core::saturating_add(now, *timeout));
  return deadline;
}

const google::protobuf::Message& call_group_state::response_prototype(
    combo_run& parent, const google::protobuf::MethodDescriptor* method) {
  if (!method || method == &parent.method()) return parent.response();
  const auto* const found =
      google::protobuf::MessageFactory::generated_factory()->GetPrototype(method->output_type());
  if (found) return *found;
  throw std::invalid_argument(fmt::format(
      "braid: a sub call of {}, which is not of generated code, needs a response", method->full_name()));
}

void call_group_state::launch(std::size_t index, const std::shared_ptr<client::call_target>& on,
                              sub_call_request request) {
  controller& own = control(index);
  if (members_[index].call) throw std::logic_error("braid: a sub call of that index was launched already");
  const bool shared = shares_payload(request, own);
  auto& entry = subs_.make(index);
  entry.request = std::move(request.owned_request);
  entry.response = std::move(request.owned_response);
  const auto& method = request.method ? *request.method : parent_.method();
  const google::protobuf::Message& message = entry.request     ? *entry.request
                                             : request.request ? *request.request
                                                               : parent_.request();
  if (!request.response && !entry.response)
    entry.response.reset(response_prototype(parent_, request.method).New());
  google::protobuf::Message& response = request.response ? *request.response : *entry.response;

  ++running_;
  member& into = members_[index];
  into.group = this;
  into.index = index;
  client::call& sub = into.call.emplace(parent_.home(), method, message, response, own, into);
  client::call* const above = parent_.of();
  const core::time_point now = parent_.home().now();
  const core::time_point deadline = deadline_of(own, request, now);
  if (deadline < parent_.deadline()) {
    sub.set_deadline(now, deadline);
  } else {
    sub.inherit_deadline(now, deadline);
  }
  if (above && shared) sub.share_payload(*above);
  sub.attach(parent_);
  if (!sub.settled() && deadline <= now) sub.cancel(cancel_cause::deadline);
  if (sub.settled()) return;
  if (&on->runtime() == &parent_.home().owner()) {
    on->start(sub, on);
  } else {
    bridged_call::start(sub, on);
  }
}

void call_group_state::settled(member& ended) noexcept {
  const client::call& sub = *ended.call;
  // For `total`, which may not undo what was sent, also when that sub call has ended.
  if (parent_.of() && sub.anything_sent()) parent_.of()->note_sent();
  ended.finished.emplace(finished_sub_call{ended.index, sub.result(), sub.control(), sub.response()});
  ended_.push_back(ended.index);
  --running_;
  // The deadline is an instant: what comes later than that ends the whole call, whose timer may need a tick
  // more.
  if (sub.result().cause == cancel_cause::deadline && parent_.of() && !parent_.cancelled() &&
      parent_.deadline() <= parent_.home().now())
    parent_.of()->cancel(cancel_cause::deadline);
  if (waiting_ && !must_wait()) std::exchange(waiting_, nullptr)->completed_later();
}

// Once the parent is cancelled its coroutine goes on only when all sub calls have settled, so that it judges
// once.
bool call_group_state::must_wait() const noexcept {
  if (joining_ || parent_.cancelled()) return running_ != 0;
  return taken_ == ended_.size() && running_ != 0;
}

const finished_sub_call* call_group_state::take_next() {
  if (parent_.cancelled()) {
    for (; sweep_ < members_.size(); ++sweep_) {
      member& each = members_[sweep_];
      if (each.finished && !std::exchange(each.returned, true)) return &*each.finished;
    }
    return nullptr;
  }
  while (taken_ < ended_.size()) {
    member& each = members_[ended_[taken_++]];
    if (!std::exchange(each.returned, true)) return &*each.finished;
  }
  return nullptr;
}

const finished_sub_call* call_group_state::next(yield_context yield) {
  while (must_wait()) {
    pause waiting(yield);
    waiting_ = &waiting;
    waiting.wait(false);
  }
  return take_next();
}

void call_group_state::cancel(cancel_cause cause) noexcept {
  for (member& each : members_)
    if (each.call && !each.call->settled()) each.call->cancel_as_finished(cause);
}

void call_group_state::join(yield_context yield) {
  joining_ = true;
  while (running_ != 0) {
    pause waiting(yield);
    waiting_ = &waiting;
    waiting.wait(false);
  }
  joining_ = false;
}

finished_sub_call call_group_state::at(std::size_t index) const {
  const auto& ended = members_.at(index).finished;
  if (!ended) throw std::logic_error("braid: the sub call has not ended");
  return *ended;
}

}  // namespace braid::combo
