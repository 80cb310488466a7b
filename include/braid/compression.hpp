#pragma once

/// \file
/// Compressions of payloads: those that are built in, and how a program adds its own.

#include <braid/buffer.hpp>
#include <braid/config.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace braid {

/// How a payload is compressed, by its number on the wire. Snappy, gzip and zlib are built in. The protocol
/// declares lz4, which is refused unless the runtime was given a compressor for it. A program's own have
/// numbers that are not listed here.
enum class compression : std::int32_t { none = 0, snappy = 1, gzip = 2, zlib = 3, lz4 = 4 };

/// The bytes that a compressor produces: memory by the block, as it is needed, and never more than a limit.
///
/// Not thread-safe; made by the library for one use of a compressor.
class compression_output {
 public:
  /// \param limit most bytes that may come out.
  explicit compression_output(std::size_t limit) noexcept : limit_{limit} {}

  /// Where the next bytes go; at least one. Valid until the next call of a function of this object. Throws
  /// std::bad_alloc.
  std::span<char> prepare();
  /// Says that the first `n` bytes of the last prepare() were written. False: more than the limit has come
  /// out, and the compressor is to give up.
  [[nodiscard]] bool commit(std::size_t n) noexcept;
  /// Adds a copy of `bytes`. False: as commit(). Throws std::bad_alloc.
  [[nodiscard]] bool write(std::string_view bytes);
  /// Adds `bytes` by reference. False: as commit(). Throws std::bad_alloc.
  [[nodiscard]] bool append(buffer&& bytes);

  /// Says that `n` bytes will come out in all, as the data themselves claim. False: as commit().
  [[nodiscard]] bool expect(std::size_t n) noexcept;

  /// Bytes so far.
  std::size_t size() const noexcept { return done_.size() + used_; }
  /// Most bytes that may come out.
  std::size_t limit() const noexcept { return limit_; }
  /// Whether more came out, or is going to.
  bool over_limit() const noexcept { return over_limit_ || size() > limit_; }

  /// All that has come out; the object is empty afterwards. Throws std::bad_alloc.
  buffer take();

  /// Size in bytes of the first block and of the largest.
  static constexpr std::size_t min_block = 1024;
  /// See min_block.
  static constexpr std::size_t max_block = std::size_t{64} * 1024;

 private:
  void finish_block();

  std::size_t limit_;
  bool over_limit_ = false;  // is going to be
  buffer done_;
  detail::block_ref block_;  // where bytes go now
  std::size_t used_ = 0;     // of the block
};

/// A compression: derive from it to add one. Give it to the runtime with runtime_options::compressors; then
/// calls and answers may name its number, and what peers send with that number is decompressed by it.
///
/// Errors: a function that returns false has stored to `why` what is wrong; where the output went over its
/// limit, the library says so itself. What a function throws counts as false.
///
/// Object lifetimes: kept by the runtimes that were given it, until their last call has ended. `bytes`, `out`
/// and `why` are valid until the function returns; what goes to compression_output::append() is kept by it.
///
/// Thread safety: one object serves all loops at once.
class compressor {
 public:
  virtual ~compressor() = default;

  /// What configurations call it; unique in a runtime.
  virtual std::string_view name() const noexcept = 0;
  /// Its number on the wire; unique in a runtime.
  virtual compression number() const noexcept = 0;

  /// Compresses `bytes`. False: see the class.
  virtual bool compress(std::string_view bytes, compression_output& out, std::string& why) const = 0;
  /// `bytes` come from a peer: nothing in them is to be trusted, least of all a length that they claim.
  virtual bool decompress(std::string_view bytes, compression_output& out, std::string& why) const = 0;
};

}  // namespace braid
