#pragma once

#include "net/transport.hpp"

namespace braid::net {

/// Listens on a literal endpoint, of IPv6 only where that is one, or on a unix socket (see socket_file).
/// Null, with `ec` set, on failure.
std::unique_ptr<listener> listen_stream(core::loop& home, const endpoint& at,
                                        const transport_options& options, error_code& ec);

}  // namespace braid::net
