#pragma once

/// \file
/// For writing a combo channel: a channel whose call is a coroutine over sub calls on other channels.

#include <braid/cancellation.hpp>
#include <braid/channel_base.hpp>
#include <braid/config.hpp>
#include <braid/controller.hpp>
#include <braid/coroutine.hpp>
#include <braid/outcome.hpp>

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <chrono>
#include <concepts>
#include <cstddef>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

namespace braid {

namespace combo {
class combo_run;
class call_group_state;
}  // namespace combo

struct finished_sub_call;

/// One call on a combo channel, as the combo's coroutine sees it.
///
/// What it does: run() says by succeed(), fail(), finish() or finish_as() how the call ends; the last of them
/// before it returns counts.
///
/// Cancellation: what is said after the call's cancellation counts only where the deadline was the cause; see
/// combo_channel.
///
/// Object lifetimes: valid until run() returns, as are the references that it gives.
///
/// Thread safety: for the combo's coroutine only.
class combo_call {
 public:
  /// For the library's own layers.
  explicit combo_call(combo::combo_run& of) noexcept : run_(of) {}

  /// The method that the user calls.
  const google::protobuf::MethodDescriptor& method() const noexcept;
  /// The request: a copy of the user's, since run() may go on when the call has ended without it.
  const google::protobuf::Message& request() const noexcept;
  /// A scratch copy of the user's response, empty at first; it is swapped into the user's when the call
  /// succeeds.
  google::protobuf::Message& response() noexcept;
  /// The settings and metadata that the user gave; for reading.
  const controller& control() const noexcept;
  /// When the call ends.
  std::chrono::steady_clock::time_point deadline() const noexcept;

  /// Ends the call well. `partial`: some sub call did not contribute.
  void succeed(bool partial = false);
  /// Ends the call badly.
  void fail(const error_code& code, std::string_view text);
  /// Ends the call as `result` says, with a text for the controller.
  void finish(const outcome& result, std::string_view text);
  /// Ends the call as a sub call ended: with its code, text and remote side, its response and its attachment.
  /// A response of another type than the call's makes it errc::bad_response.
  void finish_as(const finished_sub_call& sub);

  /// For the library's own layers.
  combo::combo_run& state() const noexcept { return run_; }

 private:
  combo::combo_run& run_;
};

/// What a sub call sends and where its answer goes. Everything unset is the parent's.
struct sub_call_request {
  /// Null: the parent's. Else it must outlive the sub call.
  const google::protobuf::MethodDescriptor* method = nullptr;
  /// Null: `owned_request`, else the parent's. Borrowed until the sub call has ended.
  const google::protobuf::Message* request = nullptr;
  /// Null: a new message of the response's type, kept with the sub call.
  google::protobuf::Message* response = nullptr;
  /// A request that the sub call owns, for a null `request`.
  std::unique_ptr<google::protobuf::Message> owned_request{};
  /// A response that the sub call owns, for a null `response`.
  std::unique_ptr<google::protobuf::Message> owned_response{};
  /// Unset: the parent's deadline. Later than the parent's: has no effect.
  std::optional<std::chrono::steady_clock::time_point> deadline{};
};

/// A sub call that has ended.
struct finished_sub_call {
  /// The one that launch() was given.
  std::size_t index;
  /// How it ended.
  const outcome& result;
  /// Its controller, of which the user's sub(index) is the same.
  const controller& control;
  /// Its response; empty or partly filled when it failed.
  google::protobuf::Message& response;
};

/// The sub calls of one combo call: launches them and hands them back as they end.
///
/// What it does: launch() starts a sub call below the combo call in the cancellation tree; next() suspends
/// until one has ended and returns it, or null when all have been returned. Once the combo call itself is
/// cancelled (its deadline included), next() waits for all of them and then returns them in the order of
/// their indices.
///
/// Cancellation: the combo call's reaches each sub call, with its cause. next() and cancel_rest() are not cut
/// short by it, nor refused after it: they return when the sub calls have ended, which cancelled ones do at
/// once.
///
/// Errors: launch() and at() throw as they say. next() and cancel_rest() throw std::logic_error outside of
/// the coroutine of `yield`, and else nothing: how a sub call ended is in its finished_sub_call.
///
/// Object lifetimes: a local variable of the combo's coroutine, one for each call. Leaving its scope cancels
/// what is left; the combo call ends only when that has ended too: no sub call lives on.
///
/// Thread safety: for the combo's coroutine only; one next() or cancel_rest() at a time.
class call_group {
 public:
  /// For `parent`'s call. `count`: how many sub calls the user's controller shows; indices are below it.
  /// Of several groups the controller shows the last.
  call_group(combo_call& parent, std::size_t count);
  call_group(const call_group&) = delete;
  call_group& operator=(const call_group&) = delete;
  ~call_group();

