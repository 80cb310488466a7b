#include "client/attempt.hpp"

#include <braid/completion.hpp>

#include "client/connection.hpp"

#include <new>

namespace braid::client {

attempt::attempt(call& of, connection& on) noexcept : owner_(of), connection_(on) {}

void attempt::start(call& of, connection& on) noexcept {
  auto* started = ::new (detail::pool_allocate(sizeof(attempt))) attempt(of, on);
  started->attach(of);
  of.note_attempt(on.remote());
  on.add_user();
  on.take(*started);
}

void attempt::finish(const outcome& result, std::string_view text) noexcept {
  call& of = owner_;
  connection& on = connection_;
  leave();
  if (!result.succeeded() && of.deadline() != core::time_point::max() && of.home().now() >= of.deadline()) {
    of.settle(outcome::cancelled(cancel_cause::deadline), {});  // what fails at the deadline or later is late
  } else {
    of.settle(result, text);
  }
  on.remove_user();
}

bool attempt::anything_sent() const noexcept { return sent_ && connection_.has_sent_from(position_); }

void attempt::on_cancel(cancel_cause cause) noexcept {
  call& of = owner_;
  connection& on = connection_;
  on.forget(*this, cause);
  leave();
  of.settle_cancelled();
  on.remove_user();
}

void attempt::leave() noexcept {
  if (anything_sent()) owner_.note_sent();
  this->~attempt();
  detail::pool_deallocate(this, sizeof(attempt));
}

}  // namespace braid::client
