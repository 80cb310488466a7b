#pragma once

#include "net/handler_slot.hpp"
#include "net/socket_address.hpp"
#include "net/transport.hpp"

#include <boost/asio/basic_stream_socket.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/smart_ptr/intrusive_ptr.hpp>
#include <boost/smart_ptr/intrusive_ref_counter.hpp>

#include <optional>

namespace braid::net {

/// A socket of tcp or a unix one, whose handlers run without type erasure.
using system_socket =
    boost::asio::basic_stream_socket<stream_protocol, boost::asio::io_context::executor_type>;

/// The part of a connection that pending handlers keep alive after its owner has let go of it.
///
/// Asio's reactor is used for readiness and for reading; writes go straight to the system, since a connection
/// that is flushed once for a whole turn has one write that nearly always succeeds at once.
class stream_socket : public boost::intrusive_ref_counter<stream_socket, boost::thread_unsafe_counter> {
 public:
  /// Takes a connected socket that `home`'s reactor knows already.
  stream_socket(core::loop& home, system_socket connected, const endpoint& remote);
  /// Takes the descriptor of an accepted socket; may run on another loop's thread, everything after it may
  /// not.
  stream_socket(core::loop& home, int accepted, const endpoint& remote);
  ~stream_socket();

  void start(transport_events& events);
  void pause_reading() noexcept { paused_ = true; }
  void resume_reading();
  std::size_t write_some(std::span<const iovec> pieces, error_code& ec);
  void shutdown_send() noexcept;
  void close(bool reset) noexcept;

  const endpoint& remote() const noexcept { return remote_; }
  const endpoint& local() const noexcept { return local_; }

 private:
  struct read_outcome {
    error_code ec;
    std::size_t size;
  };
  struct read_handler;
  struct writable_handler;
  using pointer = boost::intrusive_ptr<stream_socket>;

  int descriptor() noexcept { return accepted_ >= 0 ? accepted_ : socket_.native_handle(); }
  bool attach(error_code& ec);
  void post_read();
  void read_on();
  void read();
  void on_read(const read_outcome& outcome);
  void report(const read_outcome& outcome);
  void await_writable();
  void on_writable(const error_code& ec);

  core::loop& home_;
  system_socket socket_;
  int accepted_ = -1;  // a descriptor not given to socket_ yet
  endpoint remote_;
  endpoint local_;
  transport_events* events_ = nullptr;  // null before start() and after the last event
  bool closed_ = false;
  bool paused_ = false;
  bool read_posted_ = false;
  bool reading_ = false;
  bool read_ended_ = false;
  bool write_failed_ = false;
  bool awaiting_writable_ = false;
  std::optional<read_outcome> held_;  // read while paused
  handler_slot read_slot_;
};

/// The owner's handle of a stream_socket.
class stream_transport final : public transport {
 public:
  explicit stream_transport(boost::intrusive_ptr<stream_socket> socket) noexcept
      : socket_(std::move(socket)) {}
  ~stream_transport() override { socket_->close(false); }

  void start(transport_events& events) override { socket_->start(events); }
  void pause_reading() override { socket_->pause_reading(); }
  void resume_reading() override { socket_->resume_reading(); }
  std::size_t write_some(std::span<const iovec> pieces, error_code& ec) override {
    return socket_->write_some(pieces, ec);
  }
  void shutdown_send() override { socket_->shutdown_send(); }
  void close(bool reset) noexcept override { socket_->close(reset); }
  const endpoint& remote() const noexcept override { return socket_->remote(); }
  const endpoint& local() const noexcept override { return socket_->local(); }

 private:
  boost::intrusive_ptr<stream_socket> socket_;
};

}  // namespace braid::net
