#pragma once

#include "core/loop.hpp"
#include "net/resolver.hpp"
#include "net/transport.hpp"

namespace braid::net {

/// The network and the resolver of a loop: its runtime's simulated ones, else the system's.
network& network_of(core::loop& home);
resolver& resolver_of(core::loop& home);

}  // namespace braid::net
