#pragma once

#include <braid/controller.hpp>

/// \file
/// A combo call for people to read.

namespace demo {

/// Prints the sub calls of the finished call of `control`, one a row: index, peer, code, latency, and what
/// the code means; then the call's own row.
void print_call_table(const braid::controller& control);

}  // namespace demo
