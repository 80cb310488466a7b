#pragma once

#include <braid/cancellation.hpp>
#include <braid/endpoint.hpp>
#include <braid/error.hpp>

#include "core/loop.hpp"
#include "net/outbound_queue.hpp"
#include "net/progress_timer.hpp"
#include "net/transport.hpp"
#include "server/baidu_std_session.hpp"
#include "server/call_index.hpp"
#include "server/load.hpp"
#include "server/running_call.hpp"
#include "server/verification.hpp"

#include <boost/intrusive/list.hpp>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace braid::server_side {

class loop_part;

/// One client's connection: reads requests, sends answers, bounds both.
class connection final : private net::transport_events, private core::turn_end_hook {
 public:
  connection(loop_part& part, std::shared_ptr<net::transport> accepted);
  connection(const connection&) = delete;
  connection& operator=(const connection&) = delete;
  ~connection();

  void start();

  const endpoint& remote() const noexcept { return transport_->remote(); }
  loop_part& part() const noexcept { return part_; }
  connection_load& load() const noexcept { return *load_; }
  /// Its place in the part's list.
  std::size_t place() const noexcept { return place_; }
  void set_place(std::size_t place) noexcept { place_ = place; }

  bool closed() const noexcept { return closed_; }
  /// False once it is closed, and while too many answers wait to be sent or the client's credential is
  /// checked.
  bool takes_requests() const noexcept { return !closed_ && pauses_ == 0 && !parting_; }
  /// Whether requests that were read had to wait, so that a deadline may have passed meanwhile.
  bool holds_back() const noexcept { return held_back_; }
  bool has_unsent() const noexcept { return !queue_.empty(); }

  void call_began(running_call& began) noexcept {
    ++calls_;
    running_.push_back(began);
    if (indexed_) index_.insert(began);
  }
  void call_ended() noexcept;
  /// The client's wish; an id of no running call means nothing.
  void cancel_calls(std::int64_t id, cancel_cause cause) noexcept;
  void answer(running_call& finished) noexcept;
  void answer_error(std::int64_t id, const error_code& code, std::string_view text) noexcept;

  /// Lets the server's authenticator check what the first request carries; the session is told.
  void check_credential(std::string_view credential);
  /// The session has written something.
  void wrote() noexcept;

  /// Ends it; the calls that it brought are told that their peer has gone.
  void close(bool reset) noexcept;
  /// Reads no more; closes once all calls are answered and the answers sent.
  void close_when_done() noexcept;
  /// Sends what the transport takes at once, then ends it; `why` for a request that waits for its check.
  void close_after_flush(std::string_view why) noexcept;

 private:
  std::span<char> read_space() override { return session_.read_space(); }
  void on_read(std::size_t size) override;
  void on_writable() override;
  void on_broken(const error_code&) override { close(false); }
  void at_turn_end() noexcept override;

  void take_requests(std::size_t arrived) noexcept;
  void flush() noexcept;
  void checked(std::shared_ptr<const auth_context> who, const std::string& why) noexcept;
  void apply_backpressure() noexcept;
  void pause(unsigned why) noexcept;
  void resume(unsigned why) noexcept;
  void part_from_client() noexcept;
  void watch_reading(std::size_t arrived) noexcept;
  void watch_sending(std::size_t left) noexcept;
  void watch_use() noexcept;
  void idle_timer_fired() noexcept;
  void close_if_done() noexcept;

  void stalled() noexcept { close(true); }
  using progress_timer = net::progress_timer<connection, &connection::stalled>;
  struct idle_timer : core::timer_node {
    explicit idle_timer(connection& of) noexcept : timer_node(&idle_timer::fire), owner(of) {}
    static void fire(timer_node& node) { static_cast<idle_timer&>(node).owner.idle_timer_fired(); }
    connection& owner;
  };

  loop_part& part_;
  std::shared_ptr<net::transport> transport_;
  const boost::intrusive_ptr<connection_load> load_;
  net::outbound_queue queue_;
  baidu_std_session session_;
  verification verification_;
  progress_timer reading_;  // armed while a frame is incomplete
  progress_timer sending_;  // armed while answers cannot leave
  idle_timer idle_{*this};  // always armed
  core::time_point last_read_{};
  core::time_point arrived_{};  // what is taken now, or was held back: from when its deadlines count
  std::uint64_t frames_seen_ = 0;
  std::size_t calls_ = 0;
  std::size_t place_ = 0;
  boost::intrusive::list<running_call,
                         boost::intrusive::member_hook<running_call, running_call::connection_hook,
                                                       &running_call::of_connection>,
                         boost::intrusive::constant_time_size<false>>
      running_;
  call_index index_;  // filled from the client's first cancel on: one that cancels nothing pays nothing
  bool indexed_ = false;
  bool used_ = false;     // since idle_ was armed a call has ended
  bool blocked_ = false;  // the transport takes no more until on_writable()
  static constexpr unsigned unsent_answers = 1;
  static constexpr unsigned credential_checked = 2;
  unsigned pauses_ = 0;      // why it is not read from now
  bool held_back_ = false;   // requests that were read wait for that too
  bool parting_ = false;     // answers what it has to, then says end of file; what still comes is dropped
  bool read_ended_ = false;  // the client sends no more
  bool closed_ = false;
};

}  // namespace braid::server_side
