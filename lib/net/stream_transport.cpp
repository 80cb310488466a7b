#include "net/stream_transport.hpp"

#include <braid/completion.hpp>

#include "core/loop.hpp"
#include "net/socket_options.hpp"

#include <boost/asio/error.hpp>

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <new>

namespace braid::net {
namespace {

// A client of a unix socket has no name of its own, so both ends are called by the server's.
endpoint local_endpoint(const endpoint& remote, int descriptor) noexcept {
  return remote.type() == endpoint::kind::unix_path ? remote : local_tcp_endpoint(descriptor);
}

std::size_t total_size(std::span<const iovec> pieces) noexcept {
  std::size_t total = 0;
  for (const iovec& piece : pieces) total += piece.iov_len;
  return total;
}

/// One sendmsg; 0 where the system takes nothing now.
std::size_t send_now(int descriptor, std::span<const iovec> pieces, error_code& ec) noexcept {
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(pieces.data());
  message.msg_iovlen = pieces.size();
  for (;;) {
    const ssize_t sent = ::sendmsg(descriptor, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent >= 0) return static_cast<std::size_t>(sent);
    if (errno == EINTR) continue;
    if (errno != EAGAIN && errno != EWOULDBLOCK) ec = last_error();
    return 0;
  }
}

}  // namespace

struct stream_socket::read_handler {
  using allocator_type = slot_allocator<void>;

  pointer socket;

  allocator_type get_allocator() const noexcept { return allocator_type(socket->read_slot_); }
  void operator()(const error_code& ec, std::size_t size) {
    const core::entry here(socket->home_);
    const pointer self = std::move(socket);  // let go inside the entry
    self->home_.background_ended();
    self->on_read({ec, size});
  }
};

struct stream_socket::writable_handler {
  using allocator_type = braid::detail::pool_allocator<void>;  // rare, so no memory is kept for it

  pointer socket;

  allocator_type get_allocator() const noexcept { return {}; }
  void operator()(const error_code& ec) {
    const core::entry here(socket->home_);
    const pointer self = std::move(socket);
    self->home_.background_ended();
    self->on_writable(ec);
  }
};

stream_socket::stream_socket(core::loop& home, system_socket connected, const endpoint& remote)
    : home_(home),
      socket_(std::move(connected)),
      remote_(remote),
      local_(local_endpoint(remote, socket_.native_handle())) {}

stream_socket::stream_socket(core::loop& home, int accepted, const endpoint& remote)
    : home_(home),
      socket_(home.executor()),
      accepted_(accepted),
      remote_(remote),
      local_(local_endpoint(remote, accepted)) {}

stream_socket::~stream_socket() { close(false); }

void stream_socket::start(transport_events& events) {
  events_ = &events;
  post_read();
}

bool stream_socket::attach(error_code& ec) {
  if (accepted_ < 0) return true;
  socket_.assign(protocol_of(remote_), accepted_, ec);
  if (ec) return false;
  accepted_ = -1;
  return true;
}

void stream_socket::post_read() {
  if (std::exchange(read_posted_, true)) return;
  home_.after_turn([self = pointer(this)] {
    self->read_posted_ = false;
    self->read_on();
  });
}

void stream_socket::resume_reading() {
  if (!std::exchange(paused_, false)) return;
  if (events_) post_read();
}

void stream_socket::read_on() {
  if (!events_ || paused_ || reading_) return;
  error_code ec;
  if (held_) {
    on_read(*std::exchange(held_, std::nullopt));
  } else if (attach(ec)) {
    read();
  } else {
    on_read({ec, 0});
  }
}

void stream_socket::read() {
  if (read_ended_) return;
  std::span<char> space;
  try {
    space = events_->read_space();
  } catch (const std::bad_alloc&) {
    core::turn in_turn(home_);
    return report({boost::asio::error::no_memory, 0});
  }
  reading_ = true;
  home_.background_started();  // whoever waits for what will come counts by itself
  socket_.async_read_some(boost::asio::buffer(space.data(), space.size()), read_handler{this});
}

void stream_socket::on_read(const read_outcome& outcome) {
  reading_ = false;
  if (!events_) return;
  if (paused_) {
    held_ = outcome;
    return;
  }
  {
    core::turn in_turn(home_);
    report(outcome);
  }
  // After the turn, so that what it wrote has left before the socket is asked for more.
  if (events_ && !paused_ && !reading_) read();
}

void stream_socket::report(const read_outcome& outcome) {
  if (!outcome.ec) return events_->on_read(outcome.size);
  read_ended_ = true;
  if (outcome.ec == boost::asio::error::eof) return events_->on_read(0);
  if (!write_failed_) std::exchange(events_, nullptr)->on_broken(outcome.ec);
}

std::size_t stream_socket::write_some(std::span<const iovec> pieces, error_code& ec) {
  ec = {};
  if (closed_) {
    ec = boost::asio::error::bad_descriptor;
    return 0;
  }
  std::size_t taken = 0;
  while (!pieces.empty()) {
    const auto now = pieces.first(std::min<std::size_t>(pieces.size(), IOV_MAX));
    pieces = pieces.subspan(now.size());
    const std::size_t sent = send_now(descriptor(), now, ec);
    taken += sent;
    if (ec) {
      write_failed_ = true;
      return taken;
    }
    if (sent < total_size(now)) {
      await_writable();
      break;
    }
  }
  return taken;
}

void stream_socket::await_writable() {
  if (std::exchange(awaiting_writable_, true)) return;
  error_code ec;
  if (!attach(ec)) {
    home_.after_turn([self = pointer(this), ec] { self->on_writable(ec); });
    return;
  }
  home_.background_started();  // as for a read
  socket_.async_wait(system_socket::wait_write, writable_handler{this});
}

void stream_socket::on_writable(const error_code& ec) {
  awaiting_writable_ = false;
  if (!events_) return;
  core::turn in_turn(home_);
  if (!ec) return events_->on_writable();
  if (!write_failed_) std::exchange(events_, nullptr)->on_broken(ec);
}

void stream_socket::shutdown_send() noexcept {
  if (!closed_) ::shutdown(descriptor(), SHUT_WR);
}

void stream_socket::close(bool reset) noexcept {
  events_ = nullptr;
  if (std::exchange(closed_, true)) return;
  if (reset) reset_on_close(descriptor());
  if (accepted_ >= 0) {
    ::close(accepted_);
    accepted_ = -1;
    return;
  }
  error_code ignored;
  socket_.close(ignored);
}

}  // namespace braid::net
