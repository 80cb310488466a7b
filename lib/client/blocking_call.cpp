#include "client/blocking_call.hpp"

#include "core/runtime_core.hpp"

#include <utility>

namespace braid::client {

void blocking_call::run(const std::shared_ptr<call_target>& target,
                        const google::protobuf::MethodDescriptor& method, controller& control,
                        const google::protobuf::Message& request, google::protobuf::Message& response) {
  core::runtime_core& there = target->runtime();
  const auto began = core::clock::now();
  auto origin = call_origin::here(control, there.home());
  const core::time_point limit = core::saturating_add(end_of_call(control, *target, origin, began), patience);
  const auto waiting = std::make_shared<blocking_call>(control, response);
  waiting->watch_name([call = std::weak_ptr(waiting)](cancel_cause why) {
    if (const auto alive = call.lock()) alive->cancelled(why);
  });
  waiting->start(waiting, target, method, request, std::move(origin));
  if (!waiting->ended_.wait_until(there, limit) && waiting->give_up()) {
    waiting->leave(waiting->why_left_, core::clock::now() - began);
  } else {
    waiting->ended_.wait(there);  // it is being handed over
  }
}

void blocking_call::cancelled(cancel_cause why) noexcept {
  why_left_ = why;
  ended_.hurry(core::saturating_add(core::clock::now(), patience));
}

}  // namespace braid::client
