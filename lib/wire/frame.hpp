#pragma once

#include <braid/buffer.hpp>

#include "wire/meta.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace braid::wire {

/// Bytes of a frame's header: the magic word, body_size and meta_size.
inline constexpr std::size_t header_size = 12;
/// Largest meta that is accepted by default, in bytes.
inline constexpr std::size_t default_max_meta_size = std::size_t{64} * 1024;
/// Largest body (meta, payload and attachment together) that is accepted by default, in bytes.
inline constexpr std::size_t default_max_body_size = std::size_t{64} * 1024 * 1024;

/// The two numbers of a frame's header.
struct frame_header {
  std::uint32_t body_size = 0;  ///< All that follows the header, in bytes.
  std::uint32_t meta_size = 0;  ///< The first bytes of the body.
};

/// Writes a header to `target`, which has room for header_size bytes.
/// \return the end of what was written.
char* encode_header(frame_header header, char* target) noexcept;

/// Most bytes that protobuf can write or read as one message, and therefore of any body.
inline constexpr std::size_t largest_body_size = 0x7fffffff;
/// What is wrong with a max_body_size; empty: nothing.
std::string wrong_body_limit(std::size_t max_body_size);
/// Larger messages are serialised apart and sent by reference, smaller ones straight behind their meta.
inline constexpr std::size_t inline_payload_size = std::size_t{16} * 1024;

/// Writes the header and the meta of a frame to `target`, which has room for header_size + `meta_size` bytes.
/// \param meta_size what meta_size(meta) says.
/// \param body_size meta, payload and attachment together.
/// \return the end of what was written.
char* encode_head(const rpc_meta& meta, std::size_t meta_size, std::size_t body_size, char* target) noexcept;

/// Why a byte stream cannot be read any further.
enum class frame_error : std::uint8_t {
  none,
  bad_magic,          ///< A frame does not start with "PRPC".
  meta_too_large,     ///< meta_size is over the limit.
  meta_exceeds_body,  ///< meta_size > body_size.
  bad_meta,           ///< The meta cannot be decoded.
};

/// A short text for a frame_error, e.g. for the log.
std::string_view to_string(frame_error error) noexcept;

/// One frame as frame_reader::next() hands it out.
///
/// `meta`, `payload` and `attachment` are views into the reader's storage: valid until the reader's next
/// prepare(), or its end. Reuse one object for all frames of a connection; it keeps the memory of
/// meta.user_fields.
class inbound_frame {
 public:
  frame_header header;
  rpc_meta meta;
  std::string_view payload;     ///< Empty if the frame is oversized.
  std::string_view attachment;  ///< Empty if the frame is oversized.
  /// attachment_size is negative or larger than what follows the meta. All of it is then in `payload`; the
  /// call is to be failed with 1003.
  bool bad_attachment_size = false;

  /// The payload as a buffer that outlives the reader. It shares the reader's storage without a copy, except
  /// that up to copy_limit bytes, or less than a 32nd of the storage, are copied: so a few kept bytes never
  /// hold on to a whole read block. To be called while the views are valid. Throws std::bad_alloc.
  buffer take_payload() const { return take(payload); }
  /// The attachment, likewise.
  buffer take_attachment() const { return take(attachment); }

  /// The whole frame, header and meta included, likewise; not of an oversized one. See read_whole().
  buffer take_whole() const;

  static constexpr std::size_t copy_limit = 1024;

 private:
  friend class frame_reader;
  friend bool read_whole(const buffer& frame, inbound_frame& into);
  buffer take(std::string_view bytes) const;

  detail::block* storage_ = nullptr;
};

/// What reading and writing a frame fills. The connections of a loop share one, since it is used for one
/// frame at a time and its fields keep their memory.
struct frame_scratch {
  inbound_frame inbound;
  rpc_meta outbound;
};

/// Reads again what take_whole() gave; the views are valid as long as `frame`. False: it is no such frame.
bool read_whole(const buffer& frame, inbound_frame& into);

/// Cuts a byte stream into frames, incrementally and in place; does no I/O.
///
/// Use: read into prepare(), commit() what arrived, call next() until it wants more. One block holds what was
/// read and not yet handed out. Its size follows the bytes that really arrive, never what a header claims:
/// reads that fill it make it grow, many short ones make it shrink, an incomplete large frame quadruples it.
///
/// Not thread-safe; the buffers taken from its frames may go to other threads.
class frame_reader {
 public:
  enum class status : std::uint8_t {
    need_more,  ///< No complete frame; read on.
    frame,      ///< A frame was stored to the argument.
    /// The body is over the limit, or was dropped. Only header and meta were stored to the argument, so that
    /// this call can be answered; the rest of the body is discarded as it arrives, then frames go on.
    oversized,
    broken,  ///< See error(). Nothing more can be read.
  };

  /// \param max_body_size largest body in bytes; what is larger becomes `oversized`.
  /// \param max_meta_size largest meta in bytes; what is larger breaks the stream.
  explicit frame_reader(std::size_t max_body_size = default_max_body_size,
                        std::size_t max_meta_size = default_max_meta_size) noexcept
      : max_body_size_{max_body_size}, max_meta_size_{max_meta_size} {}

  /// Where the next read should land; never empty. Ends the validity of all frames' views. Throws
  /// std::bad_alloc.
  std::span<char> prepare();
  /// Says that the first `n` bytes of the last prepare() have been read.
  void commit(std::size_t n) noexcept;
  /// The next frame of what was committed.
  status next(inbound_frame& frame);

  /// Why next() said `broken`.
  frame_error error() const noexcept { return error_; }
  /// Size with its header of the frame that has arrived in part; 0 while there is none or its header is not
  /// complete.
  std::size_t frame_size() const noexcept { return wanted_; }
  /// Hands the frame that has arrived in part out as `oversized`, once its meta is complete, whatever its
  /// size.
  void drop_frame() noexcept { drop_ = true; }
  /// True if the bytes so far end inside a frame (once next() wants more): the peer owes the rest of it.
  bool mid_frame() const noexcept { return end_ != begin_ || discard_ != 0; }
  /// Committed bytes that were not handed out yet.
  std::size_t bytes_buffered() const noexcept { return end_ - begin_; }
  /// Size of the storage in bytes.
  std::size_t capacity() const noexcept { return block_.capacity(); }

  /// Smallest and largest storage while frames are small, in bytes.
  static constexpr std::size_t min_block = 480;  // with its header half a KiB; an idle connection has one
  static constexpr std::size_t max_block = std::size_t{256} * 1024;

 private:
  status parse(inbound_frame& frame);
  status broken(frame_error error) noexcept;
  status begin_oversized(inbound_frame& frame) noexcept;
  void discard() noexcept;
  void make_room();
  std::size_t kept_capacity() const noexcept;

  std::size_t max_body_size_;
  std::size_t max_meta_size_;
  detail::block_ref block_;
  std::size_t begin_ = 0;               // first byte not handed out
  std::size_t end_ = 0;                 // end of the committed bytes
  std::size_t wanted_ = 0;              // bytes from begin_ that the frame in progress needs, 0 while unknown
  std::size_t discard_ = 0;             // bytes of an oversized body still to come
  std::size_t block_size_ = min_block;  // size of the next block
  std::size_t prepared_ = 0;
  unsigned short_reads_ = 0;
  bool drop_ = false;
  frame_error error_ = frame_error::none;
};

}  // namespace braid::wire
