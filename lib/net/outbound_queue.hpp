#pragma once

#include <braid/buffer.hpp>

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace braid::net {

/// The bytes that a connection still has to send, in order; does no I/O.
///
/// Small pieces are copied next to each other into blocks, so that many frames leave in one write; large ones
/// are kept by reference. Bytes that gather() pointed to stay where they are until they are consumed,
/// whatever is added meanwhile. An empty queue holds no block: those of a thread's queues are used again by
/// whichever needs one next, so that idle connections have none. Not thread-safe.
class outbound_queue {
 public:
  /// \param limit most unsent bytes, checked by would_exceed() only; 0: no limit.
  explicit outbound_queue(std::size_t limit = 0) noexcept : limit_{limit} {}

  /// True if `n` more bytes would take a queue that is not empty over its limit. An empty queue takes one
  /// frame of any size, so that a limit below the size of a message does not refuse it for ever.
  bool would_exceed(std::size_t n) const noexcept {
    return limit_ != 0 && size_ != 0 && (size_ > limit_ || n > limit_ - size_);
  }
  std::size_t limit() const noexcept { return limit_; }

  /// Room for `n` bytes behind all that was added, to be encoded into and then committed; valid until the
  /// next call of a function that adds or consumes. Throws std::bad_alloc.
  char* reserve(std::size_t n);
  /// Adds the first `n` bytes of the last reserve().
  void commit(std::size_t n);
  /// Adds a copy of `bytes`. Throws std::bad_alloc.
  void append(std::string_view bytes);
  /// Adds the bytes of `bytes`: pieces up to copy_limit bytes are copied, larger ones are kept by reference.
  /// Throws std::bad_alloc.
  void append(const buffer& bytes);

  /// Stores the first unsent bytes, as many as fit, to `target`. They stay valid until consumed.
  /// \return the number of entries stored.
  std::size_t gather(std::span<iovec> target) const noexcept;
  /// Says that the first `n` unsent bytes, `n <= size()`, were handed to the transport.
  void consume(std::size_t n) noexcept;
  /// Drops all unsent bytes; they count as added and as not handed over. Not while gathered bytes are being
  /// written.
  void clear() noexcept;
  /// Unsent bytes.
  std::size_t size() const noexcept { return size_; }
  bool empty() const noexcept { return size_ == 0; }
  /// Bytes handed to the transport since the start. A frame that was added when bytes_appended_total() was P
  /// has had a byte handed over if this is larger than P.
  std::uint64_t bytes_consumed_total() const noexcept { return consumed_; }
  /// Bytes added since the start: the position in the stream of the next byte to be added.
  std::uint64_t bytes_appended_total() const noexcept { return appended_; }
  /// Size in bytes of the block that copied pieces go to; an empty queue has none.
  std::size_t kept_memory() const noexcept { return tail_.capacity(); }

  /// Pieces up to this size are copied.
  static constexpr std::size_t copy_limit = 4096;
  /// Smallest and largest block for copied pieces (a larger reserve() gets a block of its own).
  static constexpr std::size_t min_block = 2048;
  static constexpr std::size_t max_block = std::size_t{64} * 1024;

 private:
  void new_tail(std::size_t n);
  void added(detail::buffer_piece piece);
  void emptied() noexcept;

  std::size_t limit_;
  std::size_t size_ = 0;
  std::uint64_t consumed_ = 0;
  std::uint64_t appended_ = 0;
  std::vector<detail::buffer_piece> pieces_;  // from first_ on, the unsent ones
  std::size_t first_ = 0;
  detail::block_ref tail_;     // where copied pieces go
  std::size_t tail_used_ = 0;  // its bytes in use
  std::size_t block_size_ = min_block;
};

}  // namespace braid::net
