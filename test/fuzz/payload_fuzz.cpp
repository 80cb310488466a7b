// Any bytes as a payload in any format must be read or refused, within the limit of decompression; what was
// read must come through again. The first four bytes of an input choose the format, the message and the
// limit.

#include <braid/payload_format.hpp>

#include "wire/compressors.hpp"
#include "wire/payload.hpp"

#include <google/protobuf/descriptor.pb.h>
#include <google/protobuf/struct.pb.h>
#include <google/protobuf/stubs/logging.h>
#include <google/protobuf/wrappers.pb.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace {

using namespace braid::wire;
using braid::payload_format;

const braid::core::compressor_set none_added{{}};

void require(bool good, const char* what) {
  if (good) return;
  std::fprintf(stderr, "broken promise: %s\n", what);
  std::abort();
}

std::unique_ptr<google::protobuf::Message> make_message(unsigned which) {
  switch (which % 4) {
    case 0:
      return std::make_unique<google::protobuf::Struct>();
    case 1:
      return std::make_unique<google::protobuf::FileDescriptorProto>();
    case 2:
      return std::make_unique<google::protobuf::BytesValue>();
    default:
      return std::make_unique<google::protobuf::DescriptorProto>();
  }
}

/// No more comes out of a compressor than the limit and the byte that shows it to be passed.
void check_limit(std::int32_t number, std::string_view bytes, std::size_t limit) {
  const braid::compressor* const by = find_compressor(none_added, static_cast<braid::compression>(number));
  if (!by) return;
  braid::compression_output out{limit};
  std::string why;
  const bool good = by->decompress(bytes, out, why);
  require(out.size() <= limit + 1, "decompression stops at its limit");
  require(!good || !out.over_limit(), "what is over the limit is refused");
  require(good || out.over_limit() || !why.empty(), "a refusal has a reason");
}

/// A message that was read is written in its format and read again.
void check_again(const google::protobuf::Message& message, const payload_format& format) {
  payload made;
  std::string why;
  if (!encode_payload(message, format, none_added, "message", made, why)) return;  // JSON cannot hold all
  inbound_frame frame;
  crc32c_bytes sum;
  const std::string bytes = made.bytes.to_string();
  frame.payload = bytes;
  note_format(format, made, {}, frame.meta, sum);
  const std::unique_ptr<google::protobuf::Message> again{message.New()};
  require(decode_payload(frame, none_added, std::size_t{1} << 26, "message", *again).wrong.empty(),
          "what was written can be read");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 4) return 0;
  const google::protobuf::LogSilencer no_complaints_about_utf8;
  const std::string_view bytes{reinterpret_cast<const char*>(data) + 4, size - 4};
  inbound_frame frame;
  frame.payload = bytes;
  frame.meta.compress_type = data[0] % 6;
  frame.meta.content_type = data[1] % 5;
  frame.meta.checksum_type = data[2] % 16 == 0 ? 1 : 0;
  const std::size_t limit = std::size_t{1} << (data[3] % 20);
  const auto message = make_message(data[2] / 16);
  check_limit(*frame.meta.compress_type, bytes, limit);
  if (decode_payload(frame, none_added, limit, "message", *message).wrong.empty())
    check_again(*message, format_of(frame.meta));
  return 0;
}

#ifndef BRAID_LIBFUZZER

/// Payloads that are nearly right: a small message in a format, with some bytes changed.
std::vector<std::uint8_t> make_input(std::mt19937& random) {
  const auto below = [&](std::size_t n) { return random() % n; };
  std::array<std::uint8_t, 4> choice{};
  for (auto& byte : choice) byte = static_cast<std::uint8_t>(random());
  if (below(4) != 0)
    choice[0] = static_cast<std::uint8_t>(below(4)), choice[1] = static_cast<std::uint8_t>(below(4));
  google::protobuf::Struct structure;
  for (std::size_t n = below(4); n > 0; --n) {
    auto& value = (*structure.mutable_fields())[std::string(below(5), 'k')];
    if (below(2))
      value.set_string_value(std::string(below(9) ? below(40) : below(70'000), 'v'));
    else
      value.mutable_list_value()->add_values()->set_number_value(static_cast<double>(random()) / 7);
  }
  payload made;
  std::string why;
  encode_payload(structure,
                 {.compression = static_cast<braid::compression>(choice[0] % 4),
                  .content = static_cast<braid::content_type>(choice[1] % 4)},
                 none_added, "message", made, why);
  std::string bytes = made.bytes.to_string();
  if (below(3) == 0) choice[2] = static_cast<std::uint8_t>(choice[2] % 16);  // read as what it was
  for (std::size_t changes = below(4); changes > 0 && !bytes.empty(); --changes)
    bytes[below(bytes.size())] = static_cast<char>(random());
  if (below(6) == 0) bytes.resize(below(bytes.size() + 1));
  std::vector<std::uint8_t> input{choice.begin(), choice.end()};
  input.insert(input.end(), bytes.begin(), bytes.end());
  return input;
}

#endif
