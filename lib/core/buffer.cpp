#include <braid/buffer.hpp>
#include <braid/completion.hpp>

#include <algorithm>
#include <cstring>
#include <new>

namespace braid {

namespace detail {

namespace {

struct string_block final : block {
  explicit string_block(std::string&& bytes)
      : block{nullptr, 0, false, [](block* b) noexcept { delete static_cast<string_block*>(b); }},
        text{std::move(bytes)} {}
  std::string text;
};

struct foreign_block final : block {
  explicit foreign_block(std::function<void()>&& done)
      : block{nullptr, 0, false, [](block* b) noexcept { destroy(static_cast<foreign_block*>(b)); }},
        release_bytes{std::move(done)} {}
  static void destroy(foreign_block* b) noexcept {
    if (b->release_bytes) b->release_bytes();
    delete b;
  }
  std::function<void()> release_bytes;
};

}  // namespace

block* block::allocate(std::size_t capacity) {
  static_assert(sizeof(block) % alignof(std::max_align_t) == 0);
  void* memory = pool_allocate(sizeof(block) + capacity);
  return new (memory) block{static_cast<char*>(memory) + sizeof(block), capacity, true, &block::free_block};
}

void block::free_block(block* b) noexcept {
  const std::size_t size = sizeof(block) + b->capacity_;
  b->~block();
  pool_deallocate(b, size);
}

}  // namespace detail

buffer::buffer(detail::block_ref owner, const char* data, std::size_t size) noexcept {
  if (size == 0) return;
  inline_[0] = {std::move(owner), data, size};
  count_ = 1;
  size_ = size;
}

buffer::buffer(const buffer& other) {
  reserve(other.count_);
  std::copy_n(other.pieces(), other.count_, pieces());
  count_ = other.count_;
  size_ = other.size_;
}

buffer::buffer(buffer&& other) noexcept
    : size_{std::exchange(other.size_, 0)},
      count_{std::exchange(other.count_, 0)},
      capacity_{std::exchange(other.capacity_, static_cast<std::uint32_t>(inline_pieces))},
      heap_{std::move(other.heap_)} {
  std::move(std::begin(other.inline_), std::end(other.inline_), inline_);
}

buffer& buffer::operator=(const buffer& other) {
  if (this != &other) *this = buffer{other};
  return *this;
}

buffer& buffer::operator=(buffer&& other) noexcept {
  if (this == &other) return *this;
  clear();
  size_ = std::exchange(other.size_, 0);
  count_ = std::exchange(other.count_, 0);
  capacity_ = std::exchange(other.capacity_, static_cast<std::uint32_t>(inline_pieces));
  heap_ = std::move(other.heap_);
  std::move(std::begin(other.inline_), std::end(other.inline_), inline_);
  return *this;
}

buffer::~buffer() = default;

buffer buffer::take(std::string&& bytes) {
  const std::size_t size = bytes.size();
  if (size == 0) return {};
  auto* owner = new detail::string_block{std::move(bytes)};
  return buffer{detail::block_ref::adopt(owner), owner->text.data(), size};
}

buffer buffer::wrap(const void* data, std::size_t size, std::function<void()> release) {
  if (size == 0) {
    if (release) release();
    return {};
  }
  auto* owner = new detail::foreign_block{std::move(release)};
  return buffer{detail::block_ref::adopt(owner), static_cast<const char*>(data), size};
}

void buffer::clear() noexcept {
  if (heap_) {
    heap_.reset();
    capacity_ = inline_pieces;
  } else {
    for (auto& piece : inline_) piece = {};
  }
  count_ = 0;
  size_ = 0;
}

void buffer::append(const buffer& other) {
  if (this == &other) {
    append(buffer{other});
    return;
  }
  reserve(std::size_t{count_} + other.count_);
  for (std::size_t i = 0; i < other.count_; ++i) push(other.pieces()[i]);
}

void buffer::append(buffer&& other) {
  if (this == &other) {
    append(buffer{other});
    return;
  }
  if (empty()) {
    *this = std::move(other);
    return;
  }
  reserve(std::size_t{count_} + other.count_);
  for (std::size_t i = 0; i < other.count_; ++i) push(std::move(other.pieces()[i]));
  other.clear();
}

void buffer::append(std::string_view bytes) {
  if (bytes.empty() || extend_last(bytes)) return;
  // Room for as much again, so that many small appends stay linear; a first piece gets what it needs.
  const std::size_t spare = std::min(size_, std::size_t{64} * 1024);
  detail::block_ref owner{std::max(bytes.size(), spare)};
  std::memcpy(owner.data(), bytes.data(), bytes.size());
  reserve(std::size_t{count_} + 1);
  const char* data = owner.data();
  push({std::move(owner), data, bytes.size()});
}

buffer buffer::slice(std::size_t offset, std::size_t length) const {
  buffer result;
  for (std::size_t i = 0; i < count_ && length != 0; ++i) {
    const auto& from = pieces()[i];
    if (offset >= from.size) {
      offset -= from.size;
      continue;
    }
    const std::size_t n = std::min(length, from.size - offset);
    result.reserve(std::size_t{result.count_} + 1);
    result.push({from.owner, from.data + offset, n});
    length -= n;
    offset = 0;
  }
  return result;
}

std::optional<std::string_view> buffer::flat() const noexcept {
  if (count_ == 0) return std::string_view{};
  if (count_ == 1) return piece(0);
  return std::nullopt;
}

std::string buffer::to_string() const {
  std::string result;
  result.reserve(size_);
  for (std::size_t i = 0; i < count_; ++i) result.append(piece(i));
  return result;
}

void buffer::copy_to(void* target) const noexcept {
  char* out = static_cast<char*>(target);
  for (std::size_t i = 0; i < count_; ++i) {
    const std::string_view from = piece(i);
    std::memcpy(out, from.data(), from.size());
    out += from.size();
  }
}

bool operator==(const buffer& a, const buffer& b) noexcept {
  if (a.size_ != b.size_) return false;
  std::string_view left;
  std::string_view right;
  std::size_t next_left = 0;
  std::size_t next_right = 0;
  for (std::size_t rest = a.size_; rest != 0;) {
    if (left.empty()) left = a.piece(next_left++);
    if (right.empty()) right = b.piece(next_right++);
    const std::size_t n = std::min(left.size(), right.size());
    if (left.data() != right.data() && std::memcmp(left.data(), right.data(), n) != 0) return false;
    left.remove_prefix(n);
    right.remove_prefix(n);
    rest -= n;
  }
  return true;
}

void buffer::reserve(std::size_t count) {
  if (count <= capacity_) return;
  const std::size_t capacity = std::max<std::size_t>(count, std::size_t{capacity_} * 2);
  auto grown = std::make_unique<detail::buffer_piece[]>(capacity);
  std::move(pieces(), pieces() + count_, grown.get());
  heap_ = std::move(grown);
  capacity_ = static_cast<std::uint32_t>(capacity);
}

// Needs room reserved before, so that an append of many pieces happens or does not.
void buffer::push(detail::buffer_piece added) {
  size_ += added.size;
  if (count_ != 0) {
    auto& last = pieces()[count_ - 1];
    if (last.owner.get() == added.owner.get() && last.data + last.size == added.data) {
      last.size += added.size;
      return;
    }
  }
  pieces()[count_++] = std::move(added);
}

// Behind a block's only reference nobody can see the bytes after the piece, so they may be written.
bool buffer::extend_last(std::string_view bytes) noexcept {
  if (count_ == 0) return false;
  auto& last = pieces()[count_ - 1];
  if (!last.owner.unique() || !last.owner.get()->writable()) return false;
  const auto used = static_cast<std::size_t>(last.data - last.owner.data()) + last.size;
  if (bytes.size() > last.owner.capacity() - used) return false;
  std::memcpy(last.owner.data() + used, bytes.data(), bytes.size());
  last.size += bytes.size();
  size_ += bytes.size();
  return true;
}

}  // namespace braid
