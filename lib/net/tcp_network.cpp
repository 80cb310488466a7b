#include "core/loop.hpp"
#include "net/socket_options.hpp"
#include "net/tcp_listener.hpp"
#include "net/tcp_transport.hpp"

#include <boost/system/errc.hpp>

namespace braid::net {
namespace {

using boost::asio::ip::tcp;

/// Why an endpoint is none of a tcp network's; no error if it is one.
error_code check(const endpoint& where) noexcept {
  namespace errc = boost::system::errc;
  switch (where.type()) {
    case endpoint::kind::literal:
      return {};
    case endpoint::kind::host_name:
      return make_error_code(errc::invalid_argument);  // it should have been resolved
    case endpoint::kind::unix_path:
      return make_error_code(errc::operation_not_supported);
  }
  return make_error_code(errc::invalid_argument);
}

/// The part of an attempt that its pending handler keeps alive.
class connect_state : public boost::intrusive_ref_counter<connect_state, boost::thread_unsafe_counter> {
 public:
  connect_state(core::loop& home, const endpoint& to, connect_events& events)
      : home_(home), socket_(home.executor()), to_(to), events_(&events) {}

  void start(const transport_options& options) {
    error_code ec = check(to_);
    if (!ec) socket_.open(to_.tcp().protocol(), ec);
    if (ec) return home_.after_turn([self = pointer(this), ec] { self->finish(ec); });
    apply(options, socket_.native_handle());
    socket_.async_connect(to_.tcp(),
                          [self = pointer(this)](const error_code& result) { self->finish(result); });
  }

  void abandon() noexcept {
    events_ = nullptr;
    error_code ignored;
    socket_.close(ignored);
  }

 private:
  using pointer = boost::intrusive_ptr<connect_state>;

  void finish(const error_code& ec) {
    if (!events_) return;
    core::turn in_turn(home_);
    connect_events& events = *std::exchange(events_, nullptr);
    if (ec) return events.on_connect_failed(ec);
    events.on_connected(std::make_unique<tcp_transport>(new tcp_socket(home_, std::move(socket_), to_)));
  }

  core::loop& home_;
  stream_socket socket_;
  const endpoint to_;
  connect_events* events_;
};

class tcp_connecting final : public connecting {
 public:
  explicit tcp_connecting(boost::intrusive_ptr<connect_state> state) noexcept : state_(std::move(state)) {}
  ~tcp_connecting() override { state_->abandon(); }

 private:
  boost::intrusive_ptr<connect_state> state_;
};

class tcp_network final : public network {
 public:
  std::unique_ptr<connecting> connect(core::loop& home, const endpoint& to, const transport_options& options,
                                      connect_events& events) override {
    boost::intrusive_ptr state(new connect_state(home, to, events));
    state->start(options);
    return std::make_unique<tcp_connecting>(std::move(state));
  }

  std::unique_ptr<listener> listen(core::loop& home, const endpoint& at, const transport_options& options,
                                   error_code& ec) override {
    ec = check(at);
    return ec ? nullptr : listen_tcp(home, at, options, ec);
  }
};

}  // namespace

network& system_network() {
  static tcp_network only;
  return only;
}

}  // namespace braid::net
