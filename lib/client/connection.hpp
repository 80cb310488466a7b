#pragma once

#include <braid/endpoint.hpp>
#include <braid/error.hpp>

#include "client/attempt.hpp"
#include "client/client_session.hpp"
#include "client/connection_settings.hpp"
#include "client/route.hpp"
#include "core/loop.hpp"
#include "core/owned_coroutine.hpp"
#include "net/outbound_queue.hpp"
#include "net/progress_timer.hpp"
#include "net/resolver.hpp"
#include "net/transport.hpp"

#include <boost/intrusive/list.hpp>

#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace braid::client {

class connection_table;

/// One loop's connection to one server: connected when a call needs it, shared by all calls, connected anew
/// after it broke.
class connection final : public route,
                         private net::transport_events,
                         private net::connect_events,
                         private core::turn_end_hook {
 public:
  connection(core::loop& home, connection_table& table, const connection_settings& settings);
  ~connection() override;

  /// Sends the attempt's request now, or once connected.
  void take(attempt& started) noexcept override;
  void forget(attempt& cancelled, cancel_cause cause) noexcept override;
  /// Whether the first byte of the request was handed to the transport.
  bool has_sent(const attempt& asked) const noexcept override {
    return queue_.bytes_appended_total() - queue_.size() > asked.position();
  }
  void shut_down() noexcept override;

 private:
  enum class state : unsigned char { idle, resolving, connecting, authenticating, open };

  // Connecting.
  void connect() noexcept;
  void resolve() noexcept;
  void connect_next() noexcept;
  void connect_to(const endpoint& to) noexcept;
  void connect_timed_out() noexcept;
  void connect_failed(const error_code& why, std::string_view text) noexcept;
  void end_connecting() noexcept;
  void on_connected(std::unique_ptr<net::transport> connected) override;
  void on_connect_failed(const error_code& why) override;
  void authenticate() noexcept;
  void open() noexcept;

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
  void unused() noexcept override;
  void watch_reading(std::size_t arrived) noexcept;
  void stalled() noexcept;

  struct connect_timer : core::timer_node {
    explicit connect_timer(connection& of) noexcept : timer_node(&connect_timer::fire), owner(of) {}
    static void fire(timer_node& node) { static_cast<connect_timer&>(node).owner.connect_timed_out(); }
    connection& owner;
  };

  connection_table& table_;
  state state_ = state::idle;

  net::lookup lookup_;
  net::resolved addresses_;  // those not tried yet, the next one last
  std::unique_ptr<net::connecting> connecting_;
  connect_timer timer_{*this};
  core::owned_coroutine authentication_;
  boost::intrusive::list<attempt, boost::intrusive::constant_time_size<false>> waiting_;
  std::size_t waiting_bytes_ = 0;

  net::outbound_queue queue_;
  std::unique_ptr<client_session> session_;
  std::unique_ptr<net::transport> transport_;
  net::progress_timer<connection, &connection::stalled> reading_;  // armed while an answer is incomplete
  std::uint64_t answers_seen_ = 0;
  bool blocked_ = false;  // the transport takes no more until on_writable()
};

}  // namespace braid::client
