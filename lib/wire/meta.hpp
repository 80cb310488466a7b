#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace braid::wire {

/// RpcMeta.request. Strings are views into the bytes that were decoded, or of the caller who encodes.
struct request_meta {
  std::string_view service_name;  ///< Required; may be short (without a dot).
  std::string_view method_name;   ///< Required.
  std::optional<std::int64_t> log_id;
  std::optional<std::int64_t> trace_id;
  std::optional<std::int64_t> span_id;
  std::optional<std::int64_t> parent_span_id;
  std::optional<std::string_view> request_id;
  std::optional<std::int32_t> timeout_ms;  ///< Rest of the caller's deadline in milliseconds.
};

/// RpcMeta.response.
struct response_meta {
  std::optional<std::int32_t> error_code;  ///< Absent or 0: success.
  std::optional<std::string_view> error_text;
};

/// One entry of RpcMeta.user_fields.
struct user_field {
  std::string_view key;
  std::string_view value;
  bool operator==(const user_field&) const = default;
};

/// RpcMeta of baidu_std (baidu_std_meta.proto), complete. An absent optional is not encoded.
///
/// Meant to be reused: clear() and decode_meta() keep the memory of user_fields. Strings are views: of a
/// decoded meta into the decoded bytes, of one to encode into whatever the caller pointed them to.
struct rpc_meta {
  bool has_request = false;   ///< Whether `request` is present.
  bool has_response = false;  ///< Whether `response` is present.
  request_meta request;
  response_meta response;
  std::optional<std::int32_t> compress_type;
  std::optional<std::int64_t> correlation_id;
  std::optional<std::int32_t> attachment_size;  ///< Bytes; as sent, so it may be negative or too large.
  std::optional<std::string_view> chunk_info;   ///< Opaque.
  std::optional<std::string_view> authentication_data;
  std::optional<std::string_view> stream_settings;  ///< Opaque.
  std::vector<user_field> user_fields;  ///< In no particular order; decoded ones have distinct keys.
  std::optional<std::int32_t> content_type;
  std::optional<std::int32_t> checksum_type;
  std::optional<std::string_view> checksum_value;
  std::optional<bool> checksum_with_attachment;
  std::optional<std::uint64_t> features;  ///< Field 10000: bits of the features that the sender announces.
  std::optional<std::uint32_t> cancel_cause;  ///< Field 10001: in a cancel frame, why.

  /// Back to an empty meta. Keeps a moderate capacity of user_fields.
  void clear() noexcept;
};

/// Decodes `bytes` into `meta`, whose old content is dropped; its views point into `bytes`.
///
/// Accepts and rejects what protobuf's parser does for baidu_std_meta.proto: the last value of a repeated
/// scalar wins, embedded messages merge, the last user field of a key wins, unknown fields and known ones of
/// a wrong wire type are skipped, and a request without its two names is undecodable. \return false if
/// undecodable; `meta` is then unspecified.
bool decode_meta(std::string_view bytes, rpc_meta& meta);

/// Number of bytes that encode_meta() writes.
std::size_t meta_size(const rpc_meta& meta) noexcept;

/// Writes `meta`, fields in order of their numbers, to `target`, which has room for meta_size() bytes.
/// \return the end of what was written.
char* encode_meta(const rpc_meta& meta, char* target) noexcept;

}  // namespace braid::wire
