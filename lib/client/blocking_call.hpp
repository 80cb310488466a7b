#pragma once

#include "client/leavable_call.hpp"
#include "core/run_on.hpp"

#include <atomic>

namespace braid::client {

/// A call that a thread waits for which is none of the loop's.
class blocking_call final : public leavable_call {
 public:
  /// Runs the call to its end, and stores that in `control`.
  static void run(const std::shared_ptr<call_target>& target,
                  const google::protobuf::MethodDescriptor& method, controller& control,
                  const google::protobuf::Message& request, google::protobuf::Message& response);

  blocking_call(controller& control, google::protobuf::Message& response)
      : leavable_call(control, response) {}

 private:
  void handed_over() noexcept override { ended_.set(); }
  void cancelled(cancel_cause why) noexcept;

  core::blocking_event ended_;
  std::atomic<cancel_cause> why_left_{cancel_cause::deadline};
};

}  // namespace braid::client
