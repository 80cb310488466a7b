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
  of.settle(result, text);
  on.remove_user();
}

void attempt::on_cancel(cancel_cause) noexcept {
  call& of = owner_;
  connection& on = connection_;
  on.forget(*this);
  leave();
  of.settle_cancelled();
  on.remove_user();
}

void attempt::leave() noexcept {
  this->~attempt();
  detail::pool_deallocate(this, sizeof(attempt));
}

}  // namespace braid::client
