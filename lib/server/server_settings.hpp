#pragma once

#include <braid/server.hpp>

#include "core/runtime_core.hpp"
#include "server/method_table.hpp"

#include <atomic>
#include <cstddef>
#include <memory>

namespace braid::server_side {

/// What the parts of a server share. It outlives the server as long as a call does, and keeps the loops'
/// memory, which such a call may still post to.
struct server_settings {
  server_settings(std::shared_ptr<core::runtime_core> on, const server_options& given)
      : runtime(std::move(on)), options(given) {}

  const std::shared_ptr<core::runtime_core> runtime;
  const server_options options;
  method_table methods;
  std::atomic<std::size_t> connections{0};
};

}  // namespace braid::server_side
