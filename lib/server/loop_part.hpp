#pragma once

#include <braid/server.hpp>

#include "core/loop.hpp"
#include "net/transport.hpp"
#include "server/connection.hpp"
#include "server/method_table.hpp"
#include "server/running_call.hpp"
#include "server/server_settings.hpp"

#include <boost/intrusive/list.hpp>

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace braid::server_side {

class server_core;

/// What a server has on one loop: connections, running calls, listeners. Used on that loop only.
class loop_part final : public std::enable_shared_from_this<loop_part>, private core::turn_end_hook {
 public:
  loop_part(core::loop& home, std::shared_ptr<server_settings> server);
  ~loop_part();

  core::loop& home() const noexcept { return home_; }
  const server_options& options() const noexcept { return server_->options; }
  const method_table& methods() const noexcept { return server_->methods; }
  concurrency_limit& concurrency() const noexcept { return server_->concurrency; }
  const std::shared_ptr<server_load>& load() const noexcept { return server_->load; }

  void add(std::shared_ptr<net::transport> accepted);
  void add(running_call& call) noexcept { calls_.push_back(call); }
  /// `events` is who the listener reports to.
  void add(std::unique_ptr<net::listener> listener, std::shared_ptr<server_core> events) {
    listeners_.push_back({std::move(events), std::move(listener)});
  }
  /// Removed at the end of the turn.
  void remove(connection& closed) noexcept;

  /// Where the next call of a method is handled; null: on the method's executor.
  core::loop* next_loop_for(const method_entry& method) noexcept;

  message_pair take_messages(const method_entry& method);
  /// \param request_size in bytes, as it came: what the request may have reserved.
  void recycle(const method_entry& method, message_pair messages, std::size_t request_size) noexcept;
  /// A call has been destroyed.
  void call_over() noexcept;
  // Each at most once a second: a peer must not be able to fill a disk.

  void log_unanswered(const google::protobuf::MethodDescriptor& method) noexcept;
  void log_dropped(const google::protobuf::MethodDescriptor& method) noexcept;
  void log_broken(const endpoint& peer, std::string_view why) noexcept;
  void log_no_memory(const endpoint& peer) noexcept;
  void log_refused(const endpoint& peer, std::string_view why) noexcept;
  void log_accept_failed(const error_code& why) noexcept;
  /// `what` says which handler or interceptor threw what.
  void log_threw(std::string_view what) noexcept;

  /// Held while a call is destroyed without the loop, which has ended.
  std::mutex& after_the_end() noexcept { return after_the_end_; }

  wire::frame_scratch& scratch() noexcept { return scratch_; }

  bool stopping() const noexcept { return stopping_ || home_.stopping(); }
  /// A connection has sent all that it had.
  void all_sent() noexcept { call_over(); }
  /// Stops; `stopped` is called once, on the loop, with the names of the handlers that did not end in time.
  /// Of several stops the shortest times count.
  void stop(const stop_options& how, std::function<void(std::vector<std::string>)> stopped);
  /// Ends connections and calls with this turn, not in here: the runtime stops, perhaps inside of one of
  /// them, or nobody waits for a stop any more.
  void shut_down() noexcept;

 private:
  void at_turn_end() noexcept override;
  void cancel_calls() noexcept;
  void stop_timer_fired() noexcept;
  bool has_ended() const noexcept;
  void finish_stop() noexcept;

  struct listening {
    std::shared_ptr<server_core> events;
    std::unique_ptr<net::listener> listener;
  };

  struct rare_line {
    core::time_point next = core::time_point::min();
    std::size_t unlogged = 0;
  };
  void log_rarely(rare_line& line, std::string_view text, std::vector<log_field> fields,
                  log_level level = log_level::warning) noexcept;

  struct stop_timer : core::timer_node {
    explicit stop_timer(loop_part& of) noexcept : timer_node(&stop_timer::fire), owner(of) {}
    static void fire(timer_node& node) { static_cast<stop_timer&>(node).owner.stop_timer_fired(); }
    loop_part& owner;
  };

  static constexpr std::size_t kept_messages = 256;  // for each method

  core::loop& home_;
  std::shared_ptr<server_settings> server_;
  std::vector<listening> listeners_;
  wire::frame_scratch scratch_;
  std::vector<std::unique_ptr<connection>> connections_;
  std::vector<std::unique_ptr<connection>> closed_;
  boost::intrusive::list<running_call, boost::intrusive::constant_time_size<false>> calls_;
  std::vector<std::vector<message_pair>> messages_;  // by the method's index
  rare_line unanswered_;
  rare_line dropped_;
  rare_line broken_;
  rare_line no_memory_;
  rare_line refused_;
  rare_line accept_failed_;
  rare_line threw_;

  std::size_t next_loop_;  // of the calls that are spread over the loops

  bool stopping_ = false;
  bool killing_ = false;                                 // running calls were cancelled
  bool over_ = false;                                    // nothing is waited for any more
  bool holds_work_ = false;                              // while it stops
  core::time_point stop_end_ = core::time_point::max();  // of the grace, then of the kill time
  std::chrono::milliseconds kill_time_ = std::chrono::milliseconds::max();
  stop_timer stop_timer_{*this};
  std::shared_ptr<loop_part> self_;  // while it stops, which may be after the server's end
  std::vector<std::function<void(std::vector<std::string>)>> stopped_;
  std::mutex after_the_end_;
};

/// The parts of all servers on one loop, so that a runtime that stops ends them.
class loop_parts final : public core::loop_service {
 public:
  explicit loop_parts(core::loop& home) noexcept : home_(home) {}
  void add(const std::shared_ptr<loop_part>& part) {
    std::erase_if(parts_, [](const auto& each) { return each.expired(); });
    parts_.push_back(part);
    if (home_.stopping()) part->shut_down();
  }
  void shutdown() noexcept override {
    for (auto& each : parts_)
      if (const auto part = each.lock()) part->shut_down();
  }

 private:
  core::loop& home_;
  std::vector<std::weak_ptr<loop_part>> parts_;
};

}  // namespace braid::server_side
