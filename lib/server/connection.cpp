#include "server/connection.hpp"

#include "server/loop_part.hpp"
#include "server/running_call.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace braid::server_side {
namespace {

constexpr std::size_t flush_threshold = std::size_t{256} * 1024;

}  // namespace

connection::connection(loop_part& part, std::shared_ptr<net::transport> accepted)
    : part_(part), transport_(std::move(accepted)), session_(*this, queue_) {}

connection::~connection() = default;

void connection::on_read(std::size_t size) {
  if (size == 0) {
    if (session_.ends_with_client()) {
      close_after_flush();
    } else {
      close_when_done();
    }
    return;
  }
  session_.commit(size);
  take_requests();
}

void connection::take_requests() noexcept {
  const bool good = session_.take_requests();
  if (closed_) return;
  if (!good) {
    part_.home().log().log(log_level::warning, "a client broke the protocol",
                           {{"peer", remote().to_string()}, {"why", session_.what_broke()}});
    close_after_flush();
    return;
  }
  held_back_ = paused_;
  watch_reading();
}

void connection::at_turn_end() noexcept {
  if (held_back_ && !paused_) take_requests();
  if (!closed_) flush();
}

void connection::cancel_calls(std::int64_t id, cancel_cause cause) noexcept {
  if (!std::exchange(indexed_, true)) part_.index_calls(*this, index_);
  for (auto found = index_.find(id); found != index_.end(); found = index_.find(id))
    static_cast<running_call&>(*found).cancelled_by_client(cause);
}

void connection::answer(running_call& finished) noexcept {
  session_.write_answer(finished);
  wrote();
}

void connection::answer_error(std::int64_t id, const error_code& code, std::string_view text) noexcept {
  session_.write_error(id, code, text);
  wrote();
}

void connection::wrote() noexcept {
  part_.home().at_turn_end(*this);
  const std::size_t limit = part_.options().max_unsent_bytes;
  const std::size_t bearable = limit == 0 ? flush_threshold : std::min(flush_threshold, limit);
  if (queue_.size() <= bearable) return;
  if (blocked_) {
    apply_backpressure();
  } else {
    flush();
  }
}

void connection::call_ended() noexcept { --calls_; }

void connection::on_writable() {
  blocked_ = false;
  flush();
}

void connection::flush() noexcept {
  std::array<iovec, 64> pieces;
  bool progress = false;
  while (!queue_.empty() && !blocked_ && !closed_) {
    const std::size_t count = queue_.gather(pieces);
    std::size_t wanted = 0;
    for (std::size_t i = 0; i < count; ++i) wanted += pieces[i].iov_len;
    error_code ec;
    const std::size_t taken = transport_->write_some(std::span(pieces.data(), count), ec);
    queue_.consume(taken);
    progress = progress || taken != 0;
    if (ec) {
      close(false);
      return;
    }
    if (taken < wanted) blocked_ = true;
  }
  if (closed_) return;
  apply_backpressure();
  watch_sending(progress);
  if (queue_.empty()) part_.all_sent();
  close_if_done();
}

// A client that does not read its answers is not read from.
void connection::apply_backpressure() noexcept {
  const std::size_t limit = part_.options().max_unsent_bytes;
  if (limit == 0 || read_ended_) return;
  if (!paused_ && queue_.size() > limit) {
    paused_ = true;
    transport_->pause_reading();
    reading_.cancel();
  } else if (paused_ && queue_.size() <= limit / 2) {
    paused_ = false;
    transport_->resume_reading();
    watch_reading();
    if (held_back_) part_.home().at_turn_end(*this);
  }
}

// Each stretch in which a frame is incomplete and no byte of it comes is bounded.
void connection::watch_reading() noexcept {
  const auto limit = part_.options().progress_timeout;
  if (paused_ || limit.count() <= 0 || !session_.mid_frame()) {
    reading_.cancel();
  } else {
    part_.home().arm(reading_, part_.home().after(limit));
  }
}

// So is each in which answers cannot leave. More answers are no progress.
void connection::watch_sending(bool progress) noexcept {
  const auto limit = part_.options().progress_timeout;
  if (!blocked_ || limit.count() <= 0) {
    sending_.cancel();
  } else if (progress || !sending_.armed()) {
    part_.home().arm(sending_, part_.home().after(limit));
  }
}

void connection::close_when_done() noexcept {
  if (closed_) return;
  read_ended_ = true;
  session_.drop_incomplete();
  watch_reading();
  close_if_done();
}

void connection::close_if_done() noexcept {
  if (read_ended_ && calls_ == 0 && queue_.empty()) close(false);
}

void connection::close_after_flush() noexcept {
  flush();
  close(false);
}

void connection::close(bool reset) noexcept {
  if (closed_) return;
  closed_ = true;
  reading_.cancel();
  sending_.cancel();
  unschedule();
  transport_->close(reset);
  queue_.clear();
  part_.remove(*this);
}

}  // namespace braid::server_side
