#include "wire/payload.hpp"

#include "core/base_stack.hpp"
#include "wire/compressors.hpp"
#include "wire/message_text.hpp"

#include <fmt/format.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <algorithm>
#include <exception>
#include <limits>

namespace braid::wire {
namespace {

using google::protobuf::Message;

constexpr auto largest_message = static_cast<std::size_t>(std::numeric_limits<int>::max());

/// Hands the pieces of a buffer to protobuf's parsers.
class buffer_input final : public google::protobuf::io::ZeroCopyInputStream {
 public:
  explicit buffer_input(const buffer& bytes) noexcept : bytes_{bytes} {}

  bool Next(const void** data, int* size) override {
    if (backed_up_ == 0) {
      if (next_ == bytes_.piece_count()) return false;
      backed_up_ = bytes_.piece(next_++).size();
    }
    const std::string_view current = bytes_.piece(next_ - 1);
    *data = current.data() + current.size() - backed_up_;
    *size = static_cast<int>(backed_up_);
    count_ += backed_up_;
    backed_up_ = 0;
    return true;
  }
  void BackUp(int count) override {
    backed_up_ += static_cast<std::size_t>(count);
    count_ -= static_cast<std::size_t>(count);
  }
  bool Skip(int count) override {
    const void* data = nullptr;
    int size = 0;
    while (count > 0 && Next(&data, &size)) {
      if (size > count) BackUp(size - count);
      count -= std::min(size, count);
    }
    return count == 0;
  }
  int64_t ByteCount() const override { return static_cast<int64_t>(count_); }

