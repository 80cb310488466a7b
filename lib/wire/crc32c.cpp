#include "wire/crc32c.hpp"

#include <bit>
#include <cstddef>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#elif defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>
#endif

namespace braid::wire {
namespace {

using extend_function = std::uint32_t (*)(std::uint32_t, std::string_view) noexcept;

// tables[k][b] is the checksum of the byte b followed by k zero bytes, so that eight bytes take eight
// look-ups that do not wait for each other.
constexpr auto tables = [] {
  constexpr std::uint32_t polynomial = 0x82f63b78;  // reversed
  std::array<std::array<std::uint32_t, 256>, 8> made{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? polynomial : 0);
    made[0][byte] = crc;
  }
  for (std::size_t k = 1; k < made.size(); ++k)
    for (std::size_t byte = 0; byte < 256; ++byte)
      made[k][byte] = made[k - 1][byte] >> 8 ^ made[0][made[k - 1][byte] & 0xff];
  return made;
}();

std::uint64_t load_little_endian(const char* at) noexcept {
  std::uint64_t value = 0;
  std::memcpy(&value, at, sizeof value);
  return std::endian::native == std::endian::little ? value : __builtin_bswap64(value);
}

#if defined(__x86_64__)

__attribute__((target("sse4.2"))) std::uint32_t extend_by_instruction(std::uint32_t crc,
                                                                      std::string_view bytes) noexcept {
  std::uint64_t state = ~crc;
  for (; bytes.size() >= 8; bytes.remove_prefix(8))
    state = _mm_crc32_u64(state, load_little_endian(bytes.data()));
  auto rest = static_cast<std::uint32_t>(state);
  for (const char byte : bytes) rest = _mm_crc32_u8(rest, static_cast<unsigned char>(byte));
  return ~rest;
}

extend_function fastest() noexcept {
  return __builtin_cpu_supports("sse4.2") ? extend_by_instruction : extend_crc32c_by_table;
}

#elif defined(__ARM_FEATURE_CRC32)

std::uint32_t extend_by_instruction(std::uint32_t crc, std::string_view bytes) noexcept {
  std::uint32_t state = ~crc;
  for (; bytes.size() >= 8; bytes.remove_prefix(8))
    state = __crc32cd(state, load_little_endian(bytes.data()));
  for (const char byte : bytes) state = __crc32cb(state, static_cast<unsigned char>(byte));
  return ~state;
}

extend_function fastest() noexcept { return extend_by_instruction; }

#else

extend_function fastest() noexcept { return extend_crc32c_by_table; }

#endif

}  // namespace

std::uint32_t extend_crc32c_by_table(std::uint32_t crc, std::string_view bytes) noexcept {
  std::uint32_t state = ~crc;
  for (; bytes.size() >= 8; bytes.remove_prefix(8)) {
    const std::uint64_t next = load_little_endian(bytes.data()) ^ state;
    state = 0;
    for (std::size_t i = 0; i < 8; ++i) state ^= tables[7 - i][next >> 8 * i & 0xff];
  }
  for (const char byte : bytes)
    state = state >> 8 ^ tables[0][(state ^ static_cast<unsigned char>(byte)) & 0xff];
  return ~state;
}

std::uint32_t extend_crc32c(std::uint32_t crc, std::string_view bytes) noexcept {
  static const extend_function extend = fastest();
  return extend(crc, bytes);
}

std::uint32_t extend_crc32c(std::uint32_t crc, const buffer& bytes) noexcept {
  for (std::size_t i = 0; i < bytes.piece_count(); ++i) crc = extend_crc32c(crc, bytes.piece(i));
  return crc;
}

crc32c_bytes masked_crc32c(std::uint32_t crc) noexcept {
  const std::uint32_t masked = std::rotr(crc, 15) + 0xa282ead8U;
  crc32c_bytes bytes;
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(masked >> (24 - 8 * i));
  return bytes;
}

}  // namespace braid::wire
