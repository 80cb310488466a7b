#include "wire/frame.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

namespace braid::wire {

namespace {

constexpr std::string_view magic = "PRPC";
// An incomplete frame larger than this is not worth moving just to get a larger read.
constexpr std::size_t cheap_move = 4096;
// An incomplete frame's storage becomes so many times what has arrived of it.
constexpr std::size_t growth = 4;
// Room for a next frame that is a little larger, behind one that is large.
constexpr std::size_t spare_room = 4096;
// So many reads in a row have to be short before the storage shrinks.
constexpr unsigned shrink_after = 64;

// Between the machine's order of bytes and the wire's, which is big-endian.
std::uint32_t swapped(std::uint32_t value) noexcept {
  return std::endian::native == std::endian::little ? __builtin_bswap32(value) : value;
}

std::uint32_t load(const char* at) noexcept {
  std::uint32_t value = 0;
  std::memcpy(&value, at, sizeof value);
  return swapped(value);
}

char* store(std::uint32_t value, char* at) noexcept {
  value = swapped(value);
  std::memcpy(at, &value, sizeof value);
  return at + sizeof value;
}

void split_attachment(inbound_frame& frame, std::string_view rest) noexcept {
  const std::int32_t claimed = frame.meta.attachment_size.value_or(0);
  frame.bad_attachment_size = claimed < 0 || static_cast<std::size_t>(claimed) > rest.size();
  const std::size_t size = frame.bad_attachment_size ? 0 : static_cast<std::size_t>(claimed);
  frame.payload = rest.substr(0, rest.size() - size);
  frame.attachment = rest.substr(rest.size() - size);
}

}  // namespace

std::string wrong_body_limit(std::size_t max_body_size) {
  if (max_body_size != 0 && max_body_size <= largest_body_size) return {};
  return fmt::format("max_body_size {} is not between 1 and {}", max_body_size, largest_body_size);
}

char* encode_header(frame_header header, char* target) noexcept {
  std::memcpy(target, magic.data(), magic.size());
  return store(header.meta_size, store(header.body_size, target + magic.size()));
}

char* encode_head(const rpc_meta& meta, std::size_t meta_size, std::size_t body_size, char* target) noexcept {
  const frame_header header{.body_size = static_cast<std::uint32_t>(body_size),
                            .meta_size = static_cast<std::uint32_t>(meta_size)};
  return encode_meta(meta, encode_header(header, target));
}

std::string_view to_string(frame_error error) noexcept {
  switch (error) {
    case frame_error::none:
      return "no error";
    case frame_error::bad_magic:
      return "a frame does not start with PRPC";
    case frame_error::meta_too_large:
      return "meta_size is over the limit";
    case frame_error::meta_exceeds_body:
      return "meta_size is larger than body_size";
    case frame_error::bad_meta:
      return "the meta cannot be decoded";
  }
  return "unknown frame error";
}

buffer inbound_frame::take(std::string_view bytes) const {
  if (bytes.size() <= copy_limit || bytes.size() < storage_->capacity() / 32) return buffer{bytes};
  return buffer{detail::block_ref::share(storage_), bytes.data(), bytes.size()};
}

buffer inbound_frame::take_whole() const {
  return take({payload.data() - header.meta_size - header_size, header_size + header.body_size});
}

bool read_whole(const buffer& frame, inbound_frame& into) {
  if (frame.piece_count() != 1 || frame.size() < header_size) return false;
  const char* const at = frame.piece(0).data();
  into.header = {load(at + 4), load(at + 8)};
  if (frame.size() != header_size + std::size_t{into.header.body_size}) return false;
  if (into.header.meta_size > into.header.body_size) return false;
  if (!decode_meta({at + header_size, into.header.meta_size}, into.meta)) return false;
  into.storage_ = frame.owned_piece(0).owner.get();
  split_attachment(into, frame.piece(0).substr(header_size + into.header.meta_size));
  return true;
}

std::span<char> frame_reader::prepare() {
  make_room();
  prepared_ = block_.capacity() - end_;
  return {block_.data() + end_, prepared_};
}

/// Makes sure that there is a block with room behind end_. Bytes that buffers share are never moved or
/// overwritten.
void frame_reader::make_room() {
  const std::size_t pending = end_ - begin_;
  const std::size_t room = block_.capacity() - end_;
  const bool unshared = block_.unique();
  const bool fitting = block_.capacity() >= block_size_ && block_.capacity() <= kept_capacity();
  if (pending == 0 && unshared && fitting) {
    begin_ = end_ = 0;
    return;
  }
  // Behind what buffers share the rest of the block is still ours. An incomplete frame stays unless that
  // would make the next read small; a large one that fits is not moved just for that.
  const bool may_stay = block_ && room != 0 && (pending != 0 || !unshared);
  const bool fits = pending > cheap_move && wanted_ > pending && wanted_ - pending <= room;
  if (may_stay && (room >= block_size_ / 4 || fits)) return;
  std::size_t capacity = std::max(block_size_, growth * pending);
  // A block that buffers hold on to is followed by one that the next frame of its size fits in as well.
  if (pending == 0 && fitting) capacity = block_.capacity();
  if (wanted_ > pending) {
    const std::size_t whole = wanted_ > max_block ? wanted_ + spare_room : std::max(block_size_, wanted_);
    if (whole <= capacity + capacity / 4) capacity = whole;  // rather than to copy it all for the last bytes
  }
  if (pending != 0 && unshared && block_.capacity() >= capacity && pending <= block_.capacity() / 2) {
    std::memmove(block_.data(), block_.data() + begin_, pending);
  } else {
    detail::block_ref larger{capacity};
    if (pending != 0) std::memcpy(larger.data(), block_.data() + begin_, pending);
    block_ = std::move(larger);
  }
  begin_ = 0;
  end_ = pending;
}

/// Storage up to this size is used again: the frames of a connection tend to be of one size, a large one
/// among them.
std::size_t frame_reader::kept_capacity() const noexcept { return growth * block_size_ + block_size_; }

void frame_reader::commit(std::size_t n) noexcept {
  end_ += n;
  if (n == prepared_) {
    block_size_ = std::min(block_size_ * 4, max_block);
    short_reads_ = 0;
  } else if (n >= block_size_ / 4) {
    short_reads_ = 0;
  } else if (++short_reads_ >= shrink_after) {
    block_size_ = std::max(block_size_ / 4, min_block);
    short_reads_ = 0;
  }
}

frame_reader::status frame_reader::next(inbound_frame& frame) {
  if (error_ != frame_error::none) return status::broken;
  discard();
  if (begin_ == end_) return status::need_more;
  return parse(frame);
}

frame_reader::status frame_reader::parse(inbound_frame& frame) {
  const char* at = block_.data() + begin_;
  const std::size_t pending = end_ - begin_;
  if (std::memcmp(at, magic.data(), std::min(pending, magic.size())) != 0)
    return broken(frame_error::bad_magic);
  if (pending < header_size) return status::need_more;
  const frame_header header{load(at + 4), load(at + 8)};
  if (header.meta_size > max_meta_size_) return broken(frame_error::meta_too_large);
  if (header.meta_size > header.body_size) return broken(frame_error::meta_exceeds_body);
  const bool oversized = drop_ || header.body_size > max_body_size_;
  wanted_ = header_size + (oversized ? header.meta_size : header.body_size);
  if (pending < wanted_) return status::need_more;
  if (!decode_meta({at + header_size, header.meta_size}, frame.meta)) return broken(frame_error::bad_meta);
  frame.header = header;
  frame.storage_ = block_.get();
  const std::string_view rest{at + header_size + header.meta_size, wanted_ - header_size - header.meta_size};
  begin_ += wanted_;
  wanted_ = 0;
  if (oversized) return begin_oversized(frame);
  split_attachment(frame, rest);
  return status::frame;
}

frame_reader::status frame_reader::begin_oversized(inbound_frame& frame) noexcept {
  frame.payload = {};
  frame.attachment = {};
  frame.bad_attachment_size = false;
  discard_ = std::size_t{frame.header.body_size} - frame.header.meta_size;
  drop_ = false;
  return status::oversized;
}

void frame_reader::discard() noexcept {
  const std::size_t n = std::min(discard_, end_ - begin_);
  begin_ += n;
  discard_ -= n;
}

frame_reader::status frame_reader::broken(frame_error error) noexcept {
  error_ = error;
  return status::broken;
}

}  // namespace braid::wire
