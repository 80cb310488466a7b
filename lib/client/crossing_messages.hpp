#pragma once

#include <braid/buffer.hpp>
#include <braid/endpoint.hpp>
#include <braid/metadata.hpp>
#include <braid/outcome.hpp>

#include "core/environment.hpp"
#include "wire/payload.hpp"

#include <google/protobuf/descriptor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace braid::client {

/// A request on its way from its call's loop to the loop that has the connection.
struct crossing_request {
  std::uint64_t id = 0;  ///< Of the attempt on its own loop; 0: it was cancelled before it left.
  const google::protobuf::MethodDescriptor* method = nullptr;
  wire::payload payload;
  std::shared_ptr<metadata> carried;  ///< A copy, no other loop's; null: there is none.
  core::time_point started{};
  core::time_point deadline = core::time_point::max();
};

/// A request of an earlier batch that nobody waits for any more.
struct crossing_forget {
  std::uint64_t id = 0;
  cancel_cause cause = cancel_cause::none;
};

/// What one turn of a loop has for a connection of another.
struct crossing_batch {
  std::vector<crossing_request> requests;
  std::vector<crossing_forget> forgotten;
  std::size_t bytes = 0;  ///< Of the requests.

  bool empty() const noexcept { return requests.empty() && forgotten.empty(); }
};

/// How a request ended on the connection.
struct crossing_answer {
  std::uint64_t id = 0;
  buffer frame;  ///< The answer's frame, to be read on the call's loop; empty: there was none, see `result`.
  outcome result;
  std::string text;
  endpoint remote;
  bool sent = false;  ///< Whether a byte of the request had left.
};

}  // namespace braid::client
