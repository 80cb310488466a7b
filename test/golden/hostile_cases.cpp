#include "golden/hostile_cases.hpp"

#include "golden/frame_model.hpp"
#include "golden/oracle.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <stdexcept>

namespace golden {
namespace {

// What a header may say instead of the truth: as it is, relative to it, and on both sides of each limit.
struct lie {
  bool relative;
  std::int64_t value;
};
constexpr lie lies[] = {{true, 0},           {true, -1},          {true, 1},           {false, 0},
                        {false, 1},          {false, 11},         {false, 12},         {false, 0xffff},
                        {false, 0x10000},    {false, 0x10001},    {false, 0x03ffffff}, {false, 0x04000000},
                        {false, 0x04000001}, {false, 0x7fffffff}, {false, 0x80000000}, {false, 0xffffffff}};
constexpr std::size_t lie_count = std::size(lies);
constexpr std::array<std::int64_t, 12> attachment_sizes = {-2147483648, -1, 0,  1,    2,          7,
                                                           8,           9,  14, 1000, 0x04000000, 2147483647};

std::uint32_t number(std::string_view bytes, std::size_t at) {
  std::uint32_t value = 0;
  for (std::size_t i = at; i < at + 4; ++i) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

std::uint32_t told(const lie& how, std::uint32_t truth) {
  return static_cast<std::uint32_t>(how.relative ? truth + how.value : how.value);
}

oracle_meta meta_of(std::string_view frame) {
  oracle_meta meta;
  if (!meta.ParseFromString(std::string(frame.substr(12, number(frame, 8)))))
    throw std::runtime_error("a recorded meta cannot be read");
  return meta;
}

std::string with_meta(std::string_view frame, const oracle_meta& meta) {
  return make_frame(meta.SerializeAsString(), frame.substr(12 + number(frame, 8)));
}

std::string rewritten(const chunk& frame, const hostile_table::rewriter& rewrite) {
  return rewrite ? rewrite(frame) : frame.bytes;
}

}  // namespace

std::string hostile_case::describe() const {
  return std::string(name) + " " + kind + " at " + std::to_string(at) + " value " + std::to_string(value);
}

hostile_table::hostile_table(std::vector<const chunk*> frames) : frames_(std::move(frames)) {
  for (const chunk* each : frames_) bytes_ += each->bytes.size();
}

hostile_table hostile_table::of(const std::vector<chunk>& recording, bool to_server) {
  std::vector<const chunk*> frames;
  for (const chunk& each : recording)
    if (each.to_server == to_server) frames.push_back(&each);
  return hostile_table(std::move(frames));
}

std::size_t hostile_table::size(spoiling how) const {
  switch (how) {
    case spoiling::truncations:
      return bytes_;
    case spoiling::values:
      return bytes_ * 256;
    case spoiling::lengths:
      break;
  }
  return frames_.size() * (lie_count * lie_count + attachment_sizes.size());
}

hostile_case hostile_table::make(spoiling how, std::size_t n, const rewriter& rewrite) const {
  switch (how) {
    case spoiling::truncations:
      return truncation(n, rewrite);
    case spoiling::values:
      return value(n, rewrite);
    case spoiling::lengths:
      break;
  }
  return length(n, rewrite);
}

const chunk& hostile_table::frame_at(std::size_t& position) const {
  for (const chunk* each : frames_) {
    if (position < each->bytes.size()) return *each;
    position -= each->bytes.size();
  }
  throw std::out_of_range("no such case");
}

hostile_case hostile_table::truncation(std::size_t n, const rewriter& rewrite) const {
  const chunk& frame = frame_at(n);
  return {.name = frame.name, .kind = 't', .at = n, .bytes = rewritten(frame, rewrite).substr(0, n)};
}

hostile_case hostile_table::value(std::size_t n, const rewriter& rewrite) const {
  const auto value = static_cast<unsigned>(n % 256);
  n /= 256;
  const chunk& frame = frame_at(n);
  hostile_case made{
      .name = frame.name, .kind = 'v', .at = n, .value = value, .bytes = rewritten(frame, rewrite)};
  // Behind the id, positions count from the end: another id may have another length.
  const auto differs = static_cast<std::size_t>(
      std::mismatch(frame.bytes.begin() + 12, frame.bytes.end(), made.bytes.begin() + 12).first -
      frame.bytes.begin());
  made.bytes[n < differs ? n : n + made.bytes.size() - frame.bytes.size()] = static_cast<char>(value);
  return made;
}

hostile_case hostile_table::length(std::size_t n, const rewriter& rewrite) const {
  const chunk& frame = *frames_[n % frames_.size()];
  n /= frames_.size();
  hostile_case made{.name = frame.name, .kind = 'l', .at = n, .bytes = rewritten(frame, rewrite)};
  if (n < lie_count * lie_count) {
    const std::uint32_t body = told(lies[n % lie_count], number(made.bytes, 4));
    const std::uint32_t meta = told(lies[n / lie_count], number(made.bytes, 8));
    made.bytes.replace(0, 12, make_header(body, meta));
  } else {
    oracle_meta meta = meta_of(made.bytes);
    meta.set_attachment_size(static_cast<std::int32_t>(attachment_sizes[n - lie_count * lie_count]));
    made.kind = 'a';
    made.bytes = with_meta(made.bytes, meta);
  }
  return made;
}

std::vector<chunk> extension_frames() {
  oracle_meta request;
  request.mutable_request()->set_service_name("golden.EchoService");
  request.mutable_request()->set_method_name("Echo");
  request.mutable_request()->set_timeout_ms(500);
  request.set_correlation_id(std::int64_t{1} << 32);
  request.set_features(1);
  oracle_meta announcement;
  announcement.set_correlation_id(0);
  announcement.set_features(1);
  oracle_meta cancel;
  cancel.set_correlation_id(std::int64_t{1} << 32);
  cancel.set_cancel_cause(2);
  const std::string payload("\x0a\x05hello");
  const auto framed = [](const oracle_meta& meta, std::string_view rest) {
    return make_frame(meta.SerializeAsString(), rest);
  };
  return {{"first request", true, framed(request, payload)},
          {"request and cancel", true, framed(request, payload) + framed(cancel, "")},
          {"cancel", true, framed(cancel, "")},
          {"announcement", true, framed(announcement, "")},
          {"announcement", false, framed(announcement, "")},
          {"cancel", false, framed(cancel, "")}};
}

std::string with_id(std::string_view frame, std::int64_t id) {
  oracle_meta meta = meta_of(frame);
  meta.set_correlation_id(id);
  return with_meta(frame, meta);
}

}  // namespace golden
