#pragma once

#include <braid/controller.hpp>

#include "client/caller_link.hpp"
#include "core/call_scope.hpp"
#include "core/coroutine.hpp"
#include "core/loop.hpp"

#include <memory>

namespace braid::client {

/// What a call inherits from the code that starts it.
struct call_origin {
  core::time_point latest = core::time_point::max();  ///< The call ends no later than that.
  detail::coroutine* caller = nullptr;                ///< Of the call's own loop: it hangs below that one.
  std::shared_ptr<caller_link> from{};                ///< Else: the coroutine of another loop.
  std::shared_ptr<core::call_scope> scope{};          ///< Else: the server call that it is made for.

  /// For a call on `home` that is started now, on whatever thread. The controller's parent goes before the
  /// running coroutine, which goes before the thread's scope.
  static call_origin here(const controller& control, const core::loop& home);
};

}  // namespace braid::client
