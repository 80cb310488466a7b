#include "golden/hostile_oracle.hpp"

#include "golden.pb.h"
#include "golden/frame_model.hpp"

#include <google/protobuf/stubs/logging.h>
#include <google/protobuf/text_format.h>
#include <google/protobuf/util/json_util.h>

#include <snappy.h>
#include <zlib.h>

#include <algorithm>
#include <utility>

namespace golden {
namespace {

using status = braid::wire::frame_reader::status;

constexpr std::size_t max_meta = 64 * 1024;

std::map<std::string, std::string> fields_of(const oracle_meta& meta) {
  return {meta.user_fields().begin(), meta.user_fields().end()};
}

bool is_echo_service(const std::string& name) {
  return name == "golden.EchoService" || name == "EchoService";
}

// Section 9: a frame of the cancel extension.
bool is_control(const oracle_meta& meta) {
  return !meta.has_request() && !meta.has_response() && (meta.has_features() || meta.has_cancel_cause());
}

bool checksum_holds(const oracle_meta& meta, std::string_view payload, std::string_view attachment) {
  if (meta.checksum_type() == 0) return true;
  if (meta.checksum_type() != 1) return false;
  std::string covered(payload);
  if (meta.checksum_with_attachment()) covered += attachment;
  std::uint32_t crc = 0xffffffff;
  for (const char byte : covered) {
    crc ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78 : 0);
  }
  crc = ~crc;
  const std::uint32_t masked = (crc >> 15 | crc << 17) + 0xa282ead8;
  std::string value;
  for (int shift = 24; shift >= 0; shift -= 8) value += static_cast<char>(masked >> shift);
  return meta.checksum_value() == value;
}

/// One whole stream in zlib's format (or gzip's, `framing` 16), with nothing behind it.
bool inflated(std::string_view bytes, int framing, std::string& out) {
  z_stream stream{};
  if (inflateInit2(&stream, MAX_WBITS + framing) != Z_OK) return false;
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  const int status = inflate(&stream, Z_FINISH);
  out.resize(out.size() - stream.avail_out);
  const bool good = status == Z_STREAM_END && stream.avail_in == 0;
  inflateEnd(&stream);
  return good;
}

bool decompressed(int compress_type, std::string_view bytes, std::size_t limit, std::string& out) {
  if (compress_type == 0) {
    out = bytes;
    return true;
  }
  std::size_t size = 0;
  if (compress_type == 1)
    return snappy::GetUncompressedLength(bytes.data(), bytes.size(), &size) && size <= limit &&
           snappy::Uncompress(bytes.data(), bytes.size(), &out);
  out.resize(std::min(limit, 1100 * bytes.size() + 64));  // deflate cannot do better
  return (compress_type == 2 || compress_type == 3) && inflated(bytes, compress_type == 2 ? 16 : 0, out);
}

bool parsed(int content_type, const std::string& bytes, google::protobuf::Message& into) {
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = true;
  switch (content_type) {
    case 0:
      return into.ParsePartialFromString(bytes);
    case 1:
    case 2:
      return google::protobuf::util::JsonStringToMessage(bytes, &into, options).ok();
    case 3:
      return google::protobuf::TextFormat::ParseFromString(bytes, &into);
    default:
      return false;
  }
}

reply failed(int code) { return {.code = code, .message = {}, .attachment = {}, .user_fields = {}}; }

// Section 7, row by row.
reply answer_to(const frame_model::event& frame, const payload_decoder& decode) {
  const auto& request = frame.meta.request();
  if (frame.status == status::oversized) return failed(1003);
  if (!is_echo_service(request.service_name())) return failed(1001);
  if (request.method_name() != "Echo") return failed(1002);
  if (request.has_timeout_ms() && request.timeout_ms() <= 0) return failed(1008);
  EchoRequest message;
  if (frame.bad_attachment_size || !decode(frame.meta, frame.payload, frame.attachment, message))
    return failed(1003);
  reply good{.code = message.fail_code(),
             .message = {},
             .attachment = std::string(frame.attachment),
             .user_fields = fields_of(frame.meta)};
  if (good.code != 0) return failed(good.code);
  good.message = message.message();
  return good;
}

reply outcome_of(const frame_model::event& frame, const payload_decoder& decode) {
  if (frame.status == status::oversized) return failed(2002);
  if (const int code = frame.meta.response().error_code(); code != 0) return failed(code);
  EchoResponse message;
  if (frame.bad_attachment_size || !decode(frame.meta, frame.payload, frame.attachment, message))
    return failed(2002);
  return {.code = 0,
          .message = message.message(),
          .attachment = std::string(frame.attachment),
          .user_fields = fields_of(frame.meta)};
}

}  // namespace

