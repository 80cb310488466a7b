#pragma once

#include <braid/call_completion.hpp>

#include "client/call_origin.hpp"
#include "client/call_target.hpp"
#include "client/root_call.hpp"

#include <memory>
#include <optional>

namespace braid::client {

/// Starts a call on its home loop from a thread that is not the loop's. `completion` is told of the end in
/// any case, also when the loop is gone or goes before it gets to the call.
/// \param origin  none: what the code that calls this hands down.
void start_elsewhere(const std::shared_ptr<call_target>& target, const call_request& wanted,
                     detail::call_completion* completion, std::shared_ptr<detail::cancel_handle> cancel,
                     std::optional<call_origin> origin = std::nullopt);

}  // namespace braid::client
