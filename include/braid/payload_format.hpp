#pragma once

/// \file
/// How a message travels: as what, how compressed, and checked how.

#include <braid/compression.hpp>
#include <braid/config.hpp>

#include <cstdint>

namespace braid {

/// What the bytes of a payload are; numbers of the wire.
enum class content_type : std::uint8_t {
  protobuf = 0,
  json = 1,        ///< Protobuf's JSON mapping, with the field names of the .proto file.
  proto_json = 2,  ///< Protobuf's JSON mapping as it is, with names in lowerCamelCase.
  proto_text = 3   ///< Protobuf's text format.
};

/// What guards a payload against damage; numbers of the wire.
enum class checksum : std::uint8_t { none = 0, crc32c = 1 };

/// How a message travels. A request has its own, and a response has its own: a compressed request may well
/// be answered without compression, and is by default.
///
/// Read from a peer, JSON may use either kind of names, and fields that the message lacks are ignored.
struct payload_format {
  /// What makes the payload smaller; the attachment stays as it is.
  braid::compression compression = braid::compression::none;
  /// What its bytes are.
  content_type content = content_type::protobuf;
  braid::checksum checksum = braid::checksum::none;  ///< Over the payload as it is sent.
  /// Over the attachment too. Without a checksum nothing is checked, the attachment neither.
  bool checksum_attachment = false;

  /// Equal in all fields.
  bool operator==(const payload_format&) const = default;
  /// Whether it is protobuf's own bytes and nothing else.
  bool is_plain() const noexcept { return *this == payload_format{}; }
};

}  // namespace braid