payload_decoder decode_formats(std::size_t max_body) {
  return [max_body](const oracle_meta& meta, std::string_view payload, std::string_view attachment,
                    google::protobuf::Message& into) {
    const google::protobuf::LogSilencer no_complaints;
    std::string bytes;
    return checksum_holds(meta, payload, attachment) &&
           decompressed(meta.compress_type(), payload, max_body, bytes) &&
           parsed(meta.content_type(), bytes, into) && into.IsInitialized();
  };
}

std::string to_string(const reply& what) {
  std::string text = std::to_string(what.code) + " '" + what.message + "'";
  if (!what.attachment.empty()) text += " with " + std::to_string(what.attachment.size()) + " attached bytes";
  for (const auto& [key, value] : what.user_fields) text += " " + key + "=" + value;
  return text;
}

server_expectation expect_of_server(std::string_view stream, const payload_decoder& decode,
                                    std::size_t max_body, connection_past past) {
  const frame_model model(stream, max_body, max_meta);
  server_expectation expected{
      .replies = {}, .closes = false, .owes = model.mid_frame, .past = std::move(past)};
  bool refused = false;
  for (const auto& frame : model.events) {
    expected.closes = frame.status == status::broken;
    if (expected.closes) break;
    if (!std::exchange(expected.past.heard, true) && frame.meta.has_features())
      expected.replies.emplace_back(0, failed(reply::announcement));
    if (!frame.meta.has_request()) continue;
    // The first request tells who the client is; what comes behind one that is refused is refused too.
    refused =
        refused || (!expected.past.token.empty() && frame.meta.authentication_data() != expected.past.token);
    if (refused) expected.replies.emplace_back(frame.meta.correlation_id(), failed(1004));
    if (refused) continue;
    expected.past.token.clear();
    expected.replies.emplace_back(frame.meta.correlation_id(), answer_to(frame, decode));
  }
  expected.closes = expected.closes || refused;
  return expected;
}

client_expectation expect_of_client(std::string_view stream, std::vector<std::int64_t> waiting,
                                    const payload_decoder& decode, std::size_t max_body) {
  const frame_model model(stream, max_body, max_meta);
  client_expectation expected{.ended = {}, .closes = false, .owes = model.mid_frame};
  for (const auto& frame : model.events) {
    expected.closes = frame.status == status::broken;
    if (expected.closes) {
      for (const std::int64_t id : waiting) expected.ended.emplace(id, failed(2002));
      break;
    }
    if (is_control(frame.meta)) continue;
    const auto found = std::find(waiting.begin(), waiting.end(), frame.meta.correlation_id());
    if (!frame.meta.has_correlation_id() || found == waiting.end()) continue;
    expected.ended.emplace(*found, outcome_of(frame, decode));
    waiting.erase(found);
  }
  return expected;
}

bool read_reply(std::string_view frame, std::int64_t& id, reply& into) {
  const frame_model model(frame, frame.size(), max_meta);
  if (model.events.size() != 1 || model.mid_frame || model.events[0].status != status::frame) return false;
  const auto& event = model.events[0];
  if (event.bad_attachment_size) return false;
  id = event.meta.correlation_id();
  if (is_control(event.meta)) {
    into = failed(reply::announcement);
    return event.meta.has_features() && !event.meta.has_cancel_cause();
  }
  if (!event.meta.has_response()) return false;
  into = outcome_of(event, decode_formats(frame.size()));
  return true;
}

std::string_view cut_frame(std::string_view& stream) {
  if (stream.size() < 12) return {};
  std::size_t body = 0;
  for (std::size_t i = 4; i < 8; ++i) body = body << 8 | static_cast<unsigned char>(stream[i]);
  if (stream.size() - 12 < body) return {};
  const std::string_view frame = stream.substr(0, 12 + body);
  stream.remove_prefix(frame.size());
  return frame;
}

std::size_t whole_frames(std::string_view stream) {
  std::size_t count = 0;
  while (!cut_frame(stream).empty()) ++count;
  return count;
}

}  // namespace golden
