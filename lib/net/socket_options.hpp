#pragma once

#include "net/transport.hpp"

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

}  // namespace braid::net
