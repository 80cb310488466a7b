#pragma once

#include <braid/endpoint.hpp>
#include <braid/error.hpp>

#include <boost/asio/buffer.hpp>

#include <sys/uio.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string_view>

namespace braid::core {
class loop;
}

namespace braid::net {

/// What a transport tells its owner. Called on the transport's loop, in a turn, never inside a call of the
/// owner's.
class transport_events {
 public:
  /// Where the next read should land; at least one byte, which stays in place until on_read(), close() or the
  /// transport's end. Called before each read, perhaps outside a turn: it must do nothing else. May throw
  /// std::bad_alloc, which ends the connection with 12.
  virtual std::span<char> read_space() = 0;
  /// `size` bytes have landed there. 0: the peer has closed its side; nothing more will come.
  virtual void on_read(std::size_t size) = 0;
  /// After write_some() took less than it was given: it will take more now.
  virtual void on_writable() = 0;
  /// The connection broke. Nothing else is called after it.
  virtual void on_broken(const error_code& why) = 0;

 protected:
  ~transport_events() = default;
};

/// A connected byte stream of one loop: a socket of tcp, a unix one, a queue in memory. The owner may destroy
/// it at any time, also inside an event.
class transport {
 public:
  virtual ~transport() = default;

  /// Begins to read and to report; once. `events` must live until close() or the end of this object.
  virtual void start(transport_events& events) = 0;
  /// Stops reading until resume_reading(): bytes stay with the peer.
  virtual void pause_reading() = 0;
  virtual void resume_reading() = 0;

  /// Hands bytes to the system without waiting; returns how many it took. Less than given: on_writable() will
  /// come. An error is reported through `ec` and not again through on_broken().
  virtual std::size_t write_some(std::span<const iovec> pieces, error_code& ec) = 0;

  /// Sends end of file after what write_some() took.
  virtual void shutdown_send() = 0;
  /// Ends both directions; no event is called afterwards. `reset`: tell the peer by a reset rather than by
  /// end of file.
  virtual void close(bool reset = false) noexcept = 0;

  virtual const endpoint& remote() const noexcept = 0;
  virtual const endpoint& local() const noexcept = 0;
};

/// Options of a stream, as far as a transport has them: only tcp has these.
struct transport_options {
  bool no_delay = true;
  /// Idle time before the first keepalive probe; zero: off. Probes follow at a third of it, three of them.
  std::chrono::seconds keepalive{30};
  /// How long sent bytes may stay unacknowledged (TCP_USER_TIMEOUT); zero: the system's default.
  std::chrono::milliseconds user_timeout{30'000};

  /// What is wrong with them, in the words of the channel's and the server's options; empty: nothing.
  std::string_view wrong() const noexcept {
    if (keepalive.count() < 0) return "keepalive is negative";
    if (user_timeout.count() < 0) return "tcp_user_timeout is negative";
    return {};
  }
};

/// An attempt to connect. Destroying it abandons the attempt.
class connecting {
 public:
  virtual ~connecting() = default;
};

/// Who waits for a connection. Called on the loop, in a turn, never inside connect().
class connect_events {
 public:
  virtual void on_connected(std::unique_ptr<transport> connected) = 0;
  virtual void on_connect_failed(const error_code& why) = 0;

 protected:
  ~connect_events() = default;
};

/// Who waits for accepted connections. Called on the listener's loop, in a turn.
class accept_events {
 public:
  /// The loop on which the next connection shall live.
  virtual core::loop& next_loop() = 0;
  /// Called on the listener's loop; `accepted` belongs to the loop that next_loop() gave.
  virtual void on_accepted(core::loop& home, std::unique_ptr<transport> accepted) = 0;
  /// Accepting failed for now (no descriptors, say) and goes on by itself.
  virtual void on_accept_failed(const error_code& why) = 0;

 protected:
  ~accept_events() = default;
};

/// A listening endpoint. Destroying it (on its loop) ends it.
class listener {
 public:
  virtual ~listener() = default;
  /// The endpoint listened on, with the port that the system chose.
  virtual const endpoint& local() const noexcept = 0;
  virtual void start(accept_events& events) = 0;
};

/// Makes transports: the real network or a simulated one.
class network {
 public:
  virtual ~network() = default;
  /// Begins to connect to a literal or a unix path `to` on `home`, which must be the current loop. A port
  /// that turns out to be the connecting socket's own is refused.
  virtual std::unique_ptr<connecting> connect(core::loop& home, const endpoint& to,
                                              const transport_options& options, connect_events& events) = 0;
  /// Listens on a literal or a unix path `at` (port 0: one chosen by the system). Null, with `ec` set, when
  /// that fails.
  virtual std::unique_ptr<listener> listen(core::loop& home, const endpoint& at,
                                           const transport_options& options, error_code& ec) = 0;
};

/// The operating system's network.
network& system_network();

}  // namespace braid::net
