#include "client/attempt.hpp"

#include <braid/completion.hpp>

#include "client/route.hpp"

#include <new>

namespace braid::client {

attempt::attempt(call& of, route& by) noexcept : owner_(of), route_(by) {}

void attempt::start(call& of, route& by) noexcept {
  auto* started = ::new (detail::pool_allocate(sizeof(attempt))) attempt(of, by);
  started->attach(of);
  of.note_attempt(by.remote());
  by.add_user();
  by.take(*started);
}

void attempt::finish(const outcome& result, std::string_view text) noexcept {
  call& of = owner_;
  route& by = route_;
  leave();
  if (!result.succeeded() && of.deadline() != core::time_point::max() && of.home().now() >= of.deadline()) {
    of.settle(outcome::cancelled(cancel_cause::deadline), {});  // what fails at the deadline or later is late
  } else {
    of.settle(result, text);
  }
  by.remove_user();
}

bool attempt::anything_sent() const noexcept { return sent_ && route_.has_sent(*this); }

void attempt::on_cancel(cancel_cause cause) noexcept {
  call& of = owner_;
  route& by = route_;
  by.forget(*this, cause);
  leave();
  of.settle_cancelled();
  by.remove_user();
}

void attempt::leave() noexcept {
  if (anything_sent()) owner_.note_sent();
  this->~attempt();
  detail::pool_deallocate(this, sizeof(attempt));
}

}  // namespace braid::client
