#pragma once

#include <braid/buffer.hpp>
#include <braid/payload_format.hpp>

#include "core/compressor_set.hpp"
#include "wire/crc32c.hpp"
#include "wire/frame.hpp"

#include <google/protobuf/message.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace braid::wire {

/// A message as it travels.
struct payload {
  buffer bytes;
  std::uint32_t crc = 0;  ///< Of `bytes`, where the format asks for a checksum.
};

/// The bytes of `message`, of which there are `size`, as its ByteSizeLong() has just said.
buffer serialise(const google::protobuf::Message& message, std::size_t size);

/// Makes `message` travel in `format`. False: it cannot; `why` says what is wrong with it, whose name is
/// `what` ("request").
bool encode_payload(const google::protobuf::Message& message, const payload_format& format,
                    const core::compressor_set& added, std::string_view what, payload& out, std::string& why);

/// What reading a payload came to.
struct decoded {
  std::string wrong{};   ///< What is wrong with it; empty: nothing.
  std::size_t size = 0;  ///< Bytes that were parsed: of a compressed payload, what came out of it.
};

/// Reads the payload of `frame`, whose name is `what`, in whatever format its meta says, into `message`.
/// Nothing larger than `max_size` bytes comes out of a compressed one.
decoded decode_payload(const inbound_frame& frame, const core::compressor_set& added, std::size_t max_size,
                       std::string_view what, google::protobuf::Message& message);

/// The format that a decoded frame came in.
payload_format format_of(const rpc_meta& meta) noexcept;

/// Notes a format other than the plain one in `meta`, with the checksum over `made` and what follows it.
/// `sum` holds the checksum's bytes for as long as `meta` points to them.
void note_format(const payload_format& format, const payload& made, const buffer& attachment, rpc_meta& meta,
                 crc32c_bytes& sum) noexcept;

}  // namespace braid::wire
