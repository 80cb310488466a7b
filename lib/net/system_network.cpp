#include "core/loop.hpp"
#include "net/socket_address.hpp"
#include "net/socket_options.hpp"
#include "net/stream_listener.hpp"
#include "net/stream_transport.hpp"

#include <boost/asio/error.hpp>
#include <boost/system/errc.hpp>

#include <chrono>

namespace braid::net {
namespace {

/// A name should have been resolved.
error_code check(const endpoint& where) noexcept {
  if (where.type() != endpoint::kind::host_name) return {};
  return make_error_code(boost::system::errc::invalid_argument);
}

/// The part of an attempt that its pending handler keeps alive.
class connect_state : public boost::intrusive_ref_counter<connect_state, boost::thread_unsafe_counter> {
 public:
  connect_state(core::loop& home, const endpoint& to, connect_events& events)
      : home_(home), socket_(home.executor()), to_(to), events_(&events), retry_(this) {}

  void start(const transport_options& options) {
    error_code ec = check(to_);
    if (!ec) open_socket(socket_, protocol_of(to_), ec);
    if (ec) return home_.after_turn([self = pointer(this), ec] { self->finish(ec); });
    if (is_tcp()) apply_tcp(options, socket_.native_handle());
    connect();
  }

  void abandon() noexcept {
    events_ = nullptr;
    retry_.cancel();
    error_code ignored;
    socket_.close(ignored);
  }

 private:
  using pointer = boost::intrusive_ptr<connect_state>;

  static constexpr auto pause_at_full_queue = std::chrono::milliseconds(10);

  struct retry_timer : core::timer_node {
    explicit retry_timer(connect_state* owner)
        : timer_node([](timer_node& node) { static_cast<retry_timer&>(node).owner->connect_again(); }),
          owner(owner) {}
    connect_state* owner;
  };

  bool is_tcp() const noexcept { return to_.is_literal(); }

  void connect() {
    socket_.async_connect(socket_address(to_), [self = pointer(this)](const error_code& result) mutable {
      const core::entry here(self->home_);
      const pointer kept = std::move(self);  // let go inside the entry
      kept->finish(result);
    });
  }

  /// A unix listener whose queue is full refuses with EAGAIN and leaves the socket as it was: unconnected,
  /// and so writable without an error, which Asio takes for the end of a connect that was under way.
  bool found_full_queue() {
    if (is_tcp()) return false;
    error_code ec;
    socket_.remote_endpoint(ec);
    return ec == boost::asio::error::not_connected;
  }

  void connect_again() {
    error_code ec;
    socket_.close(ec);
    open_socket(socket_, protocol_of(to_), ec);
    if (ec) return finish(ec);
    connect();
  }

  void finish(error_code ec) {
    if (!events_) return;
    core::turn in_turn(home_);
    // Until there is room; how long, that is the owner's to say.
    if (!ec && found_full_queue()) return home_.arm(retry_, home_.after(pause_at_full_queue));
    connect_events& events = *std::exchange(events_, nullptr);
    if (!ec && is_tcp() && connected_to_itself(socket_.native_handle())) ec = refuse_itself();
    if (ec) return events.on_connect_failed(ec);
    events.on_connected(
        std::make_unique<stream_transport>(new stream_socket(home_, std::move(socket_), to_)));
  }

  // Nobody listens there, and the next attempt, which gets another port, would be refused.
  error_code refuse_itself() noexcept {
    reset_on_close(socket_.native_handle());  // else the port would be ours for a minute more
    error_code ignored;
    socket_.close(ignored);
    return boost::asio::error::connection_refused;
  }

  core::loop& home_;
  system_socket socket_;
  const endpoint to_;
  connect_events* events_;
  retry_timer retry_;
};

class system_connecting final : public connecting {
 public:
  explicit system_connecting(boost::intrusive_ptr<connect_state> state) noexcept : state_(std::move(state)) {}
  ~system_connecting() override { state_->abandon(); }

 private:
  boost::intrusive_ptr<connect_state> state_;
};

class system_network_type final : public network {
 public:
  std::unique_ptr<connecting> connect(core::loop& home, const endpoint& to, const transport_options& options,
                                      connect_events& events) override {
    boost::intrusive_ptr state(new connect_state(home, to, events));
    state->start(options);
    return std::make_unique<system_connecting>(std::move(state));
  }

  std::unique_ptr<listener> listen(core::loop& home, const endpoint& at, const transport_options& options,
                                   error_code& ec) override {
    ec = check(at);
    return ec ? nullptr : listen_stream(home, at, options, ec);
  }
};

}  // namespace

network& system_network() {
  static system_network_type only;
  return only;
}

}  // namespace braid::net
