#include "net/socket_options.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <limits>

namespace braid::net {
namespace {

constexpr int keepalive_probes = 3;

void set(int descriptor, int level, int name, int value) noexcept {
  ::setsockopt(descriptor, level, name, &value, sizeof value);
}

int clamped(std::int64_t value) noexcept {
  return static_cast<int>(std::clamp<std::int64_t>(value, 1, std::numeric_limits<int>::max()));
}

void keep_alive(std::chrono::seconds idle, int descriptor) noexcept {
  constexpr std::int64_t longest = 32767;  // the kernel's limit for both times, in seconds
  set(descriptor, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(descriptor, IPPROTO_TCP, TCP_KEEPIDLE, clamped(std::min<std::int64_t>(idle.count(), longest)));
  set(descriptor, IPPROTO_TCP, TCP_KEEPINTVL, clamped(std::min<std::int64_t>(idle.count() / 3, longest)));
  set(descriptor, IPPROTO_TCP, TCP_KEEPCNT, keepalive_probes);
}

}  // namespace

void apply_tcp(const transport_options& options, int descriptor) noexcept {
  if (options.no_delay) set(descriptor, IPPROTO_TCP, TCP_NODELAY, 1);
  if (options.keepalive.count() > 0) keep_alive(options.keepalive, descriptor);
  if (options.user_timeout.count() > 0)
    set(descriptor, IPPROTO_TCP, TCP_USER_TIMEOUT, clamped(options.user_timeout.count()));
}

void reset_on_close(int descriptor) noexcept {
  const linger at_once{1, 0};
  ::setsockopt(descriptor, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
}

int make_socket(const stream_protocol& protocol, error_code& ec) noexcept {
  const int made = ::socket(protocol.family(), protocol.type() | SOCK_CLOEXEC, protocol.protocol());
  ec = made < 0 ? last_error() : error_code();
  return made;
}

}  // namespace braid::net
