#include "client/call_origin.hpp"

namespace braid::client {

call_origin call_origin::here(const controller& control, const core::loop& home) {
  if (control.detached()) return {};
  if (control.parent_) return {.latest = control.parent_->deadline(), .scope = control.parent_};
  core::loop* const here = core::loop::current();
  if (detail::coroutine* const running = here ? here->running_coroutine() : nullptr) {
    if (here == &home) return {.latest = running->deadline(), .caller = running};
    return {.latest = running->deadline(), .from = std::make_shared<caller_link>(*running)};
  }
  if (core::call_scope* const scope = core::call_scope::current())
    return {.latest = scope->deadline(), .scope = scope->shared_from_this()};
  return {};
}

}  // namespace braid::client
