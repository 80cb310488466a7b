#include "wire/compressors.hpp"

#include <fmt/format.h>

#define ZLIB_CONST
#include <zlib.h>

#include <algorithm>
#include <limits>

namespace braid::wire {
namespace {

constexpr int memory_level = 8;  // zlib's default
constexpr int gzip_framing = 16;

/// zlib counts input in 32 bits and is given what it has not got yet.
void feed(z_stream& stream, std::string_view& rest) noexcept {
  if (stream.avail_in != 0) return;
  const std::size_t n = std::min<std::size_t>(rest.size(), std::numeric_limits<uInt>::max());
  stream.next_in = reinterpret_cast<const Bytef*>(rest.data());
  stream.avail_in = static_cast<uInt>(n);
  rest.remove_prefix(n);
}

/// Gives zlib the room that `out` has, and runs `step` once. False: the output is over its limit.
template <typename Step>
bool run(z_stream& stream, compression_output& out, int& status, Step step) {
  const std::span<char> room = out.prepare();
  stream.next_out = reinterpret_cast<Bytef*>(room.data());
  stream.avail_out = static_cast<uInt>(room.size());
  status = step(stream);
  return out.commit(room.size() - stream.avail_out);
}

std::string describe(const z_stream& stream, int status) { return stream.msg ? stream.msg : zError(status); }

class deflate_compressor final : public compressor {
 public:
  deflate_compressor(std::string_view name, compression number, int framing) noexcept
      : name_{name}, number_{number}, window_bits_{MAX_WBITS + framing} {}

  std::string_view name() const noexcept override { return name_; }
  compression number() const noexcept override { return number_; }

  bool compress(std::string_view bytes, compression_output& out, std::string& why) const override {
    z_stream stream{};
    int status = deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, window_bits_, memory_level,
                              Z_DEFAULT_STRATEGY);
    if (status != Z_OK) return fail(stream, status, why);
    const end_guard guard{stream, &deflateEnd};
    while (status == Z_OK) {
      feed(stream, bytes);
      const int flush = bytes.empty() ? Z_FINISH : Z_NO_FLUSH;
      if (!run(stream, out, status, [flush](z_stream& s) { return deflate(&s, flush); })) return false;
    }
    return status == Z_STREAM_END || fail(stream, status, why);
  }

  bool decompress(std::string_view bytes, compression_output& out, std::string& why) const override {
    z_stream stream{};
    int status = inflateInit2(&stream, window_bits_);
    if (status != Z_OK) return fail(stream, status, why);
    const end_guard guard{stream, &inflateEnd};
    while (status == Z_OK) {
      feed(stream, bytes);
      if (!run(stream, out, status, [](z_stream& s) { return inflate(&s, Z_NO_FLUSH); })) return false;
    }
    if (status == Z_BUF_ERROR) why = "the data end too early";
    if (status == Z_NEED_DICT) why = "the data need a dictionary";
    if (status != Z_STREAM_END) return !why.empty() ? false : fail(stream, status, why);
    if (stream.avail_in + bytes.size() == 0) return true;
    why = fmt::format("{} bytes follow the end of the data", stream.avail_in + bytes.size());
    return false;
  }

 private:
  struct end_guard {
    z_stream& stream;
    int (*end)(z_stream*);
    ~end_guard() { end(&stream); }
  };

  static bool fail(const z_stream& stream, int status, std::string& why) {
    why = describe(stream, status);
    return false;
  }

  std::string_view name_;
  compression number_;
  int window_bits_;
};

}  // namespace

const compressor& gzip_compressor() noexcept {
  static const deflate_compressor one{"gzip", compression::gzip, gzip_framing};
  return one;
}

const compressor& zlib_compressor() noexcept {
  static const deflate_compressor one{"zlib", compression::zlib, 0};
  return one;
}

}  // namespace braid::wire
