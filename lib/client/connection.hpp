#pragma once

#include <braid/endpoint.hpp>
#include <braid/error.hpp>

#include "client/attempt.hpp"
#include "client/client_session.hpp"
#include "client/connection_settings.hpp"
#include "core/loop.hpp"
#include "net/outbound_queue.hpp"
#include "net/resolver.hpp"
#include "net/transport.hpp"

#include <boost/intrusive/list.hpp>

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace braid::client {

class connection_table;

/// One loop's connection to one server: connected when a call needs it, shared by all calls, connected anew
/// after it broke.
class connection final : private net::transport_events,
                         private net::connect_events,
                         private core::turn_end_hook {
 public:
  connection(core::loop& home, connection_table& table, const connection_settings& settings);
  connection(const connection&) = delete;
  connection& operator=(const connection&) = delete;
  ~connection();

  /// Sends the attempt's request now, or once connected.
  void take(attempt& started) noexcept;
  /// The attempt is cancelled.
  void forget(attempt& cancelled, cancel_cause cause) noexcept;

  const endpoint& remote() const noexcept { return remote_; }
  core::loop& home() const noexcept { return home_; }
  /// Whether the byte at `position` of the stream, and what is before it, was handed to the transport.
  bool has_sent_from(std::uint64_t position) const noexcept {
    return queue_.bytes_appended_total() - queue_.size() > position;
  }
  const connection_settings& settings() const noexcept { return settings_; }

  /// Channels and attempts that need this object. Without any it closes.
  void add_user() noexcept { ++users_; }
  void remove_user() noexcept {
    if (--users_ == 0) unused();
  }

  /// Ends everything with a code.
  void close(const error_code& why, std::string_view text) noexcept;

 private:
  enum class state : unsigned char { idle, resolving, connecting, open };

  // Connecting.
  void connect() noexcept;
  void resolve() noexcept;
  void connect_next() noexcept;
  void connect_timed_out() noexcept;
  void connect_failed(const error_code& why, std::string_view text) noexcept;
  void on_connected(std::unique_ptr<net::transport> connected) override;
  void on_connect_failed(const error_code& why) override;

  // Talking.
  std::span<char> read_space() override { return session_->read_space(); }
  void on_read(std::size_t size) override;
  void on_writable() override;
  void on_broken(const error_code& why) override;
  void at_turn_end() noexcept override { flush(); }
  void send(attempt& started) noexcept;
  void send_waiting() noexcept;
  attempt& take_waiting() noexcept;
  void flush() noexcept;
  void flush_later() noexcept;
  void broken(const error_code& why, std::string_view text) noexcept;
  void unused() noexcept;

  struct connect_timer : core::timer_node {
    explicit connect_timer(connection& of) noexcept : timer_node(&connect_timer::fire), owner(of) {}
    static void fire(timer_node& node) { static_cast<connect_timer&>(node).owner.connect_timed_out(); }
    connection& owner;
  };

  core::loop& home_;
  connection_table& table_;
  const connection_settings settings_;
  endpoint remote_;
  state state_ = state::idle;
  std::size_t users_ = 0;

  net::lookup lookup_;
  net::resolved addresses_;  // those not tried yet, the next one last
  error_code last_failure_;
  std::unique_ptr<net::connecting> connecting_;
  connect_timer timer_{*this};
  boost::intrusive::list<attempt, boost::intrusive::constant_time_size<false>> waiting_;
  std::size_t waiting_bytes_ = 0;

  net::outbound_queue queue_;
  std::unique_ptr<client_session> session_;
  std::unique_ptr<net::transport> transport_;
  bool blocked_ = false;  // the transport takes no more until on_writable()
};

/// A loop's connections.
class connection_table final : public core::loop_service, private core::turn_end_hook {
 public:
  explicit connection_table(core::loop& home) noexcept : home_(home) {}

  /// The connection for these settings, made when there is none.
  connection& find(const connection_settings& settings);
  void erase(connection& unused) noexcept;

  /// Answers that came for calls that had ended.
  std::uint64_t late_answers() const noexcept { return late_answers_; }
  void count_late_answer() noexcept { ++late_answers_; }

  void shutdown() noexcept override;

 private:
  void at_turn_end() noexcept override { unused_.clear(); }

  core::loop& home_;
  std::map<connection_settings, std::unique_ptr<connection>> connections_;
  std::uint64_t late_answers_ = 0;
  std::vector<std::unique_ptr<connection>> unused_;  // until the turn's end: they may be at work
};

}  // namespace braid::client
