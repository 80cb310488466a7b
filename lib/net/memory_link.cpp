#include "net/memory_link.hpp"

#include <boost/asio/error.hpp>

#include <algorithm>
#include <utility>

namespace braid::net {
namespace {

namespace error = boost::asio::error;

std::string gather(std::span<const iovec> pieces, std::size_t limit) {
  std::string bytes;
  for (const iovec& piece : pieces) {
    const std::size_t size = std::min(piece.iov_len, limit - bytes.size());
    bytes.append(static_cast<const char*>(piece.iov_base), size);
    if (bytes.size() == limit) break;
  }
  return bytes;
}

std::size_t total_size(std::span<const iovec> pieces) noexcept {
  std::size_t total = 0;
  for (const iovec& piece : pieces) total += piece.iov_len;
  return total;
}

}  // namespace

memory_link::memory_link(const endpoint& client_at, const endpoint& server_at,
                         const testing::link_faults& faults, jitter_source jitter)
    : addresses_{client_at, server_at}, faults_(faults), jitter_(std::move(jitter)) {}

void memory_link::set(const testing::link_faults& faults) {
  const std::lock_guard lock(mutex_);
  faults_ = faults;
  for (const side each : {client, server}) {
    direction& way = towards_[each];
    if (std::exchange(way.writer_waits, false)) way.writer_may_go_on = true;
    notify(each);
  }
}

void memory_link::break_now(const error_code& why) {
  const std::lock_guard lock(mutex_);
  why_broken_ = why;
  for (const side each : {client, server}) {
    direction& way = towards_[each];
    way.pieces.clear();
    way.ended = true;
    way.pieces.push_back({kind::reset, {}, {}});
    notify(each);
  }
}

error_code memory_link::why_broken() const {
  const std::lock_guard lock(mutex_);
  return why_broken_ ? why_broken_ : error::connection_reset;
}

bool memory_link::open() const {
  const std::lock_guard lock(mutex_);
  return !ends_[client].gone || !ends_[server].gone;
}

core::time_point memory_link::arrival(core::time_point now) const {
  const std::lock_guard lock(mutex_);
  return delayed(now);
}

core::time_point memory_link::delayed(core::time_point now) const {
  const core::time_point at = core::saturating_add(now, faults_.latency);
  return faults_.jitter.count() > 0 ? core::saturating_add(at, jitter_(faults_.jitter)) : at;
}

void memory_link::attach(side which, memory_end& end) {
  const std::lock_guard lock(mutex_);
  ends_[which].end = &end;
}

bool memory_link::silenced(side to) const noexcept {
  return cut(to).how == testing::cut_point::kind::silence && towards_[to].total >= cut(to).after;
}

std::size_t memory_link::write(side from, std::span<const iovec> pieces, core::time_point now,
                               error_code& ec) {
  const std::lock_guard lock(mutex_);
  ec = {};
  const side to = other(from);
  direction& way = towards_[to];
  const std::size_t size = total_size(pieces);
  if (way.ended) return size;  // broken, and the writer has not heard of it yet
  if (ends_[to].gone) {
    finish(from, kind::reset, now);
    way.ended = true;
    return size;
  }
  const std::size_t window = std::max<std::size_t>(faults_.window, 1);
  const std::size_t taken = std::min(size, window - std::min(window, way.occupied));
  if (taken < size) way.writer_waits = true;
  if (taken > 0) pass(to, gather(pieces, taken), now);
  return taken;
}

void memory_link::pass(side to, std::string bytes, core::time_point now) {
  direction& way = towards_[to];
  const testing::cut_point& end = cut(to);
  const std::uint64_t left = end.after - std::min(end.after, way.total);
  const std::size_t size = bytes.size();
  way.total += size;
  way.occupied += size;
  bytes.resize(static_cast<std::size_t>(std::min<std::uint64_t>(size, left)));
  if (!bytes.empty()) push(to, kind::data, std::move(bytes), now);
  if (way.total < end.after || end.how == testing::cut_point::kind::silence) return;
  finish(to, kind::reset, now);
  finish(other(to), kind::reset, now);
}

void memory_link::finish(side to, kind how, core::time_point now) {
  towards_[to].ended = true;
  if (!silenced(to)) push(to, how, {}, now);
}

void memory_link::push(side to, kind what, std::string bytes, core::time_point now) {
  direction& way = towards_[to];
  way.last_due = std::max(way.last_due, delayed(now));
  way.pieces.push_back({what, std::move(bytes), way.last_due});
  notify(to);
}

void memory_link::shutdown(side from, core::time_point now) {
  const std::lock_guard lock(mutex_);
  if (!towards_[other(from)].ended) finish(other(from), kind::end, now);
}

void memory_link::close(side which, bool reset, core::time_point now) {
  const std::lock_guard lock(mutex_);
  if (std::exchange(ends_[which].gone, true)) return;
  ends_[which].end = nullptr;
  const auto& unread = towards_[which].pieces;
  reset =
      reset || std::any_of(unread.begin(), unread.end(), [](const piece& p) { return p.what == kind::data; });
  const side to = other(which);
  if (reset) {
    finish(to, kind::reset, now);
  } else if (!towards_[to].ended) {
    finish(to, kind::end, now);
  }
  towards_[which].pieces.clear();
}

memory_link::next memory_link::peek(side which, core::time_point now, core::time_point& until) {
  const std::lock_guard lock(mutex_);
  const direction& way = towards_[which];
  if (way.pieces.empty() || faults_.stalled) return next::nothing;
  const piece& first = way.pieces.front();
  until = first.due;
  if (first.due > now) return next::wait;
  switch (first.what) {
    case kind::data:
      return next::data;
    case kind::end:
      return next::end;
    case kind::reset:
      break;
  }
  return next::broken;
}

std::size_t memory_link::read(side which, std::span<char> space, core::time_point now) {
  const std::lock_guard lock(mutex_);
  if (faults_.max_delivery > 0) space = space.first(std::min(space.size(), faults_.max_delivery));
  direction& way = towards_[which];
  std::size_t moved = 0;
  while (moved < space.size() && !way.pieces.empty()) {
    piece& first = way.pieces.front();
    if (first.what != kind::data || first.due > now) break;
    const std::size_t size = std::min(space.size() - moved, first.bytes.size() - first.taken);
    std::copy_n(first.bytes.data() + first.taken, size, space.data() + moved);
    moved += size;
    first.taken += size;
    if (first.taken == first.bytes.size()) way.pieces.pop_front();
  }
  way.occupied -= moved;
  if (moved > 0 && std::exchange(way.writer_waits, false)) {
    way.writer_may_go_on = true;
    notify(other(which));
  }
  return moved;
}

void memory_link::pop(side which) {
  const std::lock_guard lock(mutex_);
  if (!towards_[which].pieces.empty()) towards_[which].pieces.pop_front();
}

bool memory_link::take_writable(side which) {
  const std::lock_guard lock(mutex_);
  return std::exchange(towards_[other(which)].writer_may_go_on, false);
}

void memory_link::notify(side which) {
  if (memory_end* const end = ends_[which].end) end->nudge();
}

memory_end::memory_end(core::loop& home, std::shared_ptr<memory_link> link, memory_link::side which)
    : home_(home),
      link_(std::move(link)),
      which_(which),
      self_(std::make_shared<memory_end*>(this)),
      arrival_(this) {
  link_->attach(which, *this);
}

void memory_end::nudge() {
  home_.post([self = self_] {
    if (*self) (*self)->advance();
  });
}

void memory_end::start(transport_events& events) {
  events_ = &events;
  nudge();
}

void memory_end::resume_reading() {
  if (std::exchange(paused_, false)) nudge();
}

void memory_end::advance() {
  const auto self = self_;
  if (events_ && link_->take_writable(which_)) events_->on_writable();
  if (*self && events_ && !paused_) receive();
}

void memory_end::read() {
  std::span<char> space;
  try {
    space = events_->read_space();
  } catch (const std::bad_alloc&) {
    return std::exchange(events_, nullptr)->on_broken(error::no_memory);
  }
  const std::size_t size = link_->read(which_, space, home_.now());
  nudge();  // one read for each turn, as with sockets
  if (size > 0) events_->on_read(size);
}

void memory_end::receive() {
  core::time_point until;
  switch (link_->peek(which_, home_.now(), until)) {
    case memory_link::next::nothing:
      return;
    case memory_link::next::wait:
      return home_.arm(arrival_, until);
    case memory_link::next::data:
      return read();
    case memory_link::next::end:
      link_->pop(which_);
      read_ended_ = true;
      nudge();
      return events_->on_read(0);
    case memory_link::next::broken:
      link_->pop(which_);
      broken_ = true;
      if (!read_ended_) std::exchange(events_, nullptr)->on_broken(link_->why_broken());
      return;  // after the end of file, as with a socket, the next write tells
  }
}

std::size_t memory_end::write_some(std::span<const iovec> pieces, error_code& ec) {
  // As with a socket, a write tells of a reset that no read has met yet.
  core::time_point due;
  const bool reset = broken_ || link_->peek(which_, home_.now(), due) == memory_link::next::broken;
  if (closed_ || reset || send_ended_) {
    ec = closed_ ? error::bad_descriptor : error::broken_pipe;
    if (reset && !closed_) ec = link_->why_broken();
    return 0;
  }
  return link_->write(which_, pieces, home_.now(), ec);
}

void memory_end::shutdown_send() {
  if (!closed_ && !std::exchange(send_ended_, true)) link_->shutdown(which_, home_.now());
}

void memory_end::close(bool reset) noexcept {
  if (std::exchange(closed_, true)) return;
  events_ = nullptr;
  *self_ = nullptr;
  arrival_.cancel();
  link_->close(which_, reset, home_.now());
}

}  // namespace braid::net
