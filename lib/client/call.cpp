#include "client/call.hpp"

#include "client/sub_calls.hpp"
#include "core/runtime_core.hpp"

#include <new>
#include <utility>

namespace braid::client {

call::call(core::loop& home, const google::protobuf::MethodDescriptor& method,
           const google::protobuf::Message& request, google::protobuf::Message& response, controller& control,
           call_listener& listener) noexcept
    : home_(home),
      method_(method),
      request_(&request),
      response_(response),
      control_(control),
      listener_(listener) {}

call::~call() = default;

void call::set_deadline(core::time_point started, core::time_point deadline) {
  inherit_deadline(started, deadline);
  if (deadline != core::time_point::max()) home_.arm(timer_, deadline);
}

void call::inherit_deadline(core::time_point started, core::time_point deadline) noexcept {
  started_ = started;
  begun_ = started;
  deadline_ = deadline;
}

bool call::serialise(std::string& why) {
  if (payload_source_) return payload_source_->serialise(why);
  if (!has_payload_) {
    has_payload_ = wire::encode_payload(*request_, request_metadata().format, home_.owner().compressors(),
                                        "request", payload_, why);
  }
  return has_payload_;
}

void call::carry(wire::payload payload, std::shared_ptr<metadata> carried, answer_sink& sink) noexcept {
  payload_ = std::move(payload);
  has_payload_ = true;
  control_.request_metadata_ = std::move(carried);
  sink_ = &sink;
}

// Not shared: counting references does not tell the user's thread when another has stopped reading.
std::shared_ptr<metadata> call::copy_metadata() const {
  const auto& given = control_.request_metadata_;
  return given ? std::make_shared<metadata>(*given) : nullptr;
}

bool call::cancel_as_finished(cancel_cause cause) noexcept {
  if (cancelled()) return false;
  finished_by_sibling_ = cause == cancel_cause::success_limit;
  return cancel(cause);
}

void call::on_cancel(cancel_cause) noexcept {
  if (settled_) return;
  if (runner_) {
    home_.at_turn_end(overdue_);
  } else {
    settle_cancelled();
  }
}

void call::settle_cancelled() noexcept {
  outcome result = outcome::cancelled(cause());
  if (finished_by_sibling_) result.code = errc::parallel_finished;
  settle(result, {});
}

void call::settle(const outcome& result, std::string_view text) noexcept {
  if (settled_) return;
  // A combo that went on to a result although it was cancelled: only the deadline lets the result count.
  if (cancelled() && cause() != cancel_cause::deadline && result.cause != cause()) {
    settle_cancelled();
    return;
  }
  settled_ = true;
  control_.anything_sent_ = anything_sent();
  timer_.cancel();
  overdue_.unschedule();
  if (auto* const runner = std::exchange(runner_, nullptr)) runner->call_settled();
  detach();
  control_.result_ = result;
  control_.error_ = result.code;
  try {
    control_.text_ = text;
  } catch (const std::bad_alloc&) {  // a peer may send a long one
    control_.text_.clear();
  }
  control_.latency_ = home_.now() - started_;
  listener_.on_settled(*this);
}

void call::copy_up(const controller& sub) {
  control_.remote_side_ = sub.remote_side_;
  control_.attempts_ = sub.attempts_;
  if (sub.anything_sent_) note_sent();
  control_.response_metadata_ = sub.response_metadata_;
}

void call::set_sub_calls(std::unique_ptr<sub_calls> subs) noexcept { control_.subs_ = std::move(subs); }

}  // namespace braid::client
