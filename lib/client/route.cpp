#include "client/route.hpp"

#include <braid/error.hpp>

#include "client/attempt.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace braid::client {

bool route::has_room(attempt& started, std::size_t waiting) noexcept {
  const call& of = started.owner();
  const std::size_t held = of.payload().bytes.size() + of.request_metadata().attachment.size();
  const std::size_t limit = settings_.max_unsent_bytes;
  if (limit != 0 && waiting != 0 && held > limit - std::min(waiting, limit)) {
    started.finish(outcome::local_failure(errc::overcrowded),
                   fmt::format("{} bytes wait for the connection to {}, max_unsent_bytes is {}", waiting,
                               remote_.to_string(), limit));
    return false;
  }
  started.set_held_bytes(held);
  return true;
}

}  // namespace braid::client
