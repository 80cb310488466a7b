#pragma once

/// \file
/// What travels with a request beside its message.

#include <braid/buffer.hpp>
#include <braid/config.hpp>
#include <braid/payload_format.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace braid {

/// The metadata of a request or a response. Sub calls of a combo share their parent's, copied when one is
/// changed.
///
/// Thread safety: distinct objects are safe.
struct metadata {
  /// Keys and values, in the order in which they were set.
  using fields = std::vector<std::pair<std::string, std::string>>;

  fields user_fields;                          ///< Keys are unique; see set_user_field().
  std::optional<std::int64_t> log_id;          ///< Passed on to every sub call; for logs on both sides.
  std::string request_id;                      ///< The same as a text; empty: none.
  std::optional<std::int64_t> trace_id;        ///< The trace that the call is part of.
  std::optional<std::int64_t> span_id;         ///< The call within it.
  std::optional<std::int64_t> parent_span_id;  ///< The call that made this one.
  std::optional<std::uint64_t> request_code;   ///< What consistent hashing hashes; not sent.
  /// How the message travels; see payload_format. Of what was received: how it came.
  payload_format format;
  /// Bytes that follow the message uncopied, uncompressed and uninterpreted.
  buffer attachment;

  /// Sets or replaces the field `key`.
  void set_user_field(std::string_view key, std::string_view value);
  /// The value of `key`, or nothing. Valid until the fields change.
  std::optional<std::string_view> user_field(std::string_view key) const noexcept;
};

}  // namespace braid
