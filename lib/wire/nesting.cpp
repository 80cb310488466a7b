#include "wire/nesting.hpp"

#include <google/protobuf/io/coded_stream.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace braid::wire {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

/// The fields of a message one after the other; nothing is copied.
class field_reader {
 public:
  explicit field_reader(std::string_view bytes) noexcept
      : bytes_(bytes),
        in_(reinterpret_cast<const std::uint8_t*>(bytes.data()), static_cast<int>(bytes.size())) {}

  /// False: there are no more, or the rest is none.
  bool next() {
    const std::uint32_t tag = in_.ReadTag();
    number_ = static_cast<int>(tag >> 3);
    piece_.reset();
    std::uint64_t skipped = 0;
    switch (tag & 7) {
      case 0:
        return tag != 0 && in_.ReadVarint64(&skipped);
      case 1:
        return in_.Skip(8);
      case 2:
        return read_piece();
      case 5:
        return in_.Skip(4);
      default:  // the ends of a group, into which the JSON printer does not go
        return true;
    }
  }
  int number() const noexcept { return number_; }
  /// What is there of a field that has a length: a message, a string.
  const std::optional<std::string_view>& piece() const noexcept { return piece_; }

 private:
  bool read_piece() {
    std::uint32_t size = 0;
    if (!in_.ReadVarint32(&size)) return false;
    const auto at = static_cast<std::size_t>(in_.CurrentPosition());
    if (size > bytes_.size() - at) return false;
    piece_ = bytes_.substr(at, size);
    return in_.Skip(static_cast<int>(size));
  }

  std::string_view bytes_;
  google::protobuf::io::CodedInputStream in_;
  int number_ = 0;
  std::optional<std::string_view> piece_;
};

bool any_nests_within(std::string_view bytes, const Descriptor& any, int levels) {
  std::string_view url, value;
  for (field_reader fields(bytes); fields.next();) {
    if (!fields.piece()) continue;
    if (fields.number() == 1) url = *fields.piece();
    if (fields.number() == 2) value = *fields.piece();
  }
  const std::string name(url.substr(url.rfind('/') + 1));
  const Descriptor* const held = any.file()->pool()->FindMessageTypeByName(name);
  return !held || bytes_nest_within(value, *held, levels);
}

}  // namespace

bool bytes_nest_within(std::string_view bytes, const Descriptor& type, int levels) {
  if (levels == 0) return false;
  if (type.well_known_type() == Descriptor::WELLKNOWNTYPE_ANY)
    return any_nests_within(bytes, type, levels - 1);
  for (field_reader fields(bytes); fields.next();) {
    if (!fields.piece()) continue;
    const FieldDescriptor* const field = type.FindFieldByNumber(fields.number());
    if (!field || field->type() != FieldDescriptor::TYPE_MESSAGE) continue;
    const int left = field->is_map() ? levels : levels - 1;  // an entry is not told from what is in it
    if (!bytes_nest_within(*fields.piece(), *field->message_type(), left)) return false;
  }
  return true;
}

bool text_nests_within(std::string_view text, int levels) noexcept {
  int depth = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '{' || c == '<' || c == '[') {
      if (++depth > levels) return false;
    } else if (c == '}' || c == '>' || c == ']') {
      --depth;
    } else if (c == '#') {
      at = text.find('\n', at);
      if (at == std::string_view::npos) break;
    } else if (c == '"' || c == '\'') {
      // No string goes over the end of a line.
      for (++at; at < text.size() && text[at] != c && text[at] != '\n'; ++at) at += text[at] == '\\';
    }
  }
  return true;
}

}  // namespace braid::wire
