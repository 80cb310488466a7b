#pragma once

#include <braid/authenticator.hpp>
#include <braid/server.hpp>

#include "core/owned_coroutine.hpp"

#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace braid::server_side {

/// The check of a connection's credential by the server's authenticator.
class verification {
 public:
  /// Told once, perhaps inside start(): who the client is, or null and the reason.
  using listener = std::function<void(std::shared_ptr<const auth_context> who, const std::string& why)>;

  /// Begins to check; on the loop. `options` says by whom and for how long.
  void start(core::loop& home, const server_options& options, std::string_view credential,
             const endpoint& client, listener decided);
  bool running() const noexcept { return checking_.running(); }
  /// Nobody wants to know any more.
  void abandon(cancel_cause cause) noexcept { checking_.abandon(cause); }

 private:
  core::owned_coroutine checking_;
};

}  // namespace braid::server_side
