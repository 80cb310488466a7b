#pragma once

#include <braid/buffer.hpp>

#include <array>
#include <cstdint>
#include <string_view>

namespace braid::wire {

/// CRC-32C (Castagnoli) of what `crc` is the value of (0: nothing) followed by `bytes`; by the processor's
/// own instruction where it has one.
std::uint32_t extend_crc32c(std::uint32_t crc, std::string_view bytes) noexcept;
std::uint32_t extend_crc32c(std::uint32_t crc, const buffer& bytes) noexcept;
/// The same by tables, on any processor.
std::uint32_t extend_crc32c_by_table(std::uint32_t crc, std::string_view bytes) noexcept;

/// A checksum as it travels: masked, since the bytes that it covers may hold checksums themselves, and
/// big-endian.
using crc32c_bytes = std::array<char, 4>;
crc32c_bytes masked_crc32c(std::uint32_t crc) noexcept;

}  // namespace braid::wire
