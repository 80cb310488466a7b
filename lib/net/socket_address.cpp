#include "net/socket_address.hpp"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstddef>
#include <cstring>

namespace braid::net {
namespace {

using address_getter = int (*)(int, sockaddr*, socklen_t*);

endpoint ask(address_getter get, int descriptor) noexcept {
  stream_protocol::endpoint address;
  auto size = static_cast<socklen_t>(address.capacity());
  if (get(descriptor, address.data(), &size) != 0) return {};
  address.resize(size);
  return tcp_endpoint(address);
}

// The path is checked by endpoint::parse(): it fits, and has no zero byte.
stream_protocol::endpoint unix_address(std::string_view path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  std::size_t size = offsetof(sockaddr_un, sun_path) + path.size();
  if (path.front() == '@') {
    address.sun_path[0] = '\0';  // an abstract name: its length counts, and no zero ends it
  } else {
    ++size;
  }
  return {&address, size, 0};
}

}  // namespace

stream_protocol protocol_of(const endpoint& where) noexcept {
  if (where.type() == endpoint::kind::unix_path) return {AF_UNIX, 0};
  return {where.address().is_v6() ? AF_INET6 : AF_INET, IPPROTO_TCP};
}

stream_protocol::endpoint socket_address(const endpoint& where) {
  return where.type() == endpoint::kind::unix_path ? unix_address(where.host()) : where.tcp();
}

endpoint tcp_endpoint(const stream_protocol::endpoint& address) noexcept {
  const int family = address.data()->sa_family;
  boost::asio::ip::tcp::endpoint ip;
  if ((family != AF_INET && family != AF_INET6) || address.size() > ip.capacity()) return {};
  std::memcpy(ip.data(), address.data(), address.size());
  return endpoint(ip);
}

endpoint local_tcp_endpoint(int descriptor) noexcept { return ask(&::getsockname, descriptor); }

bool connected_to_itself(int descriptor) noexcept {
  const endpoint local = local_tcp_endpoint(descriptor);
  return local.port() != 0 && local == ask(&::getpeername, descriptor);
}

}  // namespace braid::net
