#pragma once

#include <braid/call_completion.hpp>

#include "client/call.hpp"
#include "client/call_origin.hpp"
#include "client/call_target.hpp"
#include "core/cancel_handle.hpp"
#include "core/loop.hpp"

#include <google/protobuf/message.h>

#include <memory>
#include <optional>
#include <string>

namespace braid::client {

/// What a user said when starting a call.
struct call_request {
  const google::protobuf::MethodDescriptor* method;
  const google::protobuf::Message* request;
  google::protobuf::Message* response;
  controller* control;  ///< Null: the call brings its own.
};

/// The call that a user started: the root of a tree, or below the server call that the user's handler runs
/// for.
class root_call : public call_listener, private core::live_node {
 public:
  root_call(core::loop& home, const call_request& wanted, std::shared_ptr<detail::cancel_handle> cancel);
  root_call(const root_call&) = delete;
  root_call& operator=(const root_call&) = delete;

  /// The caller's request may be gone once the initiating function has returned.
  void set_request_borrowed() noexcept { call_.set_request_lives(control_.request_outlives_call()); }
  /// Starts it, on its loop, in the initiating function.
  void begin(const std::shared_ptr<call_target>& target) noexcept {
    begin(target, call_origin::here(control_, home()), started_);
  }
  /// Starts it, on its loop, later. `origin`: of the code that started it, which is elsewhere.
  void begin_later(const std::shared_ptr<call_target>& target, const call_origin& origin) noexcept {
    begin(target, origin, home().now());
  }
  /// Keeps a copy of the request, since the caller's will be gone when the call starts.
  void copy_request();
  bool serialise(std::string& why) { return call_.serialise(why); }
  /// Requests to cancel that `name` gets reach the call. On its loop, or on a thread that keeps it from
  /// ending and before anybody else has the name.
  void bind_name(detail::cancel_handle& name) noexcept;

  controller& control() noexcept { return control_; }
  const error_code& error() const noexcept { return control_.error(); }
  core::loop& home() const noexcept { return call_.home(); }

 protected:
  ~root_call();
  /// Requests to cancel have no effect from now on.
  void end_names() noexcept;

  /// The call has ended; on its loop, in any context.
  virtual void ended() noexcept = 0;

 private:
  void on_settled(call&) noexcept final;
  void cancel_for_shutdown() noexcept override { call_.cancel(cancel_cause::shutdown); }
  std::string describe() const override;
  void begin(const std::shared_ptr<call_target>& target, const call_origin& origin,
             core::time_point now) noexcept;
  void bind_names() noexcept;

  std::optional<controller> own_control_;
  controller& control_;
  call call_;
  const core::time_point started_;  // the time of connecting and of queueing counts, also that of a busy loop
  std::unique_ptr<google::protobuf::Message> request_copy_;
  std::shared_ptr<detail::cancel_handle> slot_handle_;
  std::shared_ptr<caller_link> caller_link_;
  std::unique_ptr<core::scope_link> scope_link_;
};

/// A root call that tells a completion handler. It deletes itself.
class async_root_call final : public root_call, private core::ready_node {
 public:
  static async_root_call* create(core::loop& home, const call_request& wanted,
                                 detail::call_completion* completion,
                                 std::shared_ptr<detail::cancel_handle> cancel);
  /// Instead of begin(): the loop takes no more calls.
  void end_without_loop() noexcept;

 private:
  async_root_call(core::loop& home, const call_request& wanted, detail::call_completion* completion,
                  std::shared_ptr<detail::cancel_handle> cancel);
  ~async_root_call() = default;
  void ended() noexcept override { home().make_ready(*this); }
  static void run_ready(core::ready_node& node) noexcept;
  detail::call_completion* destroy() noexcept;

  detail::call_completion* completion_;
};

}  // namespace braid::client
