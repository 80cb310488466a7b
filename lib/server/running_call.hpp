#pragma once

#include <braid/cancellation.hpp>
#include <braid/server.hpp>
#include <braid/spawn.hpp>

#include "core/loop.hpp"
#include "server/call_index.hpp"
#include "server/load.hpp"
#include "server/method_table.hpp"

#include <boost/intrusive/list.hpp>
#include <google/protobuf/service.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace braid::server_side {

class connection;
class handler_chain;
class handler_run;
class loop_part;

/// The messages of one call, used again by later calls of the method.
struct message_pair {
  std::unique_ptr<google::protobuf::Message> request;
  std::unique_ptr<google::protobuf::Message> response;
};

/// One call at the server: a root of the cancellation tree below which the handler's coroutine and its calls
/// are.
///
/// It lives until the handler has ended and `done` was run, also when the call was answered without them: at
/// its deadline, or because its client is gone. The handler runs in a coroutine of this loop, which is part
/// of this object, or as a handler_run.
class running_call final
    : public server_call,
      public cancel_node,
      public indexed_call,
      public boost::intrusive::list_base_hook<boost::intrusive::link_mode<boost::intrusive::auto_unlink>>,
      public detail::coroutine_body,
      private google::protobuf::Closure {
 public:
  running_call(loop_part& part, connection& from, const method_entry& method, std::int64_t id,
               message_pair messages, core::time_point deadline);

  core::loop& home() const noexcept;
  const method_entry& entry() const noexcept { return method_; }
  google::protobuf::Message& request() noexcept { return *messages_.request; }
  google::protobuf::Message& response() noexcept { return *messages_.response; }
  const google::protobuf::Message& response() const noexcept { return *messages_.response; }
  /// Keeps its place within the limits until it is destroyed.
  void occupy(call_place place) noexcept { place_.emplace(std::move(place)); }
  std::shared_ptr<metadata>& incoming() noexcept { return request_metadata_; }
  void set_auth(std::shared_ptr<const auth_context> who) noexcept { auth_ = std::move(who); }
  std::string describe() const override;

  /// Starts the handler; may end and destroy this.
  void start() noexcept;
  /// The connection is gone: cancels, and answers no more.
  void connection_lost() noexcept;
  /// The client wants no answer any more: the same.
  void cancelled_by_client(cancel_cause cause) noexcept;
  /// The server stops: cancels, and lets the interceptors go, also where something else cancelled before.
  void shut_down() noexcept;

  // What a handler_run tells, on any thread: one of the first three, once.

  void handler_returned(bool answers) noexcept;
  /// `fails`: the call; else `done` was called before, and may be on its way.
  void handler_threw(detail::failure why, bool fails = true) noexcept;
  /// The handler never ran.
  void handler_refused(const error_code& code, std::string_view text) noexcept;
  /// Nobody can run done() any more.
  void done_dropped() noexcept;

  /// Runs the handler in the coroutine of `yield`; returns whether it has answered by returning.
  bool invoke(yield_context yield);
  google::protobuf::Closure& done() noexcept { return *this; }

  // For the interceptors' chain, on the loop.

  /// Starts the handler where it runs otherwise than in this call's own coroutine; else returns false.
  bool start_apart() noexcept;
  /// Logs what `who` threw; of a call that is over for the curious only.
  void report(const detail::failure& why, std::string_view who) noexcept;

  // What changes the call's error; not once the chain has given up, when that is the handler's alone.

  /// `who` has failed the call by throwing.
  void fail(std::string_view who) noexcept;
  void clear_failure() noexcept;
  /// Shows a cancellation as the call's error.
  void show_cancellation() noexcept;

  // server_call
  const google::protobuf::MethodDescriptor& method() const noexcept override { return *method_.descriptor; }
  const endpoint& remote_side() const noexcept override { return remote_side_; }
  std::chrono::steady_clock::time_point deadline() const noexcept override { return deadline_; }
  const auth_context* auth() const noexcept override { return auth_.get(); }
  cancel_cause cancelled() const noexcept override { return shown_cause_.load(std::memory_order_acquire); }
  void NotifyOnCancel(google::protobuf::Closure* callback) override;
  boost::asio::any_io_executor get_executor() override;
  std::shared_ptr<core::call_scope> scope() override;

  /// Its place among the calls of its connection, until it has left that.
  using connection_hook =
      boost::intrusive::list_member_hook<boost::intrusive::link_mode<boost::intrusive::auto_unlink>>;
  connection_hook of_connection;

 private:
  ~running_call() override;

  // coroutine_body
  void run(yield_context yield) override;
  void failed(detail::failure why) noexcept override;
  void ended(const detail::loop_executor& home) noexcept override;
  void refused(const error_code& why) noexcept override;

  // google::protobuf::Closure: the handler's `done`
  void Run() override;

  void on_cancel(cancel_cause cause) noexcept override;
  /// Whether it was cancelled, or its deadline is due.
  bool is_over() const noexcept;
  /// Answers without the handler, which cannot be started; destroys this.
  void refuse(const error_code& code, std::string_view text) noexcept;
  template <typename Function>
  bool on_loop(Function function) noexcept;
  void finish() noexcept;
  void answered() noexcept;
  void part_over() noexcept;
  void note_without_loop(bool part_over, bool finished) noexcept;
  void timer_fired() noexcept;
  void notify() noexcept;
  void notify_later() noexcept;
  void answer() noexcept;
  void answer_with(const error_code& code, std::string_view text) noexcept;
  void leave_connection() noexcept;
  void destroy_if_over() noexcept;
  void run_notifications() noexcept;

  struct call_timer : core::timer_node {
    explicit call_timer(running_call& of) noexcept : timer_node(&call_timer::fire), owner(of) {}
    static void fire(timer_node& node) { static_cast<call_timer&>(node).owner.timer_fired(); }
    running_call& owner;
  };
  struct notify_node : core::ready_node {
    explicit notify_node(running_call& of) noexcept : ready_node(&notify_node::run), owner(of) {}
    static void run(ready_node& node) noexcept { static_cast<notify_node&>(node).owner.notify(); }
    running_call& owner;
    bool queued = false;  // also while it runs
  };

  std::shared_ptr<loop_part> part_;
  connection* connection_;  // null: gone, or answered
  const method_entry& method_;
  std::optional<call_place> place_;
  message_pair messages_;
  const endpoint remote_side_;
  std::shared_ptr<const auth_context> auth_;  // null: the server asks for no credentials
  core::time_point deadline_;
  call_timer timer_{*this};  // to the deadline; once it is cancelled: of a handler that does not answer
  notify_node notify_{*this};
  std::mutex mutex_;  // guards what may be asked for on any thread: up to run_, which only the loop changes
  std::vector<google::protobuf::Closure*> notifications_;
  std::shared_ptr<core::call_scope> scope_;  // of calls that are made for this one; run_ where there is one
  handler_run* run_ = nullptr;
  handler_chain* chain_ = nullptr;  // while interceptors run: they decide when this is answered
  std::atomic<cancel_cause> shown_cause_{cancel_cause::none};
  std::atomic<bool> done_called_{false};
  std::atomic<int> notices_on_their_way_{0};  // of NotifyOnCancel to the loop
  bool finished_ = false;                     // `done` was run, and has arrived on the loop
  int running_ = 0;                           // its own coroutine and its handler_run, as long as they run
  bool dropped_ = false;                      // nobody can run `done`
  bool loop_ended_ = false;
};

}  // namespace braid::server_side
