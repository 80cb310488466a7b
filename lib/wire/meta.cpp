#include "wire/meta.hpp"

#include <algorithm>
#include <bit>
#include <concepts>
#include <cstring>
#include <utility>

namespace braid::wire {

namespace {

// The decoder mirrors the rules of protobuf's parser (google/protobuf/parse_context.h, 3.21), also for
// encodings that no writer makes: longer varints than needed, tags cut to 32 bits, sizes below 2 GiB, 100
// levels of nesting.

constexpr int max_depth = 100;
constexpr std::size_t kept_user_fields = 64;

enum wire_type : std::uint32_t {
  varint = 0,
  fixed64 = 1,
  bytes_type = 2,
  group = 3,
  end_group = 4,
  fixed32 = 5
};

constexpr std::uint32_t tag(std::uint32_t field, wire_type type) { return field << 3 | type; }

class input {
 public:
  explicit input(std::string_view bytes) noexcept : at_{bytes.data()}, end_{bytes.data() + bytes.size()} {}

  bool at_end() const noexcept { return at_ == end_; }

  bool read_varint(std::uint64_t& value) noexcept {
    if (at_ != end_ && static_cast<signed char>(*at_) >= 0) {
      value = static_cast<unsigned char>(*at_++);
      return true;
    }
    return read_long(value, 10);
  }

  bool read_tag(std::uint32_t& value) noexcept {
    std::uint64_t wide = 0;
    if (at_ != end_ && static_cast<signed char>(*at_) >= 0) {
      wide = static_cast<unsigned char>(*at_++);
    } else if (!read_long(wide, 5)) {
      return false;
    }
    value = static_cast<std::uint32_t>(wide);
    return true;
  }

  bool read_bytes(std::string_view& value) noexcept {
    std::uint64_t size = 0;
    if (at_ != end_ && static_cast<signed char>(*at_) >= 0) {
      size = static_cast<unsigned char>(*at_++);
    } else if (!read_long(size, 5)) {
      return false;
    }
    if (size > static_cast<std::size_t>(end_ - at_)) return false;
    value = {at_, static_cast<std::size_t>(size)};
    at_ += size;
    return true;
  }

  bool skip(std::size_t n) noexcept {
    if (n > static_cast<std::size_t>(end_ - at_)) return false;
    at_ += n;
    return true;
  }

 private:
  bool read_long(std::uint64_t& value, int most) noexcept {
    std::uint64_t result = 0;
    for (int i = 0; i < most && at_ != end_; ++i) {
      const auto byte = static_cast<unsigned char>(*at_++);
      result |= static_cast<std::uint64_t>(byte & 0x7f) << (7 * i);
      if (byte < 0x80) {
        value = result;
        return true;
      }
    }
    return false;
  }

