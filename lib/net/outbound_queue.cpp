#include "net/outbound_queue.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

namespace braid::net {

namespace {

// So many blocks a thread keeps at most.
constexpr std::size_t spare_blocks = 8;

// Whether the thread ends and has dropped its spare blocks; queues may still be in use then. It has no
// destructor itself, so it can be read for as long as the thread runs.
constinit thread_local bool closed = false;

/// Blocks that empty queues of this thread have left, none larger than max_block.
class spare {
 public:
  constexpr spare() noexcept = default;
  spare(const spare&) = delete;
  spare& operator=(const spare&) = delete;
  ~spare() { closed = true; }

  /// Sets `to`, which holds none, to a block of at least so many bytes if the last one given is one.
  bool take(detail::block_ref& to, std::size_t at_least) noexcept {
    if (count_ == 0 || blocks_[count_ - 1].capacity() < at_least) return false;
    std::swap(to, blocks_[--count_]);
    return true;
  }
  /// Takes `from`'s, where there is room.
  void give(detail::block_ref& from) noexcept {
    if (count_ < spare_blocks) std::swap(from, blocks_[count_++]);
  }

 private:
  std::array<detail::block_ref, spare_blocks> blocks_;
  std::size_t count_ = 0;
};
constinit thread_local spare spare_of_thread;

bool take_spare(detail::block_ref& to, std::size_t at_least) noexcept {
  return !closed && spare_of_thread.take(to, at_least);
}
void give_spare(detail::block_ref& from) noexcept {
  if (!closed) spare_of_thread.give(from);
}

}  // namespace

char* outbound_queue::reserve(std::size_t n) {
  if (!tail_ || tail_.capacity() - tail_used_ < n) new_tail(n);
  return tail_.data() + tail_used_;
}

void outbound_queue::commit(std::size_t n) {
  if (n == 0) return;
  // The tail only gives room behind all that it holds, so its last piece goes on here.
  if (first_ != pieces_.size() && pieces_.back().owner.get() == tail_.get()) {
    pieces_.back().size += n;
    size_ += n;
    appended_ += n;
  } else {
    added({tail_, tail_.data() + tail_used_, n});
  }
  tail_used_ += n;
}

void outbound_queue::append(std::string_view bytes) {
  if (bytes.empty()) return;
  std::memcpy(reserve(bytes.size()), bytes.data(), bytes.size());
  commit(bytes.size());
}

void outbound_queue::append(const buffer& bytes) {
  for (std::size_t i = 0; i < bytes.piece_count(); ++i) {
    const auto& piece = bytes.owned_piece(i);
    if (piece.size <= copy_limit) {
      append(bytes.piece(i));
    } else {
      added(piece);
    }
  }
}

std::size_t outbound_queue::gather(std::span<iovec> target) const noexcept {
  const std::size_t count = std::min(target.size(), pieces_.size() - first_);
  for (std::size_t i = 0; i < count; ++i) {
    const auto& piece = pieces_[first_ + i];
    target[i] = {const_cast<char*>(piece.data), piece.size};
  }
  return count;
}

void outbound_queue::consume(std::size_t n) noexcept {
  if (n == 0) return;
  consumed_ += n;
  size_ -= n;
  while (n != 0) {
    auto& piece = pieces_[first_];
    if (n < piece.size) {
      piece.data += n;
      piece.size -= n;
      break;
    }
    n -= piece.size;
    piece = {};
    ++first_;
  }
  if (size_ == 0) {
    emptied();
  } else if (first_ > pieces_.size() / 2) {
    pieces_.erase(pieces_.begin(), pieces_.begin() + static_cast<std::ptrdiff_t>(first_));
    first_ = 0;
  }
}

void outbound_queue::clear() noexcept {
  size_ = 0;
  emptied();
}

/// Blocks grow with what is added between two moments of emptiness, so that a burst needs few of them.
void outbound_queue::new_tail(std::size_t n) {
  if (tail_) block_size_ = std::min(block_size_ * 4, max_block);
  const std::size_t size = std::max(n, block_size_);
  tail_.reset();
  if (!take_spare(tail_, size)) tail_ = detail::block_ref{size};
  tail_used_ = 0;
}

void outbound_queue::added(detail::buffer_piece piece) {
  const std::size_t n = piece.size;
  pieces_.push_back(std::move(piece));
  size_ += n;
  appended_ += n;
}

void outbound_queue::emptied() noexcept {
  pieces_.clear();
  first_ = 0;
  tail_used_ = 0;
  block_size_ = min_block;
  if (tail_ && tail_.capacity() <= max_block) give_spare(tail_);
  tail_.reset();
}

}  // namespace braid::net
