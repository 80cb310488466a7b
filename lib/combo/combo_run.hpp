#pragma once

#include <braid/cancellation.hpp>
#include <braid/combo_channel.hpp>
#include <braid/spawn.hpp>

#include "client/call.hpp"
#include "client/call_target.hpp"
#include "client/sub_calls.hpp"

#include <google/protobuf/message.h>

#include <memory>
#include <string>
#include <vector>

namespace braid::combo {

class call_group_state;

/// What runs a combo call: the function in its coroutine.
class combo_function {
 public:
  virtual ~combo_function() = default;
  virtual void run(combo_call& call, yield_context yield) = 0;
  virtual std::string describe() const = 0;
};

/// One combo call at work: a node below the call, with the coroutine and the sub calls below itself.
///
/// It outlives the call when the call had to end without it, so it has a request and a scratch response of
/// its own.
class combo_run final : public cancel_node, private client::call_runner, private detail::coroutine_body {
 public:
  /// How the request and the settings are kept.
  enum class keep_request : bool {
    as_needed,  ///< Copied only if it may be gone when the start has returned: the function ends when
                ///< cancelled.
    always,     ///< The function may still run when the call has ended.
  };

  static std::unique_ptr<combo_run> make(client::call& of, keep_request keep);
  ~combo_run() override;

  /// Starts the coroutine; the run then owns itself. Without memory for it the call fails.
  static void start(std::unique_ptr<combo_run> run, std::unique_ptr<combo_function> function) noexcept;

  /// Ends the call instead of start().
  void refuse(const error_code& why, std::string_view text) noexcept;

  core::loop& home() const noexcept { return home_; }
  /// Null once the call has ended without this run.
  client::call* of() const noexcept { return call_; }
  const google::protobuf::MethodDescriptor& method() const noexcept { return method_; }
  const google::protobuf::Message& request() const noexcept { return *request_; }
  google::protobuf::Message& response() noexcept { return *response_; }
  /// What the user gave: of the function's own where the call may end without it.
  const controller& control() const noexcept {
    return kind_ == keep_request::as_needed && call_ ? call_->control() : kept_control_;
  }
  core::time_point deadline() const noexcept { return deadline_; }

  /// Room for `count` sub calls, which the call's controller will show instead of what it was to show before.
  client::sub_calls& new_subs(std::size_t count);
  /// The controller of a sub call, which has the parent's metadata when it is new.
  controller& sub_control(client::sub_calls& subs, std::size_t index) const noexcept;
  void add(std::shared_ptr<call_group_state> group) { groups_.push_back(std::move(group)); }

  /// What the call will end with when the function has returned.
  void set_result(const outcome& result, std::string_view text);

 private:
  combo_run(client::call& of, keep_request keep);

  void call_settled() noexcept override;
  void on_cancel(cancel_cause) noexcept override {}

  void run(yield_context yield) override;
  void failed(detail::failure why) noexcept override;
  void ended(const detail::loop_executor& home) noexcept override;
  void refused(const error_code&) noexcept override {}
  std::string describe() const override;
  void join(yield_context yield);
  void settle() noexcept;
  bool ended_by_other_than_deadline() const noexcept;
  bool is_late() const noexcept;

  core::loop& home_;
  client::call* call_;
  const google::protobuf::MethodDescriptor& method_;
  const google::protobuf::Message* request_;
  std::unique_ptr<google::protobuf::Message> request_copy_;
  std::unique_ptr<google::protobuf::Message> response_;
  core::time_point deadline_;
  keep_request kind_;
  controller kept_control_;
  std::unique_ptr<combo_function> function_;
  std::vector<std::unique_ptr<client::sub_calls>> subs_;  // the last is shown
  std::vector<std::shared_ptr<call_group_state>> groups_;
  bool has_result_ = false;
  outcome result_;
  std::string text_;
};

}  // namespace braid::combo
