#include "client/leavable_call.hpp"

#include "client/start_elsewhere.hpp"

#include <algorithm>
#include <utility>

namespace braid::client {

leavable_call::leavable_call(controller& control, google::protobuf::Message& response)
    : callers_control_(control), callers_response_(response), response_(response.New()) {
  control.lend_to(control_);
}

leavable_call::~leavable_call() = default;

void leavable_call::start(std::shared_ptr<leavable_call> self, const std::shared_ptr<call_target>& target,
                          const google::protobuf::MethodDescriptor& method,
                          const google::protobuf::Message& request, call_origin origin) {
  self_ = std::move(self);
  start_elsewhere(target, {&method, &request, response_.get(), &control_}, this, nullptr, std::move(origin));
}

void leavable_call::hand_over() {
  const auto self = std::move(self_);
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(taken_, true)) return;
    callers_control_.take_results(control_);
    if (!control_.error()) {
      callers_response_.GetReflection()->Swap(&callers_response_, response_.get());
    }
  }
  handed_over();
}

bool leavable_call::give_up() {
  const std::lock_guard lock(mutex_);
  return !std::exchange(taken_, true);
}

void leavable_call::leave(cancel_cause why, std::chrono::nanoseconds after) {
  callers_control_.leave_call(why, after);
}

core::time_point end_of_call(const controller& control, const call_target& target, const call_origin& origin,
                             core::time_point now) noexcept {
  const auto timeout = control.timeout().value_or(target.timeout());
  if (timeout.count() < 0) return origin.latest;
  return std::min(origin.latest, core::saturating_add(now, timeout));
}

}  // namespace braid::client
