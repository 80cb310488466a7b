#include "server/loop_part.hpp"

#include "server/server_core.hpp"

#include <algorithm>
#include <utility>

namespace braid::server_side {
namespace {

constexpr std::size_t largest_kept_message = 16 * 1024;

}  // namespace

loop_part::loop_part(core::loop& home, std::shared_ptr<server_settings> server)
    : home_(home), server_(std::move(server)), messages_(server_->methods.size()), next_loop_(home.index()) {}

loop_part::~loop_part() = default;

void loop_part::add(std::shared_ptr<net::transport> accepted) {
  const std::size_t limit = options().max_connections;
  const bool full = server_->connections.fetch_add(1, std::memory_order_relaxed) >= limit && limit != 0;
  if (stopping() || full) {
    server_->connections.fetch_sub(1, std::memory_order_relaxed);
    accepted->close(true);
    return;
  }
  connections_.push_back(std::make_unique<connection>(*this, std::move(accepted)));
  connections_.back()->set_place(connections_.size() - 1);
  connections_.back()->start();
}

void loop_part::remove(connection& closed) noexcept {
  server_->connections.fetch_sub(1, std::memory_order_relaxed);
  closed_.push_back(std::move(connections_[closed.place()]));
  if (closed.place() != connections_.size() - 1) {
    connections_[closed.place()] = std::move(connections_.back());
    connections_[closed.place()]->set_place(closed.place());
  }
  connections_.pop_back();
  home_.at_turn_end(*this);
}

void loop_part::at_turn_end() noexcept {
  closed_.clear();
  if (over_ || (stopping_ && has_ended())) finish_stop();
}

core::loop* loop_part::next_loop_for(const method_entry& method) noexcept {
  switch (method.run_on.where()) {
    case placement::kind::reading_loop:
      return &home_;
    case placement::kind::spread:
      return &server_->runtime->at(next_loop_++ % server_->runtime->loop_count());
    case placement::kind::loop:
      return &server_->runtime->at(method.run_on.index());
    case placement::kind::executor:
      break;
  }
  return nullptr;
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

void loop_part::recycle(const method_entry& method, message_pair messages,
                        std::size_t request_size) noexcept {
  auto& kept = messages_[method.index];
  if (kept.size() >= kept_messages) return;
  // What a message holds may be far more than its size now: a field that came twice has kept the room that
  // the larger one needed. For the request the bytes that came bound it.
  if (request_size > largest_kept_message) return;
  if (messages.response->ByteSizeLong() > largest_kept_message) return;
  messages.response->Clear();
  kept.push_back(std::move(messages));
}

void loop_part::log_unanswered(const google::protobuf::MethodDescriptor& method) noexcept {
  log_rarely(unanswered_, "a handler returned and has not run done", {{"method", method.full_name()}});
}

void loop_part::log_dropped(const google::protobuf::MethodDescriptor& method) noexcept {
  log_rarely(dropped_, "a handler has dropped its done without a call: nobody can answer any more",
             {{"method", method.full_name()}});
}

void loop_part::log_broken(const endpoint& peer, std::string_view why) noexcept {
  log_rarely(broken_, "a client broke the protocol", {{"peer", peer.to_string()}, {"why", why}});
}

void loop_part::log_no_memory(const endpoint& peer) noexcept {
  log_rarely(no_memory_, "there is no memory for the metadata of a request, whose connection is closed",
             {{"peer", peer.to_string()}}, log_level::error);
}

void loop_part::log_refused(const endpoint& peer, std::string_view why) noexcept {
  log_rarely(refused_, "a client's credential was refused", {{"peer", peer.to_string()}, {"why", why}});
}

void loop_part::log_accept_failed(const error_code& why) noexcept {
  log_rarely(accept_failed_, "accepting a connection failed", {{"why", why.message()}});
}

void loop_part::log_threw(std::string_view what) noexcept { log_rarely(threw_, what, {}, log_level::error); }

void loop_part::log_rarely(rare_line& line, std::string_view text, std::vector<log_field> fields,
                           log_level level) noexcept {
  const core::time_point now = home_.now();
  if (now < line.next) {
    ++line.unlogged;
    return;
  }
  line.next = now + std::chrono::seconds(1);
  const std::string unlogged = std::to_string(std::exchange(line.unlogged, 0));
  fields.push_back({"not logged before", unlogged});
  home_.log().log(level, text, fields);
}

void loop_part::call_over() noexcept {
  if (stopping_ && !over_) home_.at_turn_end(*this);
}

void loop_part::stop(const stop_options& how, std::function<void(std::vector<std::string>)> stopped) {
  stopped_.push_back(std::move(stopped));
  home_.at_turn_end(*this);
  if (over_) return;
  self_ = shared_from_this();
  stopping_ = true;
  if (!std::exchange(holds_work_, true)) home_.hold_work();
  const core::time_point end = home_.after(killing_ ? how.kill : how.grace);
  kill_time_ = std::min(kill_time_, how.kill);
  if (end < stop_end_) {
    stop_end_ = end;
    home_.arm(stop_timer_, end);
  }
  listeners_.clear();  // last: a listener may be all that keeps the server
}

void loop_part::stop_timer_fired() noexcept {
  if (!std::exchange(killing_, true)) {
    stop_end_ = home_.after(kill_time_);
    home_.arm(stop_timer_, stop_end_);
    cancel_calls();
  } else {
    over_ = true;
  }
  home_.at_turn_end(*this);
}

void loop_part::cancel_calls() noexcept {
  for (auto next = calls_.begin(); next != calls_.end();) {
    running_call& call = *next++;
    call.shut_down();
  }
}

/// Whether all calls have ended and their answers have gone.
bool loop_part::has_ended() const noexcept {
  return calls_.empty() && std::none_of(connections_.begin(), connections_.end(),
                                        [](const auto& each) { return each->has_unsent(); });
}

void loop_part::finish_stop() noexcept {
  over_ = true;
  if (std::exchange(holds_work_, false)) home_.release_work();
  stop_timer_.cancel();
  std::vector<std::string> left;
  for (const running_call& each : calls_) left.push_back(each.describe());
  while (!connections_.empty()) connections_.back()->close_after_flush("the server is stopping");
  // Once this is released another thread may destroy it, so the loop must not know it any more.
  unschedule();
  closed_.clear();
  const auto keep = std::move(self_);  // perhaps the last that holds this
  for (auto& each : std::exchange(stopped_, {})) each(left);
}

void loop_part::shut_down() noexcept {
  self_ = shared_from_this();
  stopping_ = true;
  over_ = true;
  cancel_calls();
  home_.at_turn_end(*this);
  listeners_.clear();
}

}  // namespace braid::server_side
