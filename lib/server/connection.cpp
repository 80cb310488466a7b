#include "server/connection.hpp"

#include "server/loop_part.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <new>
#include <utility>

namespace braid::server_side {
namespace {

constexpr std::size_t flush_threshold = std::size_t{256} * 1024;
constexpr std::chrono::seconds parting_time{1};

}  // namespace

connection::connection(loop_part& part, std::shared_ptr<net::transport> accepted)
    : part_(part),
      transport_(std::move(accepted)),
      load_(new connection_load(part.load(), part.options().max_concurrency_per_connection,
                                part.options().max_bytes_in_flight_per_connection)),
      session_(*this, queue_),
      reading_(*this, part.home(), part.options().progress_timeout),
      sending_(*this, part.home(), part.options().progress_timeout) {}

connection::~connection() = default;

void connection::start() {
  last_read_ = part_.home().now();
  watch_use();
  transport_->start(*this);
}

void connection::on_read(std::size_t size) {
  if (parting_ && size != 0) return;
  if (size == 0) {
    if (session_.ends_with_client()) {
      close_after_flush("the client has ended the connection");
    } else {
      close_when_done();
    }
    return;
  }
  session_.commit(size);
  last_read_ = part_.home().now();
  if (!held_back_) arrived_ = last_read_;
  take_requests(size);
}

void connection::take_requests(std::size_t arrived) noexcept {
  bool good = false;
  try {
    good = session_.take_requests(arrived_);
  } catch (const std::bad_alloc&) {
    if (closed_) return;
    part_.log_no_memory(remote());
    return close_after_flush("the server has no memory for what the client sent");
  }
  if (closed_) return;
  load_->set_arriving(session_.bytes_buffered());
  if (!good) {
    part_.log_broken(remote(), session_.what_broke());
    close_after_flush("the client broke the protocol");
    return;
  }
  if (session_.refuses()) return part_from_client();
  held_back_ = pauses_ != 0;
  watch_reading(arrived);
}

void connection::at_turn_end() noexcept {
  if (held_back_ && pauses_ == 0) take_requests(0);
  if (!closed_) flush();
}

void connection::cancel_calls(std::int64_t id, cancel_cause cause) noexcept {
  if (!std::exchange(indexed_, true)) {
    for (running_call& each : running_) index_.insert(each);
  }
  for (auto found = index_.find(id); found != index_.end(); found = index_.find(id))
    static_cast<running_call&>(*found).cancelled_by_client(cause);
}

void connection::check_credential(std::string_view credential) {
  verification_.start(
      part_.home(), part_.options(), credential, remote(),
      [this](std::shared_ptr<const auth_context> who, const std::string& why) { checked(who, why); });
  if (verification_.running()) pause(credential_checked);
}

void connection::checked(std::shared_ptr<const auth_context> who, const std::string& why) noexcept {
  load_->set_arriving(0);  // what was held back is counted as it is taken
  if (who) {
    session_.admit(std::move(who));
  } else {
    part_.log_refused(remote(), why);
    session_.refuse_client("the connection's credential was refused");
  }
  if (!closed_) resume(credential_checked);
}

void connection::answer(running_call& finished) noexcept {
  const std::uint64_t before = queue_.bytes_appended_total();
  try {
    session_.write_answer(finished);
  } catch (const std::bad_alloc&) {
    if (queue_.bytes_appended_total() != before) return close(true);  // in the middle of a frame
    session_.write_error(finished.id(), {ENOMEM, boost::system::system_category()},
                         "no memory for the response");
  }
  wrote();
}

void connection::answer_error(std::int64_t id, const error_code& code, std::string_view text) noexcept {
  session_.write_error(id, code, text);
  wrote();
}

void connection::wrote() noexcept {
  load_->set_unsent(session_.answers_waiting());
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

void connection::call_ended() noexcept {
  --calls_;
  used_ = true;
}

void connection::on_writable() {
  blocked_ = false;
  flush();
}

void connection::flush() noexcept {
  std::array<iovec, 64> pieces;
  std::size_t left = 0;
  while (!queue_.empty() && !blocked_ && !closed_) {
    const std::size_t count = queue_.gather(pieces);
    std::size_t wanted = 0;
    for (std::size_t i = 0; i < count; ++i) wanted += pieces[i].iov_len;
    error_code ec;
    const std::size_t taken = transport_->write_some(std::span(pieces.data(), count), ec);
    queue_.consume(taken);
    left += taken;
    if (ec) {
      close(false);
      return;
    }
    if (taken < wanted) blocked_ = true;
  }
  if (closed_) return;
  load_->set_unsent(session_.answers_waiting());
  apply_backpressure();
  watch_sending(left);
  if (queue_.empty()) part_.all_sent();
  if (queue_.empty() && parting_) transport_->shutdown_send();
  close_if_done();
}

// A client that does not read its answers is not read from.
void connection::apply_backpressure() noexcept {
  const std::size_t limit = part_.options().max_unsent_bytes;
  if (limit == 0 || read_ended_) return;
  if (queue_.size() > limit) {
    pause(unsent_answers);
  } else if (queue_.size() <= limit / 2) {
    resume(unsent_answers);
  }
}

void connection::pause(unsigned why) noexcept {
  if (std::exchange(pauses_, pauses_ | why) != 0) return;
  transport_->pause_reading();
  reading_.cancel();
}

void connection::resume(unsigned why) noexcept {
  if ((pauses_ & why) == 0 || (pauses_ &= ~why) != 0) return;
  transport_->resume_reading();
  watch_reading(0);
  if (held_back_) part_.home().at_turn_end(*this);
}

// Each KiB of an incomplete frame has its time to come, and so has the rest of it.
void connection::watch_reading(std::size_t arrived) noexcept {
  if (parting_) return;
  const bool another_frame = std::exchange(frames_seen_, session_.frames_taken()) != session_.frames_taken();
  const bool awaited = pauses_ == 0 && session_.mid_frame();
  if (another_frame || !awaited) reading_.cancel();
  if (awaited) reading_.watch(arrived);
}

// So has each KiB of answers that cannot leave. More answers are no progress.
void connection::watch_sending(std::size_t left) noexcept {
  if (blocked_) {
    sending_.watch(left);
  } else {
    sending_.cancel();
  }
}

void connection::watch_use() noexcept {
  const auto limit = part_.options().idle_timeout;
  if (limit.count() > 0) part_.home().arm(idle_, core::saturating_add(last_read_, limit));
}

// Reads only leave their time behind, and calls a mark, so that neither has to arm the timer.
void connection::idle_timer_fired() noexcept {
  const core::time_point now = part_.home().now();
  const bool busy = calls_ != 0 || verification_.running() || !queue_.empty();
  if (std::exchange(used_, false) || busy) last_read_ = now;
  if (core::saturating_add(last_read_, part_.options().idle_timeout) > now) return watch_use();
  part_.home().log().log(log_level::debug, "a connection without use is closed",
                         {{"peer", remote().to_string()}});
  close(false);
}

void connection::close_when_done() noexcept {
  if (closed_) return;
  read_ended_ = true;
  session_.drop_incomplete();
  watch_reading(0);
  close_if_done();
}

void connection::close_if_done() noexcept {
  if (read_ended_ && calls_ == 0 && queue_.empty()) close(false);
}

// To close with bytes unread would be a reset, which may overtake the last answer: so the client is told by
// end of file, and what it still sends is dropped until it goes, for a while.
void connection::part_from_client() noexcept {
  if (std::exchange(parting_, true)) return;
  reading_.arm(parting_time);
  flush();
}

void connection::close_after_flush(std::string_view why) noexcept {
  session_.give_up(errc::logoff, why);
  flush();
  close(false);
}

void connection::close(bool reset) noexcept {
  if (closed_) return;
  closed_ = true;
  reading_.cancel();
  sending_.cancel();
  idle_.cancel();
  verification_.abandon(cancel_cause::peer_gone);
  unschedule();
  transport_->close(reset);
  queue_.clear();
  load_->set_unsent(0);
  load_->set_arriving(0);
  part_.remove(*this);
  while (!running_.empty()) running_.front().connection_lost();
}

}  // namespace braid::server_side