 private:
  const buffer& bytes_;
  std::size_t next_ = 0;
  std::size_t backed_up_ = 0;  // bytes at the end of the last piece that are still to be handed out
  std::size_t count_ = 0;
};

/// Runs one direction of a compressor; what that throws is its failure.
template <typename Direction>
bool run(const compressor& by, Direction direction, std::string_view bytes, compression_output& out,
         std::string& why) {
  try {
    return (by.*direction)(bytes, out, why) && !out.over_limit();
  } catch (const std::exception& thrown) {
    why = thrown.what();
  } catch (...) {
    why = "it threw";
  }
  return false;
}

std::string unknown_compression(compression number) {
  return fmt::format("compress_type {}{} is not supported", static_cast<std::int32_t>(number),
                     number == compression::lz4 ? " (lz4)" : "");
}

bool compress(const core::compressor_set& added, compression number, buffer& bytes, std::string& why) {
  const compressor* const by = find_compressor(added, number);
  if (!by) {
    why = unknown_compression(number);
    return false;
  }
  compression_output out{largest_message};
  const std::string whole = bytes.flat() ? std::string() : bytes.to_string();
  if (!run(*by, &compressor::compress, bytes.flat().value_or(whole), out, why)) {
    why = fmt::format("{} failed: {}", by->name(), why);
    return false;
  }
  bytes = out.take();
  return true;
}

/// \return what is wrong, or nothing.
std::string decompress(const core::compressor_set& added, compression number, std::string_view bytes,
                       std::size_t max_size, buffer& into) {
  const compressor* const by = find_compressor(added, number);
  if (!by) return unknown_compression(number);
  compression_output out{max_size};
  std::string why;
  if (run(*by, &compressor::decompress, bytes, out, why)) {
    into = out.take();
    return {};
  }
  if (out.over_limit()) return fmt::format("decompressed it is over max_body_size {}", max_size);
  return fmt::format("it is no valid {}: {}", by->name(), why);
}

bool write_message(const Message& message, content_type as, buffer& into, std::string& why) {
  if (as != content_type::protobuf) {
    std::string text;
    if (!print_message(message, as, text, why)) return false;
    into = buffer::take(std::move(text));
    return true;
  }
  const std::size_t size = message.ByteSizeLong();
  if (size > largest_message) {
    why = fmt::format("{} bytes are over protobuf's limit of 2 GiB", size);
    return false;
  }
  into = serialise(message, size);
  return true;
}

std::string_view name_of(content_type type) noexcept {
  switch (type) {
    case content_type::json:
      return "JSON for a ";
    case content_type::proto_json:
      return "proto-JSON for a ";
    case content_type::proto_text:
      return "proto-text for a ";
    case content_type::protobuf:
      break;
  }
  return {};
}

std::string wrong_checksum(const inbound_frame& frame, std::string_view what) {
  const auto type = frame.meta.checksum_type.value_or(0);
  if (type == static_cast<std::int32_t>(checksum::none)) return {};
  if (type != static_cast<std::int32_t>(checksum::crc32c))
    return fmt::format("the {}'s checksum_type {} is not supported", what, type);
  std::uint32_t crc = extend_crc32c(0, frame.payload);
  if (frame.meta.checksum_with_attachment.value_or(false)) crc = extend_crc32c(crc, frame.attachment);
  const crc32c_bytes expected = masked_crc32c(crc);
  if (frame.meta.checksum_value == std::string_view(expected.data(), expected.size())) return {};
  return fmt::format("the {}'s checksum is wrong", what);
}

/// Not Parse…(), which reports a missing field to the standard error; and bounded by the `size` bytes of
/// `from`, since protobuf would else make room for as many bytes as a field claims to have.
bool parse_bytes(google::protobuf::io::ZeroCopyInputStream& from, std::size_t size, Message& message) {
  return message.ParsePartialFromBoundedZeroCopyStream(&from, static_cast<int>(size));
}

bool parse(std::string_view bytes, content_type as, Message& message, std::string& why) {
  if (as != content_type::protobuf) return parse_message(bytes, as, message, why);
  google::protobuf::io::ArrayInputStream from{bytes.data(), static_cast<int>(bytes.size())};
  return parse_bytes(from, bytes.size(), message);
}

std::string unreadable(content_type as, const Message& message, std::string_view what, std::string_view why) {
  return fmt::format("the {} is no valid {}{}{}{}", what, name_of(as), message.GetTypeName(),
                     why.empty() ? "" : ": ", why);
}

/// Text is parsed as one piece: protobuf's JSON parser begins a value anew with each piece in which it does
/// not end.
bool parse(const buffer& bytes, content_type as, Message& message, std::string& why) {
  if (as == content_type::protobuf) {
    buffer_input from{bytes};
    return parse_bytes(from, bytes.size(), message);
  }
  const std::string whole = bytes.flat() ? std::string() : bytes.to_string();
  return parse_message(bytes.flat().value_or(whole), as, message, why);
}

/// The fields by name, where that is not much: each missing one of a message with many parts has its whole
/// path.
std::string missing_fields(std::string_view what, const Message& message, std::size_t size) {
  constexpr std::size_t few_parts = 1024;
  std::string text = fmt::format("the {} lacks required fields", what);
  if (size > few_parts) return text;
  detail::run_on_base_stack(
      [&] { text += ": " + message.InitializationErrorString(); });  // which recurses by the nesting
  return text;
}

/// All but the common case, in which the payload is protobuf's bytes as they are.
std::string decode_formatted(const inbound_frame& frame, const core::compressor_set& added,
                             std::size_t max_size, std::string_view what, Message& message,
                             std::size_t& size) {
  if (std::string wrong = wrong_checksum(frame, what); !wrong.empty()) return wrong;
  const auto type = frame.meta.content_type.value_or(0);
  if (type < 0 || type > static_cast<std::int32_t>(content_type::proto_text))
    return fmt::format("the {}'s content_type {} is not supported", what, type);
  const auto as = static_cast<content_type>(type);
  const auto compressed = static_cast<compression>(frame.meta.compress_type.value_or(0));
  std::string why;
  bool good = false;
  if (compressed == compression::none) {
    good = parse(frame.payload, as, message, why);
  } else {
    buffer bytes;
    why = decompress(added, compressed, frame.payload, max_size, bytes);
    if (!why.empty()) return fmt::format("the {} cannot be decompressed: {}", what, why);
    size = bytes.size();
    good = parse(bytes, as, message, why);
  }
  return good ? std::string() : unreadable(as, message, what, why);
}

bool plain(const rpc_meta& meta) noexcept {
  return (meta.compress_type.value_or(0) | meta.content_type.value_or(0) | meta.checksum_type.value_or(0)) ==
         0;
}

}  // namespace

buffer serialise(const Message& message, std::size_t size) {
  if (size == 0) return {};
  detail::block_ref block{size};
  message.SerializeWithCachedSizesToArray(reinterpret_cast<std::uint8_t*>(block.data()));
  const char* const data = block.data();
  return buffer{std::move(block), data, size};
}

bool encode_payload(const Message& message, const payload_format& format, const core::compressor_set& added,
                    std::string_view what, payload& out, std::string& why) {
  if (!message.IsInitialized()) {
    why = missing_fields(what, message, message.ByteSizeLong());
    return false;
  }
  if (!write_message(message, format.content, out.bytes, why)) {
    why = fmt::format("the {} cannot be serialised: {}", what, why);
    return false;
  }
  if (format.compression != compression::none && !compress(added, format.compression, out.bytes, why)) {
    why = fmt::format("the {} cannot be compressed: {}", what, why);
    return false;
  }
  if (format.checksum != checksum::none) out.crc = extend_crc32c(0, out.bytes);
  return true;
}

decoded decode_payload(const inbound_frame& frame, const core::compressor_set& added, std::size_t max_size,
                       std::string_view what, Message& message) {
  decoded read{.size = frame.payload.size()};
  if (frame.bad_attachment_size) {
    read.wrong = fmt::format("the {}'s attachment_size does not fit its body", what);
  } else if (!plain(frame.meta)) {
    read.wrong = decode_formatted(frame, added, max_size, what, message, read.size);
  } else if (!message.ParsePartialFromArray(frame.payload.data(), static_cast<int>(frame.payload.size()))) {
    read.wrong = unreadable(content_type::protobuf, message, what, {});
  }
  if (read.wrong.empty() && !message.IsInitialized()) read.wrong = missing_fields(what, message, read.size);
  return read;
}

payload_format format_of(const rpc_meta& meta) noexcept {
  if (plain(meta)) return {};
  return {.compression = static_cast<compression>(meta.compress_type.value_or(0)),
          .content = static_cast<content_type>(meta.content_type.value_or(0)),
          .checksum = static_cast<checksum>(meta.checksum_type.value_or(0)),
          .checksum_attachment = meta.checksum_with_attachment.value_or(false)};
}

void note_format(const payload_format& format, const payload& made, const buffer& attachment, rpc_meta& meta,
                 crc32c_bytes& sum) noexcept {
  if (format.compression != compression::none)
    meta.compress_type = static_cast<std::int32_t>(format.compression);
  if (format.content != content_type::protobuf) meta.content_type = static_cast<std::int32_t>(format.content);
  if (format.checksum == checksum::none) return;
  meta.checksum_type = static_cast<std::int32_t>(format.checksum);
  if (format.checksum_attachment) meta.checksum_with_attachment = true;
  sum = masked_crc32c(format.checksum_attachment ? extend_crc32c(made.crc, attachment) : made.crc);
  meta.checksum_value = std::string_view(sum.data(), sum.size());
}

}  // namespace braid::wire
