#include "client/landing.hpp"

#include "client/attempt.hpp"
#include "client/connection.hpp"
#include "client/connection_table.hpp"
#include "wire/frame.hpp"

#include <fmt/format.h>
#include <google/protobuf/empty.pb.h>

#include <new>

namespace braid::client {
namespace {

// The messages of a carried call, which are never looked at: it has its payload, and its answer is not read.
google::protobuf::Message& no_message() {
  static google::protobuf::Empty only;
  return only;
}

}  // namespace

carried_call::carried_call(landing& to, core::loop& home, crossing_request request)
    : landing_(to), call_(home, *request.method, no_message(), no_message(), control_, *this) {
  answer_.id = request.id;
  call_.inherit_deadline(request.started, request.deadline);
  call_.carry(std::move(request.payload), std::move(request.carried), *this);
}

void carried_call::start(connection& on) noexcept {
  core::loop& home = call_.home();
  home.add_live(*this);
  if (home.stopping()) call_.cancel(cancel_cause::shutdown);
  if (home.now() >= call_.deadline()) call_.cancel(cancel_cause::deadline);
  if (!call_.settled()) attempt::start(call_, on);
}

void carried_call::forget(cancel_cause cause) noexcept {
  forgotten_ = true;
  call_.cancel(cause);
}

void carried_call::take_answer(const wire::inbound_frame& frame) { answer_.frame = frame.take_whole(); }

void carried_call::on_settled(call&) noexcept {
  live_node::unlink();
  answer_.result = call_.result();
  answer_.text = control_.ErrorText();
  answer_.remote = control_.remote_side();
  answer_.sent = call_.anything_sent();
  landing_.ended(*this);
}

std::string carried_call::describe() const {
  return fmt::format("a call of {} from another loop", call_.method().full_name());
}

landing::~landing() { destroy_ended(); }

void landing::receive(crossing_batch batch) noexcept {
  on_the_way_.fetch_sub(batch.bytes, std::memory_order_relaxed);
  if (!connection_) {
    connection_ = &home_.service<connection_table>().connection_of(settings_);
    connection_->add_user();
  }
  for (auto& request : batch.requests)
    if (request.id != 0) begin(std::move(request));
  for (const auto& each : batch.forgotten)
    if (const auto found = running_.find(each.id); found != running_.end()) found->second->forget(each.cause);
}

void landing::begin(crossing_request request) noexcept {
  const std::uint64_t id = request.id;
  void* const memory = detail::pool_allocate(sizeof(carried_call));
  auto* const started = ::new (memory) carried_call(*this, home_, std::move(request));
  running_.emplace(id, started);
  started->start(*connection_);
}

void landing::ended(carried_call& which) noexcept {
  running_.erase(which.answer().id);
  if (!which.forgotten()) answers_.push_back(std::move(which.answer()));
  ended_.push_front(which);
  home_.at_turn_end(*this);
}

void landing::at_turn_end() noexcept {
  destroy_ended();
  if (!answers_.empty()) send_back_(std::exchange(answers_, {}));
}

void landing::destroy_ended() noexcept {
  ended_.clear_and_dispose([](carried_call* each) {
    each->~carried_call();
    detail::pool_deallocate(each, sizeof(carried_call));
  });
}

void landing::leave() noexcept {
  while (!running_.empty()) running_.begin()->second->forget(cancel_cause::shutdown);
  if (connection_) std::exchange(connection_, nullptr)->remove_user();
}

}  // namespace braid::client
