// Any bytes, cut in any way, must give the same frames, keep the storage bounded, and never crash the reader.
// The first three bytes of an input choose the size of the reads and the limits.

#include "wire/frame.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace {

using braid::wire::frame_reader;
using braid::wire::inbound_frame;
using status = frame_reader::status;

void require(bool good, const char* what) {
  if (good) return;
  std::fprintf(stderr, "broken promise: %s\n", what);
  std::abort();
}

/// Decoding what was encoded from a decoded meta must give the same bytes again.
std::string canonical(const braid::wire::rpc_meta& meta) {
  std::string bytes(meta_size(meta), '\0');
  char* end = encode_meta(meta, bytes.data());
  require(end == bytes.data() + bytes.size(), "meta_size is what encode_meta writes");
  braid::wire::rpc_meta again;
  require(decode_meta(bytes, again), "what was encoded can be decoded");
  std::string twice(meta_size(again), '\0');
  encode_meta(again, twice.data());
  require(bytes == twice, "encoding is stable");
  return bytes;
}

/// A text of all that the reader says about a stream.
std::string story(std::string_view stream, std::size_t read_size, std::size_t max_body) {
  frame_reader reader{max_body};
  inbound_frame frame;
  std::string told;
  std::vector<std::pair<braid::buffer, std::string>> taken;
  std::size_t received = 0;
  while (true) {
    status got = reader.next(frame);
    for (; got == status::frame || got == status::oversized; got = reader.next(frame)) {
      told += got == status::frame ? "frame " : "oversized ";
      told += canonical(frame.meta);
      told += frame.payload;
      told += frame.attachment;
      require(got == status::frame || frame.payload.empty(), "an oversized body is not stored");
      taken.emplace_back(frame.take_payload(), frame.payload);
      taken.emplace_back(frame.take_attachment(), frame.attachment);
    }
    if (got == status::broken) {
      told += to_string(reader.error());
      break;
    }
    if (stream.empty()) {
      told += reader.mid_frame() ? "inside a frame" : "between frames";
      break;
    }
    const auto room = reader.prepare();
    require(!room.empty(), "there is always room to read into");
    const std::size_t n = std::min({stream.size(), read_size, room.size()});
    std::memcpy(room.data(), stream.data(), n);
    reader.commit(n);
    stream.remove_prefix(n);
    received += n;
    require(reader.capacity() <= std::max(frame_reader::min_block, 5 * received),
            "storage follows what arrived");
  }
  for (const auto& [bytes, copy] : taken) require(bytes.to_string() == copy, "taken bytes stay as they were");
  return told;
}

void put_number(std::vector<std::uint8_t>& out, std::size_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) out.push_back(static_cast<std::uint8_t>(value >> shift));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 3) return 0;
  const std::size_t read_size = 1 + (data[0] | std::size_t{data[1]} << 8) % 5000;
  const std::size_t max_body = std::size_t{1} << (data[2] % 24);
  const std::string_view stream{reinterpret_cast<const char*>(data) + 3, size - 3};
  const std::string told = story(stream, read_size, max_body);
  require(told == story(stream, stream.size() + 1, max_body), "the size of the reads does not matter");
  require(stream.size() > 2000 || told == story(stream, 1, max_body), "bytes may come one at a time");
  return 0;
}

#ifndef BRAID_LIBFUZZER

/// Frames that are nearly right: plausible tags and lengths, some of them lying.
std::vector<std::uint8_t> make_input(std::mt19937& random) {
  const auto below = [&](std::size_t n) { return random() % n; };
  const auto byte = [&] { return static_cast<std::uint8_t>(random()); };
  std::vector<std::uint8_t> input{byte(), byte(), byte()};
  for (std::size_t frames = below(5); frames > 0; --frames) {
    std::vector<std::uint8_t> meta;
    if (below(2)) meta = {0x0a, 6, 0x0a, 1, 's', 0x12, 1, 'm'};
    for (std::size_t fields = below(5); fields > 0; --fields) {
      const auto number = static_cast<std::uint8_t>(1 + below(14));
      const auto type = static_cast<std::uint8_t>(below(4) ? below(2) * 2 : below(8));
      meta.push_back(static_cast<std::uint8_t>(number << 3 | type));
      if (meta.back() >= 0x80) meta.push_back(1);
      const std::size_t length = below(6);
      meta.push_back(static_cast<std::uint8_t>(below(10) ? length : below(256)));
      for (std::size_t i = 0; type == 2 && i < length; ++i) meta.push_back(byte());
    }
    const std::size_t rest = below(6) ? below(60) : below(9000);
    for (const char c : {'P', 'R', 'P', 'C'}) input.push_back(static_cast<std::uint8_t>(c));
    put_number(input, meta.size() + (below(12) ? rest : below(20000)));
    put_number(input, below(12) ? meta.size() : below(70000));
    input.insert(input.end(), meta.begin(), meta.end());
    for (std::size_t i = 0; i < rest; ++i) input.push_back(byte());
  }
  for (std::size_t changes = below(3); changes > 1 && input.size() > 3; --changes)
    input[3 + below(input.size() - 3)] = byte();
  if (below(4) == 0) input.resize(3 + below(input.size() - 2));
  return input;
}

#endif
