#pragma once

#include <braid/server.hpp>

#include "core/runtime_core.hpp"
#include "server/load.hpp"
#include "server/method_table.hpp"

#include <atomic>
#include <cstddef>
#include <memory>

namespace braid::server_side {

/// What the parts of a server share. It outlives the server as long as a call does, and keeps the loops'
/// memory, which such a call may still post to.
struct server_settings {
  server_settings(std::shared_ptr<core::runtime_core> on, const server_options& given)
      : runtime(std::move(on)),
        options(given),
        concurrency(given.max_concurrency),
        load(std::make_shared<server_load>(given.max_bytes_in_flight)) {}

  const std::shared_ptr<core::runtime_core> runtime;
  const server_options options;
  method_table methods;
  std::atomic<std::size_t> connections{0};
  concurrency_limit concurrency;
  const std::shared_ptr<server_load> load;
};

}  // namespace braid::server_side
