#pragma once

#include <braid/endpoint.hpp>

#include <boost/asio/generic/stream_protocol.hpp>

namespace braid::net {

/// The protocol of a socket that may be tcp's or a unix one, as its address says.
using boost::asio::generic::stream_protocol;

/// The protocol of a literal address or a unix path.
stream_protocol protocol_of(const endpoint& where) noexcept;

/// What the system calls a literal address or a unix path.
stream_protocol::endpoint socket_address(const endpoint& where);

/// The address of tcp that the system filled in; the empty endpoint if it is none.
endpoint tcp_endpoint(const stream_protocol::endpoint& address) noexcept;

/// The address that a tcp socket is bound to; the empty endpoint on failure.
endpoint local_tcp_endpoint(int descriptor) noexcept;

/// Whether a tcp socket is connected to itself. A connect to a local port on which nobody listens can get
/// that very port as its own and then meets itself, as tcp allows.
bool connected_to_itself(int descriptor) noexcept;

}  // namespace braid::net