  /// Starts sub call `index` on `on`, once for each index: std::out_of_range and std::logic_error otherwise.
  /// Throws std::invalid_argument where there is no response and the method is not of generated code.
  /// A channel of another runtime runs it on a loop of its own. Messages that are borrowed must live until
  /// the sub call has ended. Once the combo call is cancelled the sub call ends at once with the same cause
  /// and sends nothing.
  void launch(std::size_t index, channel_base& on, sub_call_request request = {});
  /// The controller that sub call `index` will have, for settings of its own; before its launch.
  /// Throws std::out_of_range.
  controller& control(std::size_t index);

  /// The next sub call that has ended; null: all were returned.
  const finished_sub_call* next(yield_context yield);

  /// Cancels the sub calls still running with `cause` and waits for them. They are returned by next() as
  /// well.
  void cancel_rest(cancel_cause cause, yield_context yield);

  /// Sub call `index`, which has ended; else std::logic_error is thrown.
  finished_sub_call at(std::size_t index) const;
  /// How many were launched and have not ended.
  std::size_t running() const noexcept;

 private:
  std::shared_ptr<combo::call_group_state> state_;
};

/// The base of a user's own combo channel.
///
/// What it does: each call on it runs run() in a coroutine of the call's loop. When run() returns without
/// having ended the call, the call fails with errc::internal, as it does when run() throws (which is logged).
///
/// Cancellation: the waits of run() end early, and run() should return soon. When the cause is the deadline,
/// what it returns at once still counts, also a success; that it throws, or fails with the "aborted" of a
/// wait, makes errc::timed_out. With any other cause the call ends with 125 whatever run() says. If it does
/// not return in the turn of the cancellation, the call ends without it: it keeps its own request and scratch
/// response, the controller shows no sub calls, and what it says later is dropped.
///
/// Object lifetimes: what run() uses must live as long as calls run: keep it in shared state, see run().
///
/// Thread safety: run() runs for several calls at once, on different threads.
class combo_channel : public channel_base {
 public:
  /// The behaviour of a combo channel, kept alive by its calls when the channel itself is destroyed.
  class behaviour {
   public:
    virtual ~behaviour() = default;
    /// One call, in a coroutine of its loop; see the class.
    virtual void run(combo_call& call, yield_context yield) = 0;
    /// What channel_base::usable() says.
    virtual bool usable() const noexcept { return true; }
    /// What channel_base::capacity() says.
    virtual int capacity() const noexcept { return 1; }
  };

  /// `timeout`: as channel_options::timeout.
  combo_channel(const runtime& rt, std::shared_ptr<behaviour> behaviour,
                std::chrono::nanoseconds timeout = std::chrono::milliseconds(500));
  /// From a function or a lambda.
  template <std::invocable<combo_call&, yield_context> Function>
  combo_channel(const runtime& rt, Function function,
                std::chrono::nanoseconds timeout = std::chrono::milliseconds(500))
      : combo_channel(rt, std::make_shared<function_behaviour<Function>>(std::move(function)), timeout) {}
  ~combo_channel() override;

 private:
  template <typename Function>
  class function_behaviour final : public behaviour {
   public:
    explicit function_behaviour(Function function) : function_(std::move(function)) {}
    void run(combo_call& call, yield_context yield) override { function_(call, yield); }

   private:
    Function function_;
  };
};

}  // namespace braid
