#include "server/connection.hpp"

#include "server/loop_part.hpp"
#include "server/running_call.hpp"

#include <array>

namespace braid::server_side {
namespace {

constexpr std::size_t flush_threshold = std::size_t{256} * 1024;

}  // namespace

connection::connection(loop_part& part, std::shared_ptr<net::transport> accepted)
    : part_(part), transport_(std::move(accepted)), session_(*this, queue_) {}

connection::~connection() = default;

void connection::on_read(std::size_t size) {
  if (size == 0) {
    close_when_done();
    return;
  }
  if (!session_.on_read(size)) {
    close(false);
    return;
  }
  if (!closed_) watch_progress();
}

void connection::answer(running_call& finished) noexcept {
  session_.write_answer(finished);
  part_.home().at_turn_end(*this);
  if (queue_.size() >= flush_threshold && !blocked_) flush();
}

void connection::answer_error(std::int64_t id, const error_code& code, std::string_view text) noexcept {
  session_.write_error(id, code, text);
  part_.home().at_turn_end(*this);
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
  if (progress) progress_.cancel();
  apply_backpressure();
  watch_progress();
  close_if_done();
}

// A client that does not read its answers is not read from.
void connection::apply_backpressure() noexcept {
  const std::size_t limit = part_.options().max_unsent_bytes;
  if (limit == 0 || read_ended_) return;
  if (!paused_ && queue_.size() > limit) {
    paused_ = true;
    transport_->pause_reading();
  } else if (paused_ && queue_.size() <= limit / 2) {
    paused_ = false;
    transport_->resume_reading();
  }
}

// While a frame is incomplete or answers cannot leave, each stretch without a byte is bounded.
void connection::watch_progress() noexcept {
  const auto limit = part_.options().progress_timeout;
  const bool waiting = session_.mid_frame() || blocked_;
  if (!waiting || limit.count() <= 0) {
    progress_.cancel();
  } else {
    part_.home().arm(progress_, part_.home().after(limit));
  }
}

void connection::close_when_done() noexcept {
  if (closed_) return;
  read_ended_ = true;
  transport_->pause_reading();
  session_.drop_incomplete();
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
  progress_.cancel();
  unschedule();
  transport_->close(reset);
  queue_.clear();
  part_.remove(*this);
}

}  // namespace braid::server_side
