#pragma once

#include <braid/endpoint.hpp>

#include "net/socket_address.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace server_test {

/// Catch2's own checks are for one thread.
inline void require(bool good) {
  if (!good) throw std::runtime_error("a socket of the test failed");
}

/// A blocking socket of a peer that only sends what the test says. What it waits for comes within moments;
/// its limit only turns a hang into a failure.
class raw_peer {
 public:
  explicit raw_peer(int connected) : fd_(connected) {}
  raw_peer(raw_peer&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), received_(std::move(other.received_)) {}
  ~raw_peer() {
    if (fd_ >= 0) ::close(fd_);
  }

  static raw_peer connect(std::uint16_t port) {
    return connect(braid::endpoint(boost::asio::ip::address_v4::loopback(), port));
  }
  /// \param receive_buffer what the system is asked to keep for a peer that does not read; 0: as it likes.
  static raw_peer connect(const braid::endpoint& to, int receive_buffer = 0) {
    const auto address = braid::net::socket_address(to);
    raw_peer made(::socket(address.protocol().family(), SOCK_STREAM, 0));
    if (receive_buffer != 0)
      ::setsockopt(made.fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    require(::connect(made.fd_, address.data(), static_cast<socklen_t>(address.size())) == 0);
    return made;
  }

  void send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      require(sent > 0);
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
  }
  /// The same to a peer that may close at any byte.
  void send_what_is_taken(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return;
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
  }
  /// What the system takes now; returns how much that is.
  std::size_t send_now(std::string_view bytes) {
    const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    return sent > 0 ? static_cast<std::size_t>(sent) : 0;
  }
  /// Whether the other side has closed, or does within the time; reads nothing.
  bool gone(std::chrono::milliseconds wait) const {
    pollfd closed{fd_, POLLRDHUP, 0};
    return ::poll(&closed, 1, static_cast<int>(wait.count())) == 1;
  }
  void end_sending() { ::shutdown(fd_, SHUT_WR); }
  /// After end_sending(): whether the other side's system has all that was sent, and its end.
  bool all_arrived() const {
    tcp_info told{};
    socklen_t size = sizeof told;
    require(::getsockopt(fd_, IPPROTO_TCP, TCP_INFO, &told, &size) == 0);
    return told.tcpi_state == TCP_FIN_WAIT2;
  }
  void reset() {
    const linger now{.l_onoff = 1, .l_linger = 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    ::close(std::exchange(fd_, -1));
  }

  /// The next whole frame; empty when the peer has closed or reset.
  std::string next_frame() {
    for (;;) {
      if (received_.size() >= 12) {
        std::uint32_t body = 0;
        for (std::size_t i = 4; i < 8; ++i) body = body << 8 | static_cast<unsigned char>(received_[i]);
        if (const std::size_t size = 12 + std::size_t{body}; received_.size() >= size) {
          std::string whole = received_.substr(0, size);
          received_.erase(0, size);
          return whole;
        }
      }
      if (!receive()) return {};
    }
  }
  /// What came behind the last whole frame.
  const std::string& unread() const { return received_; }
  bool receive() {
    pollfd ready{fd_, POLLIN, 0};
    require(::poll(&ready, 1, 60'000) == 1);
    char space[65536];
    const ssize_t got = ::recv(fd_, space, sizeof space, 0);
    if (got <= 0) return false;
    received_.append(space, static_cast<std::size_t>(got));
    return true;
  }

 private:
  int fd_;
  std::string received_;
};

/// Listens, on a port of loopback if nothing else is said.
class raw_listener {
 public:
  explicit raw_listener(const braid::endpoint& at = {boost::asio::ip::address_v4::loopback(), 0})
      : address_(at), fd_(::socket(braid::net::protocol_of(at).family(), SOCK_STREAM, 0)) {
    const auto name = braid::net::socket_address(at);
    require(::bind(fd_, name.data(), static_cast<socklen_t>(name.size())) == 0);
    require(::listen(fd_, SOMAXCONN) == 0);
    if (at.is_literal()) address_ = braid::net::local_tcp_endpoint(fd_);
  }
  raw_listener(const raw_listener&) = delete;
  raw_listener& operator=(const raw_listener&) = delete;
  ~raw_listener() { ::close(fd_); }

  const braid::endpoint& address() const { return address_; }
  std::uint16_t port() const { return address_.port(); }
  raw_peer accept() {
    const int fd = ::accept(fd_, nullptr, nullptr);
    require(fd >= 0);
    return raw_peer(fd);
  }

 private:
  braid::endpoint address_;
  int fd_;
};

}  // namespace server_test
