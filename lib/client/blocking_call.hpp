#pragma once

#include <braid/completion.hpp>
#include <braid/controller.hpp>
#include <braid/error.hpp>

#include "client/call_target.hpp"
#include "core/run_on.hpp"

#include <google/protobuf/message.h>

#include <chrono>
#include <memory>
#include <mutex>

namespace braid::client {

/// A call that a thread waits for which is none of the loop's. It ends at its deadline also when its loop
/// does not run: because the program's own code holds it up, or because nobody runs the context that was
/// lent.
///
/// So that it may, the loop works on a controller and a response of this object. Whoever is first takes the
/// call: the loop to hand over the results, or the caller to leave without them.
class blocking_call final : public detail::erased_completion<error_code> {
 public:
  /// Runs the call to its end, and stores that in `control`.
  static void run(const std::shared_ptr<call_target>& target,
                  const google::protobuf::MethodDescriptor& method, controller& control,
                  const google::protobuf::Message& request, google::protobuf::Message& response);

  blocking_call(controller& control, google::protobuf::Message& response);

  // erased_completion
  void complete(const detail::loop_executor&, error_code) override { hand_over(); }
  void complete_without_loop(error_code) override { hand_over(); }

 private:
  void hand_over();
  bool give_up();

  std::mutex mutex_;  // guards what the caller owns
  bool taken_ = false;
  controller& callers_control_;
  google::protobuf::Message& callers_response_;

  controller control_;
  std::unique_ptr<google::protobuf::Message> response_;
  core::blocking_event ended_;
  std::shared_ptr<blocking_call> self_;  // held for the loop until the call has ended there
};

}  // namespace braid::client
