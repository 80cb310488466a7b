#pragma once

#include "net/socket_address.hpp"
#include "net/transport.hpp"

#include <unistd.h>

#include <cerrno>

namespace braid::net {

/// Sets what `options` asks for on a tcp socket, before or after it is connected. What the system refuses is
/// left as it was: a connection without keepalive is better than none.
void apply_tcp(const transport_options& options, int descriptor) noexcept;

/// Makes the next close of a tcp socket send a reset. A unix socket knows none: its peer reads an end of
/// file, or a reset where bytes were left unread.
void reset_on_close(int descriptor) noexcept;

/// The error of the last system call.
inline error_code last_error() noexcept { return {errno, boost::system::system_category()}; }

/// A new descriptor, which no child program inherits; -1, with `ec` set, on failure.
int make_socket(const stream_protocol& protocol, error_code& ec) noexcept;

/// Opens a socket or an acceptor of Asio. Its own open() lets child programs inherit the descriptor.
template <typename Socket>
void open_socket(Socket& closed, const stream_protocol& protocol, error_code& ec) {
  const int made = make_socket(protocol, ec);
  if (made >= 0 && closed.assign(protocol, made, ec)) ::close(made);
}

}  // namespace braid::net
