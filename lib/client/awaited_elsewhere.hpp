#pragma once

#include <braid/coroutine.hpp>

#include "client/leavable_call.hpp"

namespace braid::client {

/// A call that a coroutine waits for whose loop is another runtime's: it runs there and reports back by post.
class awaited_elsewhere final : public leavable_call {
  class pause;

 public:
  /// Runs the call to its end, and stores that in `control`.
  static void run(const std::shared_ptr<call_target>& target,
                  const google::protobuf::MethodDescriptor& method, controller& control,
                  const google::protobuf::Message& request, google::protobuf::Message& response,
                  yield_context yield);

  awaited_elsewhere(controller& control, google::protobuf::Message& response, pause& caller);

 private:
  void handed_over() noexcept override;

  pause& caller_;  // gone once it has left
};

}  // namespace braid::client
