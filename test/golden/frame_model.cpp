#include "golden/frame_model.hpp"

#include <google/protobuf/stubs/logging.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace golden {

namespace {

using braid::wire::frame_error;
using braid::wire::frame_reader;
using braid::wire::inbound_frame;
using status = frame_reader::status;

std::size_t number(std::string_view bytes, std::size_t at) {
  std::size_t value = 0;
  for (std::size_t i = at; i < at + 4; ++i) value = value * 256 + static_cast<unsigned char>(bytes[i]);
  return value;
}

frame_model::event broken(frame_error error) { return {.status = status::broken, .error = error}; }

bool matches(const frame_model::event& expected, status got, const frame_reader& reader,
             const inbound_frame& frame) {
  if (got != expected.status) return false;
  if (got == status::broken) return reader.error() == expected.error;
  return same(frame.meta, expected.meta) && frame.payload == expected.payload &&
         frame.attachment == expected.attachment && frame.bad_attachment_size == expected.bad_attachment_size;
}

}  // namespace

frame_model::frame_model(std::string_view stream, std::size_t max_body, std::size_t max_meta) {
  const google::protobuf::LogSilencer no_complaints_about_utf8;
  while (!stream.empty()) {
    if (stream.substr(0, 4) != std::string_view{"PRPC"}.substr(0, stream.size())) {
      events.push_back(broken(frame_error::bad_magic));
      return;
    }
    mid_frame = true;
    if (stream.size() < 12) return;
    const std::size_t body = number(stream, 4);
    const std::size_t meta = number(stream, 8);
    if (meta > max_meta) events.push_back(broken(frame_error::meta_too_large));
    if (meta > max_meta) return;
    if (meta > body) events.push_back(broken(frame_error::meta_exceeds_body));
    if (meta > body) return;
    const bool oversized = body > max_body;
    if (stream.size() < 12 + (oversized ? meta : body)) return;
    event found{.status = oversized ? status::oversized : status::frame};
    // ParseFromString() would say through reflection what is missing. Of a map that reads what a header
    // compiled for ThreadSanitizer lays out otherwise than the library.
    if (!found.meta.ParsePartialFromString(std::string{stream.substr(12, meta)}) ||
        !found.meta.IsInitialized()) {
      events.push_back(broken(frame_error::bad_meta));
      return;
    }
    if (!oversized) {
      const std::int64_t attachment = found.meta.attachment_size();
      const auto rest = static_cast<std::int64_t>(body - meta);
      found.bad_attachment_size = attachment < 0 || attachment > rest;
      const std::int64_t payload = found.bad_attachment_size ? rest : rest - attachment;
      found.payload = stream.substr(12 + meta, static_cast<std::size_t>(payload));
      found.attachment = stream.substr(12 + meta, body - meta).substr(static_cast<std::size_t>(payload));
    }
    events.push_back(found);
    if (stream.size() < 12 + body) return;
    stream.remove_prefix(12 + body);
    mid_frame = false;
  }
}

bool reads_like_model(const frame_model& model, std::string_view stream, std::size_t read_size,
                      std::size_t max_body, std::size_t max_meta) {
  frame_reader reader{max_body, max_meta};
  inbound_frame frame;
  auto expected = model.events.begin();
  while (true) {
    for (status got = reader.next(frame); got != status::need_more; got = reader.next(frame)) {
      if (expected == model.events.end() || !matches(*expected++, got, reader, frame)) return false;
      if (got == status::broken)
        return expected == model.events.end() && reader.next(frame) == status::broken;
    }
    if (stream.empty()) return expected == model.events.end() && reader.mid_frame() == model.mid_frame;
    const auto room = reader.prepare();
    const std::size_t n = std::min({stream.size(), read_size, room.size()});
    if (n == 0) return false;
    std::memcpy(room.data(), stream.data(), n);
    reader.commit(n);
    stream.remove_prefix(n);
  }
}

std::string make_header(std::uint32_t body_size, std::uint32_t meta_size) {
  std::string bytes(braid::wire::header_size, '\0');
  braid::wire::encode_header({body_size, meta_size}, bytes.data());
  return bytes;
}

std::string make_frame(std::string_view meta, std::string_view rest) {
  std::string bytes = make_header(static_cast<std::uint32_t>(meta.size() + rest.size()),
                                  static_cast<std::uint32_t>(meta.size()));
  bytes += meta;
  bytes += rest;
  return bytes;
}

}  // namespace golden
