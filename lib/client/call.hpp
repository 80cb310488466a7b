#pragma once

#include <braid/buffer.hpp>
#include <braid/cancellation.hpp>
#include <braid/controller.hpp>
#include <braid/outcome.hpp>

#include "core/loop.hpp"
#include "wire/payload.hpp"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <memory>
#include <string>
#include <string_view>

namespace braid::client {

class answer_sink;

/// Who is told of the end of a call: what the user started, or the group of a combo.
class call_listener {
 public:
  /// On the call's loop, in any context: user code is only made ready here.
  virtual void on_settled(call& ended) noexcept = 0;

 protected:
  ~call_listener() = default;
};

/// A combo's coroutine, which runs for a call and may have to go on without it.
class call_runner {
 public:
  /// The call is settled and about to go; what the runner still does for it is dropped.
  virtual void call_settled() noexcept = 0;

 protected:
  ~call_runner() = default;
};

/// One call: a node of the cancellation tree with a method, messages, a deadline and, at the end, an outcome.
///
/// What runs it (an attempt on a connection, a combo's coroutine) hangs below it in the tree and settles it.
class call final : public cancel_node {
 public:
  call(core::loop& home, const google::protobuf::MethodDescriptor& method,
       const google::protobuf::Message& request, google::protobuf::Message& response, controller& control,
       call_listener& listener) noexcept;
  ~call() override;

  core::loop& home() const noexcept { return home_; }
  const google::protobuf::MethodDescriptor& method() const noexcept { return method_; }
  const google::protobuf::Message& request() const noexcept { return *request_; }
  google::protobuf::Message& response() const noexcept { return response_; }
  controller& control() const noexcept { return control_; }
  const metadata& request_metadata() const noexcept { return control_.request_metadata(); }
  core::time_point started() const noexcept { return started_; }
  /// When its loop began with it: later than started() where another thread started it.
  core::time_point begun() const noexcept { return begun_; }
  void set_begun(core::time_point when) noexcept { begun_ = when; }
  core::time_point deadline() const noexcept { return deadline_; }

  /// Sets the instant at which the call ends with 1008.
  void set_deadline(core::time_point started, core::time_point deadline);
  /// The same for a sub call, which the parent's deadline ends: an instant and no timer.
  void inherit_deadline(core::time_point started, core::time_point deadline) noexcept;
  /// What it will send when the request is gone by then.
  void replace_request(const google::protobuf::Message& copy) noexcept { request_ = &copy; }
  /// Takes the payload of another call, which sends the same message in the same format and outlives this
  /// one.
  void share_payload(call& source) noexcept { payload_source_ = &source; }

  /// Makes this stand for a call of another loop: it sends these bytes and metadata, and leaves its answer
  /// unread to `sink`.
  void carry(wire::payload payload, std::shared_ptr<metadata> carried, answer_sink& sink) noexcept;
  answer_sink* sink() const noexcept { return sink_; }
  /// The metadata of the request, for another loop; null: there is none.
  std::shared_ptr<metadata> copy_metadata() const;

  /// The request as it travels, made once. False: it cannot be serialised; `why` says what is wrong.
  bool serialise(std::string& why);
  const wire::payload& payload() const noexcept {
    return payload_source_ ? payload_source_->payload() : payload_;
  }
  bool has_payload() const noexcept {
    return payload_source_ ? payload_source_->has_payload() : has_payload_;
  }
  bool shares_payload() const noexcept { return payload_source_ != nullptr; }

  /// Ends the call, once. A cancelled call ends with its cause's code whatever `result` says, except that
  /// what was finished when the deadline came still counts.
  void settle(const outcome& result, std::string_view text) noexcept;
  void settle_cancelled() noexcept;
  bool settled() const noexcept { return settled_; }
  const outcome& result() const noexcept { return control_.result_; }

  /// The sub call of a parallel call that has what it needs: its code will be 1006 rather than 125.
  bool cancel_as_finished(cancel_cause cause) noexcept;

  /// A combo's coroutine runs for this call: when the call is cancelled, it waits for it until the end of the
  /// turn.
  void set_runner(call_runner& runner) noexcept { runner_ = &runner; }

  /// Whether the request may be used until the call has ended; else only until its start returns.
  bool request_lives() const noexcept { return request_lives_; }
  void set_request_lives(bool lives) noexcept { request_lives_ = lives; }

  /// A byte of the request was handed to a transport.
  void note_sent() noexcept { sent_ = true; }
  bool anything_sent() const noexcept override { return sent_ || cancel_node::anything_sent(); }

  // What an attempt notes on the controller.
  void note_attempt(const endpoint& to) noexcept {
    control_.remote_side_ = to;
    ++control_.attempts_;
  }
  void note_remote(const endpoint& resolved) noexcept { control_.remote_side_ = resolved; }
  /// Forgets what was read of an answer that cannot be read whole.
  void drop_answer() noexcept {
    response_.Clear();
    control_.response_metadata_.reset();
  }
  /// Makes the controller show how a sub call ended; what that has sent, this has.
  void copy_up(const controller& sub);
  static void clear_failure(controller& of) noexcept {
    of.error_ = {};
    of.text_.clear();
  }
  /// The attempts of a combo's most expensive path.
  void set_path_attempts(int attempts) noexcept { control_.attempts_ = attempts; }
  void set_sub_calls(std::unique_ptr<sub_calls> subs) noexcept;

 private:
  void on_cancel(cancel_cause cause) noexcept override;

  struct deadline_timer : core::timer_node {
    explicit deadline_timer(call& of) noexcept : timer_node(&deadline_timer::fire), owner(of) {}
    static void fire(timer_node& node) {
      static_cast<deadline_timer&>(node).owner.cancel(cancel_cause::deadline);
    }
    call& owner;
  };
  /// Settles a cancelled combo call whose coroutine has not returned by the end of the turn.
  struct overdue_hook final : core::turn_end_hook {
    explicit overdue_hook(call& of) noexcept : owner(of) {}
    void at_turn_end() noexcept override { owner.settle_cancelled(); }
    call& owner;
  };

  core::loop& home_;
  const google::protobuf::MethodDescriptor& method_;
  const google::protobuf::Message* request_;
  google::protobuf::Message& response_;
  controller& control_;
  call_listener& listener_;
  core::time_point started_{};
  core::time_point begun_{};
  core::time_point deadline_ = core::time_point::max();
  deadline_timer timer_{*this};
  overdue_hook overdue_{*this};
  call_runner* runner_ = nullptr;
  call* payload_source_ = nullptr;
  answer_sink* sink_ = nullptr;
  wire::payload payload_;
  bool has_payload_ = false;
  bool settled_ = false;
  bool sent_ = false;
  bool request_lives_ = true;
  bool finished_by_sibling_ = false;
};

}  // namespace braid::client
