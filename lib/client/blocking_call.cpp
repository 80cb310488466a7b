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
  waiting->start(waiting, target, method, request, std::move(origin));
  if (limit == core::time_point::max()) {
    waiting->ended_.wait(there);
  } else if (!waiting->ended_.wait_until(there, limit) && waiting->give_up()) {
    waiting->leave(cancel_cause::deadline, core::clock::now() - began);
  } else {
    waiting->ended_.wait(there);  // it is being handed over
  }
}

}  // namespace braid::client
