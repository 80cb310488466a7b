#pragma once

#include "baidu_std_meta.pb.h"
#include "wire/meta.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>

namespace golden {

/// The meta as protobuf holds it.
using oracle_meta = braid::wire::oracle::RpcMeta;

/// True if a field of ours and the same field of protobuf's are both absent or equal.
template <class T, class U>
bool same_field(const std::optional<T>& ours, bool present, const U& theirs) {
  return ours.has_value() == present && (!present || *ours == theirs);
}

/// True if our decoded request holds what protobuf's does.
inline bool same(const braid::wire::request_meta& m, const braid::wire::oracle::RpcRequestMeta& o) {
  return m.service_name == o.service_name() && m.method_name == o.method_name() &&
         same_field(m.log_id, o.has_log_id(), o.log_id()) &&
         same_field(m.trace_id, o.has_trace_id(), o.trace_id()) &&
         same_field(m.span_id, o.has_span_id(), o.span_id()) &&
         same_field(m.parent_span_id, o.has_parent_span_id(), o.parent_span_id()) &&
         same_field(m.request_id, o.has_request_id(), o.request_id()) &&
         same_field(m.timeout_ms, o.has_timeout_ms(), o.timeout_ms());
}

/// True if our user fields are those of protobuf's map, each key once.
inline bool same_user_fields(const braid::wire::rpc_meta& m, const oracle_meta& o) {
  return m.user_fields.size() == o.user_fields().size() &&
         std::all_of(m.user_fields.begin(), m.user_fields.end(), [&](const braid::wire::user_field& f) {
           const auto found = o.user_fields().find(std::string{f.key});
           return found != o.user_fields().end() && found->second == f.value;
         });
}

/// True if our decoded meta holds what protobuf's does, in presence and value of every field.
inline bool same(const braid::wire::rpc_meta& m, const oracle_meta& o) {
  return m.has_request == o.has_request() && m.has_response == o.has_response() &&
         (!m.has_request || same(m.request, o.request())) &&
         same_field(m.response.error_code, o.response().has_error_code(), o.response().error_code()) &&
         same_field(m.response.error_text, o.response().has_error_text(), o.response().error_text()) &&
         same_field(m.compress_type, o.has_compress_type(), o.compress_type()) &&
         same_field(m.correlation_id, o.has_correlation_id(), o.correlation_id()) &&
         same_field(m.attachment_size, o.has_attachment_size(), o.attachment_size()) &&
         same_field(m.chunk_info, o.has_chunk_info(), o.chunk_info()) &&
         same_field(m.authentication_data, o.has_authentication_data(), o.authentication_data()) &&
         same_field(m.stream_settings, o.has_stream_settings(), o.stream_settings()) &&
         same_user_fields(m, o) && same_field(m.content_type, o.has_content_type(), o.content_type()) &&
         same_field(m.checksum_type, o.has_checksum_type(), o.checksum_type()) &&
         same_field(m.checksum_value, o.has_checksum_value(), o.checksum_value()) &&
         same_field(m.checksum_with_attachment, o.has_checksum_with_attachment(),
                    o.checksum_with_attachment()) &&
         same_field(m.features, o.has_features(), o.features()) &&
         same_field(m.cancel_cause, o.has_cancel_cause(), o.cancel_cause());
}

}  // namespace golden
