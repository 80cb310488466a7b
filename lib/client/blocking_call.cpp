#include "client/blocking_call.hpp"

#include "client/root_call.hpp"
#include "client/start_elsewhere.hpp"

#include <algorithm>
#include <utility>

namespace braid::client {
namespace {

// How long after the deadline the loop, which knows more about the call, may still be the one to end it.
constexpr auto patience = std::chrono::milliseconds(20);

}  // namespace

blocking_call::blocking_call(controller& control, google::protobuf::Message& response)
    : callers_control_(control), callers_response_(response), response_(response.New()) {
  control.lend_to(control_);
}

void blocking_call::run(const std::shared_ptr<call_target>& target,
                        const google::protobuf::MethodDescriptor& method, controller& control,
                        const google::protobuf::Message& request, google::protobuf::Message& response) {
  const auto started = core::clock::now();
  const auto waiting = std::make_shared<blocking_call>(control, response);
  waiting->self_ = waiting;
  auto origin = call_origin::here(control, target->runtime().home());
  core::time_point limit = origin.latest;
  const auto timeout = control.timeout().value_or(target->timeout());
  if (timeout.count() >= 0) limit = std::min(limit, core::saturating_add(started, timeout));
  start_elsewhere(target, {&method, &request, waiting->response_.get(), &waiting->control_},
                  request_lifetime::initiation, waiting.get(), nullptr, std::move(origin));
  if (limit == core::time_point::max()) {
    waiting->ended_.wait(target->runtime());
  } else if (!waiting->ended_.wait_until(target->runtime(), core::saturating_add(limit, patience)) &&
             waiting->give_up()) {
    control.leave_call(core::clock::now() - started);
  } else {
    waiting->ended_.wait(target->runtime());  // it is being handed over
  }
}

/// On the loop, or where it is gone.
void blocking_call::hand_over() {
  const auto self = std::move(self_);
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(taken_, true)) return;
    callers_control_.take_results(control_);
    if (!control_.error()) {
      callers_response_.GetReflection()->Swap(&callers_response_, response_.get());
    }
  }
  ended_.set();
}

/// Whether the caller may leave.
bool blocking_call::give_up() {
  const std::lock_guard lock(mutex_);
  return !std::exchange(taken_, true);
}

}  // namespace braid::client
