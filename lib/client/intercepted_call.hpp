#pragma once

#include <braid/cancellation.hpp>
#include <braid/controller.hpp>
#include <braid/interceptor.hpp>
#include <braid/spawn.hpp>

#include "client/call.hpp"
#include "client/call_target.hpp"

#include <google/protobuf/message.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace braid::client {

using client_interceptors = std::vector<client_interceptor>;

/// What a channel with interceptors hands its calls to.
class intercepted_target final : public call_target {
 public:
  intercepted_target(std::shared_ptr<call_target> behind, client_interceptors chain);

  void start(call& started, const std::shared_ptr<call_target>& self) noexcept override;
  bool reaches(const call_target& there) const noexcept override {
    return this == &there || behind_->reaches(there);
  }
  bool usable() const noexcept override { return behind_->usable(); }
  int capacity() const noexcept override { return behind_->capacity(); }

  const client_interceptors& chain() const noexcept { return chain_; }
  const std::shared_ptr<call_target>& behind() const noexcept { return behind_; }

 private:
  const std::shared_ptr<call_target> behind_;
  const client_interceptors chain_;
};

/// A call with interceptors around it: a node below the call of the user, with the coroutine of the
/// interceptors and the call behind them below itself.
///
/// It outlives the user's call where that had to end without it, so it has a request, a response and a
/// controller of its own.
class intercepted_call final : public cancel_node,
                               private call_listener,
                               private call_runner,
                               private detail::coroutine_body {
 public:
  static void start(call& of, std::shared_ptr<const intercepted_target> target) noexcept;
  ~intercepted_call() override;

  const google::protobuf::MethodDescriptor& method() const noexcept { return method_; }
  const google::protobuf::Message& request() const noexcept { return *request_; }
  google::protobuf::Message& response() noexcept { return *response_; }

  /// Runs the interceptor of that index, or the call behind the last one.
  void run_from(std::size_t index, yield_context yield);
  void succeed() noexcept;

 private:
  class pause;

  intercepted_call(call& of, std::shared_ptr<const intercepted_target> target);

  void on_cancel(cancel_cause) noexcept override {}
  void on_settled(call&) noexcept override;
  void call_settled() noexcept override;

  // coroutine_body
  void run(yield_context yield) override { run_from(0, yield); }
  void failed(detail::failure why) noexcept override;
  void ended(const detail::loop_executor& home) noexcept override;
  void refused(const error_code&) noexcept override {}
  std::string describe() const override;

  void run_call(yield_context yield);
  void settle() noexcept;
  outcome result() const noexcept;
  bool is_late() const noexcept;

  core::loop& home_;
  call* call_;  // null once it has ended without this
  const std::shared_ptr<const intercepted_target> target_;
  const google::protobuf::MethodDescriptor& method_;
  const core::time_point deadline_;
  std::unique_ptr<google::protobuf::Message> request_;
  std::unique_ptr<google::protobuf::Message> response_;
  controller control_;
  std::optional<call> inner_;
  pause* waiting_ = nullptr;
};

}  // namespace braid::client
