#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace golden {

/// One line of baidu_std_frames.txt: a chunk of the recording between a real bRPC client and server.
struct chunk {
  std::string name;
  bool to_server = false;
  std::string bytes;
};

/// The chunks of the recording in `file`, in order. Throws std::runtime_error if it cannot be read.
std::vector<chunk> load(const std::string& file);

/// The bytes of hexadecimal text.
std::string from_hex(std::string_view hex);

/// What differs between the recorded frame and ours for the same call, one text each; empty: nothing that
/// matters.
///
/// Both are taken apart by protobuf's parser and compared field by field through reflection, unknown fields,
/// payload and attachment included. Free to differ are only: correlation_id (both must have one), a value of
/// zero against an absent field, timeout_ms, the feature fields, and the error text (both or neither must
/// have one).
std::vector<std::string> differences(std::string_view recorded, std::string_view ours);

}  // namespace golden
