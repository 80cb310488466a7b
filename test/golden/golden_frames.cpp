#include "golden/golden_frames.hpp"

#include "baidu_std_meta.pb.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <google/protobuf/unknown_field_set.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <map>
#include <sstream>
#include <stdexcept>

namespace golden {

namespace {

using braid::wire::oracle::RpcMeta;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

struct parsed {
  RpcMeta meta;
  std::string payload;
  std::string attachment;
};

std::uint32_t number(std::string_view bytes, std::size_t at) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<unsigned char>(bytes[at + i]);
  return value;
}

bool parse(std::string_view frame, parsed& out) {
  if (frame.size() < 12 || frame.substr(0, 4) != "PRPC") return false;
  const std::size_t body = number(frame, 4);
  const std::size_t meta = number(frame, 8);
  if (frame.size() != 12 + body || meta > body) return false;
  if (!out.meta.ParseFromString(std::string{frame.substr(12, meta)})) return false;
  const std::size_t rest = body - meta;
  const auto attachment = static_cast<std::size_t>(out.meta.attachment_size());
  if (attachment > rest) return false;
  out.payload = frame.substr(12 + meta, rest - attachment);
  out.attachment = frame.substr(frame.size() - attachment);
  return true;
}

/// The value of a field as text, empty if it is absent or zero.
std::string value_of(const Message& message, const FieldDescriptor& field) {
  const auto& reflection = *message.GetReflection();
  if (!reflection.HasField(message, &field)) return {};
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_STRING:
      return reflection.GetString(message, &field);
    case FieldDescriptor::CPPTYPE_BOOL:
      return reflection.GetBool(message, &field) ? "true" : "";
    default:
      break;
  }
  std::int64_t value = 0;
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      value = reflection.GetInt32(message, &field);
      break;
    case FieldDescriptor::CPPTYPE_INT64:
      value = reflection.GetInt64(message, &field);
      break;
    default:
      throw std::logic_error{"no comparison for field " + field.full_name()};
  }
  return value == 0 ? "" : std::to_string(value);
}

class comparison {
 public:
  std::vector<std::string> found;

  void compare(const Message& recorded, const Message& ours) {
    const auto& type = *recorded.GetDescriptor();
    for (int i = 0; i < type.field_count(); ++i) compare_field(recorded, ours, *type.field(i));
    for (const Message* side : {&recorded, &ours}) {
      if (!side->GetReflection()->GetUnknownFields(*side).empty()) note(type.name(), "unknown fields");
    }
  }

  void note(const std::string& where, const std::string& what) { found.push_back(where + ": " + what); }

 private:
  void compare_field(const Message& recorded, const Message& ours, const FieldDescriptor& field) {
    const std::string& name = field.full_name();
    const std::string short_name = name.substr(std::string_view{"braid.wire.oracle."}.size());
    if (short_name == "RpcMeta.features" || short_name == "RpcMeta.cancel_cause") return;
    if (short_name == "RpcRequestMeta.timeout_ms") return;
    if (field.is_map()) return;  // by compare_user_fields
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      compare_message(recorded, ours, field, short_name);
      return;
    }
    const std::string theirs = value_of(recorded, field);
    const std::string mine = value_of(ours, field);
    if (short_name == "RpcMeta.correlation_id" || short_name == "RpcResponseMeta.error_text") {
      if (theirs.empty() != mine.empty()) note(short_name, "only on one side");
    } else if (theirs != mine) {
      note(short_name, "recorded '" + theirs + "', ours '" + mine + "'");
    }
  }

  void compare_message(const Message& recorded, const Message& ours, const FieldDescriptor& field,
                       const std::string& name) {
    const bool theirs = recorded.GetReflection()->HasField(recorded, &field);
    const bool mine = ours.GetReflection()->HasField(ours, &field);
    if (theirs != mine) note(name, "only on one side");
    if (!theirs || !mine) return;
    compare(recorded.GetReflection()->GetMessage(recorded, &field),
            ours.GetReflection()->GetMessage(ours, &field));
  }
};

std::map<std::string, std::string> user_fields(const RpcMeta& meta) {
  return {meta.user_fields().begin(), meta.user_fields().end()};
}

}  // namespace

std::string from_hex(std::string_view hex) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(std::string{hex.substr(i, 2)}, nullptr, 16));
  }
  return bytes;
}

std::vector<chunk> load(const std::string& file) {
  std::ifstream in{file};
  if (!in) throw std::runtime_error{"cannot read " + file};
  std::vector<chunk> chunks;
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream words{line};
    std::string name, direction, hex;
    words >> name >> direction >> hex;
    if (hex.empty() || hex.size() % 2 != 0) throw std::runtime_error{"bad line in " + file + ": " + line};
    chunks.push_back({name, direction == "c>s", from_hex(hex)});
  }
  return chunks;
}

std::vector<std::string> differences(std::string_view recorded, std::string_view ours) {
  parsed theirs;
  parsed mine;
  comparison result;
  if (!parse(recorded, theirs)) result.note("recorded", "not one whole frame");
  if (!parse(ours, mine)) result.note("ours", "not one whole frame");
  if (!result.found.empty()) return result.found;
  result.compare(theirs.meta, mine.meta);
  if (user_fields(theirs.meta) != user_fields(mine.meta)) result.note("RpcMeta.user_fields", "differ");
  if (theirs.payload != mine.payload) result.note("payload", "differs");
  if (theirs.attachment != mine.attachment) result.note("attachment", "differs");
  return result.found;
}

}  // namespace golden
