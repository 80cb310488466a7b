#pragma once

#include <braid/config.hpp>

/// \file
/// Immutable, reference-counted bytes: what attachments and payload pieces are made of.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace braid {

namespace detail {

/// Bytes with an intrusive reference count, freed when the last reference goes, on the thread that drops it.
///
/// The bytes lie behind the header in the same allocation, or are foreign ones that a derived block keeps
/// alive.
class block {
 public:
  block(const block&) = delete;
  block& operator=(const block&) = delete;

  /// A block of `capacity` bytes of uninitialised memory, with one reference. Throws std::bad_alloc.
  static block* allocate(std::size_t capacity);

  char* data() const noexcept { return data_; }
  std::size_t capacity() const noexcept { return capacity_; }
  void add_ref() noexcept { refs_.fetch_add(1, std::memory_order_relaxed); }
  void release() noexcept {
    if (refs_.fetch_sub(1, std::memory_order_acq_rel) == 1) destroy_(this);
  }
  /// True if the caller's reference is the only one; then nobody else reads or writes the bytes.
  bool unique() const noexcept { return refs_.load(std::memory_order_acquire) == 1; }
  /// True if the bytes may be written by their only owner (foreign memory never).
  bool writable() const noexcept { return writable_; }

 protected:
  using destroyer = void (*)(block*) noexcept;
  block(char* data, std::size_t capacity, bool writable, destroyer destroy) noexcept
      : writable_{writable}, destroy_{destroy}, data_{data}, capacity_{capacity} {}
  ~block() = default;

 private:
  static void free_block(block*) noexcept;

  std::atomic<std::uint32_t> refs_{1};
  bool writable_;
  destroyer destroy_;
  char* data_;
  std::size_t capacity_;
};

/// A counted reference to a block, or none. A byte may be written through it while no buffer covers that
/// byte.
class block_ref {
 public:
  block_ref() noexcept = default;
  /// A new block of `capacity` bytes. Throws std::bad_alloc.
  explicit block_ref(std::size_t capacity) : block_{block::allocate(capacity)} {}
  /// Takes over the reference that `adopted` came with.
  static block_ref adopt(block* adopted) noexcept { return block_ref{adopted, nullptr}; }
  /// Adds a reference.
  static block_ref share(block* shared) noexcept {
    if (shared) shared->add_ref();
    return adopt(shared);
  }

  block_ref(const block_ref& other) noexcept : block_{other.block_} {
    if (block_) block_->add_ref();
  }
  block_ref(block_ref&& other) noexcept : block_{std::exchange(other.block_, nullptr)} {}
  block_ref& operator=(block_ref other) noexcept {
    std::swap(block_, other.block_);
    return *this;
  }
  ~block_ref() {
    if (block_) block_->release();
  }

  explicit operator bool() const noexcept { return block_ != nullptr; }
  block* get() const noexcept { return block_; }
  char* data() const noexcept { return block_ ? block_->data() : nullptr; }
  std::size_t capacity() const noexcept { return block_ ? block_->capacity() : 0; }
  /// See block::unique. False without a block.
  bool unique() const noexcept { return block_ && block_->unique(); }
  void reset() noexcept { *this = block_ref{}; }

 private:
  block_ref(block* adopted, std::nullptr_t) noexcept : block_{adopted} {}

  block* block_ = nullptr;
};

/// One contiguous run of bytes inside a block.
struct buffer_piece {
  block_ref owner;
  const char* data = nullptr;
  std::size_t size = 0;
};

}  // namespace detail

/// An immutable chain of byte pieces. Copying, slicing and appending one buffer to another count references
/// and never copy bytes.
///
/// Up to two pieces are stored inside the object, more on the heap. A moved-from buffer is empty.
///
/// Thread safety: distinct buffers may be used from different threads at once, also when they share bytes.
/// One buffer must not be changed while another thread uses it.
class buffer {
 public:
  /// An empty buffer.
  buffer() noexcept = default;
  /// A buffer with a copy of `bytes`. Throws std::bad_alloc.
  explicit buffer(std::string_view bytes) { append(bytes); }
  /// A buffer of `size` bytes at `data`, which lie inside the block of `owner`. Counts a reference only.
  buffer(detail::block_ref owner, const char* data, std::size_t size) noexcept;
  /// Shares the bytes of another. Throws std::bad_alloc.
  buffer(const buffer& other);
  /// Takes the bytes of another, which is empty afterwards.
  buffer(buffer&& other) noexcept;
  /// Shares the bytes of another in place of its own. Throws std::bad_alloc.
  buffer& operator=(const buffer& other);
  /// Takes the bytes of another in place of its own.
  buffer& operator=(buffer&& other) noexcept;
  ~buffer();

  /// A buffer that owns `bytes` without copying them (short strings are as cheap to copy and may be).
  static buffer take(std::string&& bytes);
  /// A buffer over `size` bytes at `data` that belong to the caller.
  ///
  /// The bytes must stay valid and unchanged until `release` is called. That happens once, when the last
  /// buffer that shares them is gone, on whichever thread drops it; at once if `size` is 0. `release` may be
  /// empty and must not throw. Not called if this function throws (std::bad_alloc).
  static buffer wrap(const void* data, std::size_t size, std::function<void()> release);

  /// Number of bytes.
  std::size_t size() const noexcept { return size_; }
  /// Whether there are no bytes.
  bool empty() const noexcept { return size_ == 0; }
  /// Drops all bytes.
  void clear() noexcept;

  /// Adds the bytes of `other` (which may be this buffer) by reference. Throws std::bad_alloc.
  void append(const buffer& other);
  /// The same; `other` is empty afterwards.
  void append(buffer&& other);
  /// Adds a copy of `bytes`, which must not lie in this buffer. Throws std::bad_alloc.
  void append(std::string_view bytes);

  /// The `length` bytes from `offset`, by reference; what lies past the end is left out. Throws
  /// std::bad_alloc.
  buffer slice(std::size_t offset, std::size_t length = std::string_view::npos) const;

  /// Number of contiguous pieces; none is empty.
  std::size_t piece_count() const noexcept { return count_; }
  /// The i-th piece, `i < piece_count()`. Valid while any buffer shares these bytes.
  std::string_view piece(std::size_t i) const noexcept { return {pieces()[i].data, pieces()[i].size}; }
  /// The i-th piece with its owner, `i < piece_count()`; for the library's own queues.
  const detail::buffer_piece& owned_piece(std::size_t i) const noexcept { return pieces()[i]; }
  /// All bytes in one view if there are at most one piece, else nothing.
  std::optional<std::string_view> flat() const noexcept;
  /// A copy of all bytes.
  std::string to_string() const;
  /// Copies all bytes to `target`, which has room for size() bytes.
  void copy_to(void* target) const noexcept;

  /// Equal if the bytes are, however they are cut into pieces.
  friend bool operator==(const buffer& a, const buffer& b) noexcept;

 private:
  static constexpr std::size_t inline_pieces = 2;

  const detail::buffer_piece* pieces() const noexcept { return heap_ ? heap_.get() : inline_; }
  detail::buffer_piece* pieces() noexcept { return heap_ ? heap_.get() : inline_; }
  void reserve(std::size_t count);
  void push(detail::buffer_piece added);
  bool extend_last(std::string_view bytes) noexcept;

  std::size_t size_ = 0;
  std::uint32_t count_ = 0;
  std::uint32_t capacity_ = inline_pieces;
  detail::buffer_piece inline_[inline_pieces];
  std::unique_ptr<detail::buffer_piece[]> heap_;
};

}  // namespace braid