  const char* at_;
  const char* end_;
};

bool skip_group(input& in, std::uint32_t field, int depth) noexcept;

/// Skips a field that is unknown, or known but of another wire type. `depth` is how many groups may still
/// open.
bool skip_field(input& in, std::uint32_t read, int depth) noexcept {
  if (read >> 3 == 0) return false;
  std::uint64_t number = 0;
  std::string_view bytes;
  switch (read & 7) {
    case varint:
      return in.read_varint(number);
    case fixed64:
      return in.skip(8);
    case bytes_type:
      return in.read_bytes(bytes);
    case group:
      return skip_group(in, read >> 3, depth - 1);
    case fixed32:
      return in.skip(4);
    default:
      return false;
  }
}

bool skip_group(input& in, std::uint32_t field, int depth) noexcept {
  if (depth < 0) return false;
  std::uint32_t read = 0;
  while (!in.at_end()) {
    if (!in.read_tag(read)) return false;
    if ((read & 7) == end_group) return read == tag(field, end_group);
    if (!skip_field(in, read, depth)) return false;
  }
  return false;
}

template <class Int>
bool read_number(input& in, std::optional<Int>& field) noexcept {
  std::uint64_t value = 0;
  if (!in.read_varint(value)) return false;
  if constexpr (std::same_as<Int, bool>) {
    field = value != 0;
  } else {
    field = static_cast<Int>(value);
  }
  return true;
}

bool read_string(input& in, std::optional<std::string_view>& field) noexcept {
  std::string_view value;
  if (!in.read_bytes(value)) return false;
  field = value;
  return true;
}

struct seen_names {
  bool service = false;
  bool method = false;
};

bool decode_request(std::string_view bytes, request_meta& request, seen_names& seen) noexcept {
  input in{bytes};
  std::uint32_t read = 0;
  bool good = true;
  while (good && !in.at_end()) {
    if (!in.read_tag(read)) return false;
    switch (read) {
      case tag(1, bytes_type):
        good = seen.service = in.read_bytes(request.service_name);
        break;
      case tag(2, bytes_type):
        good = seen.method = in.read_bytes(request.method_name);
        break;
      case tag(3, varint):
        good = read_number(in, request.log_id);
        break;
      case tag(4, varint):
        good = read_number(in, request.trace_id);
        break;
      case tag(5, varint):
        good = read_number(in, request.span_id);
        break;
      case tag(6, varint):
        good = read_number(in, request.parent_span_id);
        break;
      case tag(7, bytes_type):
        good = read_string(in, request.request_id);
        break;
      case tag(8, varint):
        good = read_number(in, request.timeout_ms);
        break;
      default:
        good = skip_field(in, read, max_depth - 1);
    }
  }
  return good;
}

bool decode_response(std::string_view bytes, response_meta& response) noexcept {
  input in{bytes};
  std::uint32_t read = 0;
  bool good = true;
  while (good && !in.at_end()) {
    if (!in.read_tag(read)) return false;
    switch (read) {
      case tag(1, varint):
        good = read_number(in, response.error_code);
        break;
      case tag(2, bytes_type):
        good = read_string(in, response.error_text);
        break;
      default:
        good = skip_field(in, read, max_depth - 1);
    }
  }
  return good;
}

bool decode_user_field(std::string_view bytes, std::vector<user_field>& fields) {
  input in{bytes};
  user_field entry;
  std::uint32_t read = 0;
  bool good = true;
  while (good && !in.at_end()) {
    if (!in.read_tag(read)) return false;
    switch (read) {
      case tag(1, bytes_type):
        good = in.read_bytes(entry.key);
        break;
      case tag(2, bytes_type):
        good = in.read_bytes(entry.value);
        break;
      default:
        good = skip_field(in, read, max_depth - 1);
    }
  }
  if (good) fields.push_back(entry);
  return good;
}

/// Keeps the last entry of each key. By sorting, so that a meta full of keys costs no quadratic time.
void drop_repeated_keys(std::vector<user_field>& fields) {
  if (fields.size() < 2) return;
  std::stable_sort(fields.begin(), fields.end(),
                   [](const user_field& a, const user_field& b) { return a.key < b.key; });
  auto kept = fields.begin();
  for (auto next = kept + 1; next != fields.end(); ++next) {
    if (next->key != kept->key) ++kept;
    *kept = *next;
  }
  fields.erase(kept + 1, fields.end());
}

std::size_t varint_size(std::uint64_t value) noexcept {
  return (static_cast<std::size_t>(std::bit_width(value | 1)) + 6) / 7;
}

// Protobuf's int32 is sign-extended to 64 bits.
template <std::integral Int>
constexpr std::uint64_t wide(Int value) noexcept {
  if constexpr (std::signed_integral<Int>) {
    return static_cast<std::uint64_t>(static_cast<std::int64_t>(value));
  } else {
    return value;
  }
}

template <std::uint32_t Field>
constexpr std::size_t key_size = Field < 16     ? 1
                                 : Field < 2048 ? 2
                                                : 3;

template <std::uint32_t Field, class T>
std::size_t field_size(T value) noexcept {
  if constexpr (std::same_as<T, std::string_view>) {
    return key_size<Field> + varint_size(value.size()) + value.size();
  } else {
    return key_size<Field> + varint_size(wide(value));
  }
}

template <std::uint32_t Field, class T>
std::size_t field_size(const std::optional<T>& value) noexcept {
  return value ? field_size<Field>(*value) : 0;
}

char* put_varint(char* at, std::uint64_t value) noexcept {
  while (value >= 0x80) {
    *at++ = static_cast<char>(value | 0x80);
    value >>= 7;
  }
  *at++ = static_cast<char>(value);
  return at;
}

template <std::uint32_t Field, class T>
char* put(char* at, T value) noexcept {
  if constexpr (std::same_as<T, std::string_view>) {
    at = put_varint(at, tag(Field, bytes_type));
    at = put_varint(at, value.size());
    if (!value.empty()) std::memcpy(at, value.data(), value.size());
    return at + value.size();
  } else {
    at = put_varint(at, tag(Field, varint));
    return put_varint(at, wide(value));
  }
}

template <std::uint32_t Field, class T>
char* put(char* at, const std::optional<T>& value) noexcept {
  return value ? put<Field>(at, *value) : at;
}

template <std::uint32_t Field>
char* put_head(char* at, std::size_t size) noexcept {
  return put_varint(put_varint(at, tag(Field, bytes_type)), size);
}

std::size_t request_size(const request_meta& r) noexcept {
  return field_size<1>(r.service_name) + field_size<2>(r.method_name) + field_size<3>(r.log_id) +
         field_size<4>(r.trace_id) + field_size<5>(r.span_id) + field_size<6>(r.parent_span_id) +
         field_size<7>(r.request_id) + field_size<8>(r.timeout_ms);
}

char* put_request(char* at, const request_meta& r) noexcept {
  at = put_head<1>(at, request_size(r));
  at = put<1>(at, r.service_name);
  at = put<2>(at, r.method_name);
  at = put<3>(at, r.log_id);
  at = put<4>(at, r.trace_id);
  at = put<5>(at, r.span_id);
  at = put<6>(at, r.parent_span_id);
  at = put<7>(at, r.request_id);
  return put<8>(at, r.timeout_ms);
}

std::size_t response_size(const response_meta& r) noexcept {
  return field_size<1>(r.error_code) + field_size<2>(r.error_text);
}

char* put_response(char* at, const response_meta& r) noexcept {
  at = put_head<2>(at, response_size(r));
  at = put<1>(at, r.error_code);
  return put<2>(at, r.error_text);
}

std::size_t user_field_size(const user_field& f) noexcept {
  return field_size<1>(f.key) + field_size<2>(f.value);
}

char* put_user_field(char* at, const user_field& f) noexcept {
  at = put_head<9>(at, user_field_size(f));
  at = put<1>(at, f.key);
  return put<2>(at, f.value);
}

std::size_t nested_size(std::size_t size) noexcept { return 1 + varint_size(size) + size; }

}  // namespace

void rpc_meta::clear() noexcept {
  std::vector<user_field> fields = std::move(user_fields);
  *this = rpc_meta{};
  fields.clear();
  if (fields.capacity() <= kept_user_fields) user_fields = std::move(fields);
}

bool decode_meta(std::string_view bytes, rpc_meta& meta) {
  meta.clear();
  seen_names seen;
  std::string_view part;
  input in{bytes};
  std::uint32_t read = 0;
  bool good = true;
  while (good && !in.at_end()) {
    if (!in.read_tag(read)) return false;
    switch (read) {
      case tag(1, bytes_type):
        meta.has_request = true;
        good = in.read_bytes(part) && decode_request(part, meta.request, seen);
        break;
      case tag(2, bytes_type):
        meta.has_response = true;
        good = in.read_bytes(part) && decode_response(part, meta.response);
        break;
      case tag(3, varint):
        good = read_number(in, meta.compress_type);
        break;
      case tag(4, varint):
        good = read_number(in, meta.correlation_id);
        break;
      case tag(5, varint):
        good = read_number(in, meta.attachment_size);
        break;
      case tag(6, bytes_type):
        good = read_string(in, meta.chunk_info);
        break;
      case tag(7, bytes_type):
        good = read_string(in, meta.authentication_data);
        break;
      case tag(8, bytes_type):
        good = read_string(in, meta.stream_settings);
        break;
      case tag(9, bytes_type):
        good = in.read_bytes(part) && decode_user_field(part, meta.user_fields);
        break;
      case tag(10, varint):
        good = read_number(in, meta.content_type);
        break;
      case tag(11, varint):
        good = read_number(in, meta.checksum_type);
        break;
      case tag(12, bytes_type):
        good = read_string(in, meta.checksum_value);
        break;
      case tag(13, varint):
        good = read_number(in, meta.checksum_with_attachment);
        break;
      case tag(10000, varint):
        good = read_number(in, meta.features);
        break;
      case tag(10001, varint):
        good = read_number(in, meta.cancel_cause);
        break;
      default:
        good = skip_field(in, read, max_depth);
    }
  }
  if (!good || (meta.has_request && !(seen.service && seen.method))) return false;
  drop_repeated_keys(meta.user_fields);
  return true;
}

std::size_t meta_size(const rpc_meta& m) noexcept {
  std::size_t size = field_size<3>(m.compress_type) + field_size<4>(m.correlation_id) +
                     field_size<5>(m.attachment_size) + field_size<6>(m.chunk_info) +
                     field_size<7>(m.authentication_data) + field_size<8>(m.stream_settings) +
                     field_size<10>(m.content_type) + field_size<11>(m.checksum_type) +
                     field_size<12>(m.checksum_value) + field_size<13>(m.checksum_with_attachment) +
                     field_size<10000>(m.features) + field_size<10001>(m.cancel_cause);
  if (m.has_request) size += nested_size(request_size(m.request));
  if (m.has_response) size += nested_size(response_size(m.response));
  for (const auto& field : m.user_fields) size += nested_size(user_field_size(field));
  return size;
}

char* encode_meta(const rpc_meta& m, char* at) noexcept {
  if (m.has_request) at = put_request(at, m.request);
  if (m.has_response) at = put_response(at, m.response);
  at = put<3>(at, m.compress_type);
  at = put<4>(at, m.correlation_id);
  at = put<5>(at, m.attachment_size);
  at = put<6>(at, m.chunk_info);
  at = put<7>(at, m.authentication_data);
  at = put<8>(at, m.stream_settings);
  for (const auto& field : m.user_fields) at = put_user_field(at, field);
  at = put<10>(at, m.content_type);
  at = put<11>(at, m.checksum_type);
  at = put<12>(at, m.checksum_value);
  at = put<13>(at, m.checksum_with_attachment);
  at = put<10000>(at, m.features);
  return put<10001>(at, m.cancel_cause);
}

}  // namespace braid::wire
