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
#include <optional>
#include <string>
#include <vector>

namespace braid::server_side {

class connection;
class loop_part;

/// The messages of one call, used again by later calls of the method.
struct message_pair {
  std::unique_ptr<google::protobuf::Message> request;
  std::unique_ptr<google::protobuf::Message> response;
};

/// One call at the server: a root of the cancellation tree below which the handler's coroutine and its calls
/// are.
///
/// It lives until the handler's coroutine has ended and `done` was run, also when the call was answered
/// without them: at its deadline, or because its client is gone.
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

  google::protobuf::Message& request() noexcept { return *messages_.request; }
  const google::protobuf::Message& response() const noexcept { return *messages_.response; }
  /// Keeps its place within the limits until it is destroyed.
  void occupy(call_place place) noexcept { place_.emplace(std::move(place)); }
  std::shared_ptr<metadata>& incoming() noexcept { return request_metadata_; }
  void set_auth(std::shared_ptr<const auth_context> who) noexcept { auth_ = std::move(who); }
  std::string describe() const override;

  /// Starts the handler; may end and destroy this.
  void start() noexcept;
  /// Answers without the handler; destroys this. Before start() only.
  void refuse(const error_code& code, std::string_view text) noexcept;
  /// The connection is gone: cancels, and answers no more.
  void connection_lost() noexcept;
  /// The client wants no answer any more: the same.
  void cancelled_by_client(cancel_cause cause) noexcept;

  // server_call
  const google::protobuf::MethodDescriptor& method() const noexcept override { return *method_.descriptor; }
  const endpoint& remote_side() const noexcept override { return remote_side_; }
  std::chrono::steady_clock::time_point deadline() const noexcept override { return deadline_; }
  const auth_context* auth() const noexcept override { return auth_.get(); }
  cancel_cause cancelled() const noexcept override { return shown_cause_.load(std::memory_order_acquire); }
  void NotifyOnCancel(google::protobuf::Closure* callback) override;

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
  void finish() noexcept;
  void finish_without_loop() noexcept;
  void notify() noexcept;
  void notify_later() noexcept;
  void answer() noexcept;
  void answer_with(const error_code& code, std::string_view text) noexcept;
  void leave_connection() noexcept;
  void destroy_if_over() noexcept;
  void run_notifications() noexcept;

  struct deadline_timer : core::timer_node {
    explicit deadline_timer(running_call& of) noexcept : timer_node(&deadline_timer::fire), owner(of) {}
    static void fire(timer_node& node) {
      static_cast<deadline_timer&>(node).owner.cancel(cancel_cause::deadline);
    }
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
  deadline_timer timer_{*this};
  notify_node notify_{*this};
  std::vector<google::protobuf::Closure*> notifications_;
  std::atomic<cancel_cause> shown_cause_{cancel_cause::none};
  std::atomic<bool> done_called_{false};
  bool finished_ = false;  // `done` was run, and has arrived on the loop
  bool coroutine_ended_ = false;
  bool loop_ended_ = false;
};

}  // namespace braid::server_side
