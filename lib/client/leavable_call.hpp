#pragma once

#include <braid/call_completion.hpp>
#include <braid/controller.hpp>
#include <braid/error.hpp>

#include "client/call_origin.hpp"
#include "client/call_target.hpp"

#include <google/protobuf/message.h>

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>

namespace braid::client {

/// A call on a loop that is not its caller's, which the caller may leave. It ends at its deadline also when
/// its loop does not run: because the program's own code holds it up, or because nobody runs the context that
/// was lent.
///
/// So that it may, the loop works on a controller and a response of this object. Whoever is first takes the
/// call: the loop to hand over the results, or the caller to leave without them.
class leavable_call : public detail::call_completion {
 public:
  /// How long after the call should have ended the loop, which knows more about it, may still be the one to
  /// end it.
  static constexpr std::chrono::milliseconds patience{20};

  // erased_completion
  void complete(const detail::loop_executor&, error_code) final { hand_over(); }
  void complete_without_loop(error_code) final { hand_over(); }

 protected:
  leavable_call(controller& control, google::protobuf::Message& response);
  ~leavable_call() override;

  /// Starts it; `self` keeps it until it has ended on its loop.
  void start(std::shared_ptr<leavable_call> self, const std::shared_ptr<call_target>& target,
             const google::protobuf::MethodDescriptor& method, const google::protobuf::Message& request,
             call_origin origin);
  /// Calls `told`, on whatever thread, once the call is cancelled by its name.
  void watch_name(std::function<void(cancel_cause)> told) { control_.name_.handle()->watch(std::move(told)); }
  /// Whether the caller may leave; else the results are being handed over.
  bool give_up();
  /// After give_up(): what the caller's controller says of the call, whose loop goes on with it.
  void leave(cancel_cause why, std::chrono::nanoseconds after);

 private:
  /// The results are the caller's; on the loop, or where it is gone.
  virtual void handed_over() noexcept = 0;
  void hand_over();

  std::mutex mutex_;  // guards what the caller owns
  bool taken_ = false;
  controller& callers_control_;
  google::protobuf::Message& callers_response_;

  controller control_;
  std::unique_ptr<google::protobuf::Message> response_;
  std::shared_ptr<leavable_call> self_;
};

/// When a call that starts at `now` and has these settings is to end.
core::time_point end_of_call(const controller& control, const call_target& target, const call_origin& origin,
                             core::time_point now) noexcept;

}  // namespace braid::client
