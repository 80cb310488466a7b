#include "server/loop_part.hpp"

#include "server/server_core.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace braid::server_side {
namespace {

constexpr std::size_t largest_kept_message = 16 * 1024;

}  // namespace

loop_part::loop_part(core::loop& home, std::shared_ptr<const server_core> server)
    : home_(home), server_(std::move(server)), messages_(server_->methods().size()) {}

loop_part::~loop_part() = default;

const server_options& loop_part::options() const noexcept { return server_->options(); }
const method_table& loop_part::methods() const noexcept { return server_->methods(); }

void loop_part::add(std::shared_ptr<net::transport> accepted) {
  const std::size_t limit = options().max_connections;
  const bool full = limit != 0 && server_->connection_count() >= limit;
  if (stopping_ || home_.stopping() || full) {
    accepted->close(true);
    return;
  }
  server_->connection_opened();
  connections_.push_back(std::make_unique<connection>(*this, std::move(accepted)));
  connections_.back()->start();
}

void loop_part::remove(connection& closed) noexcept {
  server_->connection_closed();
  const auto found = std::find_if(connections_.begin(), connections_.end(),
                                  [&](const auto& each) { return each.get() == &closed; });
  closed_.push_back(std::move(*found));
  *found = std::move(connections_.back());
  connections_.pop_back();
  for (auto next = calls_.begin(); next != calls_.end();) {
    running_call& call = *next++;
    if (call.is_from(closed)) call.connection_lost();
  }
  home_.at_turn_end(*this);
}

void loop_part::at_turn_end() noexcept {
  closed_.clear();
  if (stopping_ && calls_.empty()) finish_stop({});
}

message_pair loop_part::take_messages(const method_entry& method) {
  auto& kept = messages_[method.index];
  if (kept.empty()) {
    return {std::unique_ptr<google::protobuf::Message>(method.request_prototype->New()),
            std::unique_ptr<google::protobuf::Message>(method.response_prototype->New())};
  }
  message_pair taken = std::move(kept.back());
  kept.pop_back();
  return taken;
}

void loop_part::recycle(const method_entry& method, message_pair messages) noexcept {
  auto& kept = messages_[method.index];
  if (kept.size() >= kept_messages) return;
  // The sizes of the last serialisation or parse tell whether a message holds much memory.
  if (messages.request->ByteSizeLong() > largest_kept_message) return;
  if (messages.response->ByteSizeLong() > largest_kept_message) return;
  messages.response->Clear();
  kept.push_back(std::move(messages));
}

void loop_part::log_unanswered(const running_call& call) noexcept {
  home_.log().log(log_level::warning, fmt::format("{} returned and never ran done", call.describe()), {});
}

void loop_part::call_over() noexcept {
  if (stopping_ && calls_.empty()) home_.at_turn_end(*this);
}

void loop_part::stop(const stop_options& how, std::function<void(std::vector<std::string>)> stopped) {
  stopped_.push_back(std::move(stopped));
  if (!std::exchange(stopping_, true)) {
    stop_options_ = how;
    listeners_.clear();
    home_.arm(stop_timer_, home_.after(how.grace));
  }
  home_.at_turn_end(*this);
}

void loop_part::stop_timer_fired() {
  if (!std::exchange(killing_, true)) {
    home_.arm(stop_timer_, home_.after(stop_options_.kill));
    cancel_calls();
    home_.at_turn_end(*this);
    return;
  }
  std::vector<std::string> left;
  for (const running_call& each : calls_) left.push_back(each.describe());
  finish_stop(std::move(left));
}

void loop_part::cancel_calls() noexcept {
  for (auto next = calls_.begin(); next != calls_.end();) {
    running_call& call = *next++;
    call.cancel(cancel_cause::shutdown);
  }
}

void loop_part::finish_stop(std::vector<std::string> left) {
  stop_timer_.cancel();
  for (std::size_t i = connections_.size(); i-- != 0;) connections_[i]->close_after_flush();
  for (auto& each : std::exchange(stopped_, {})) each(left);
}

void loop_part::shut_down() noexcept {
  stopping_ = true;
  listeners_.clear();
  cancel_calls();
  while (!connections_.empty()) connections_.back()->close_after_flush();
  finish_stop({});
}

}  // namespace braid::server_side
