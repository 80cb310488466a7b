#pragma once

#include "wire/frame.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sent_frames {

/// What a client's frame is, without what differs from call to call.
struct sent_frame {
  bool request = false;
  std::int64_t id = 0;
  std::optional<std::uint64_t> features;
  std::optional<std::uint32_t> cause;
  std::optional<std::string> credential;
};

inline std::vector<sent_frame> frames_in(std::string_view stream) {
  std::vector<sent_frame> all;
  braid::wire::frame_reader reader;
  braid::wire::inbound_frame got;
  while (!stream.empty()) {
    const auto room = reader.prepare();
    const std::size_t n = std::min(room.size(), stream.size());
    std::copy_n(stream.data(), n, room.data());
    reader.commit(n);
    stream.remove_prefix(n);
    while (reader.next(got) == braid::wire::frame_reader::status::frame) {
      all.push_back({.request = got.meta.has_request,
                     .id = got.meta.correlation_id.value_or(-1),
                     .features = got.meta.features,
                     .cause = got.meta.cancel_cause,
                     .credential = std::optional<std::string>(got.meta.authentication_data)});
    }
  }
  return all;
}
inline std::vector<sent_frame> cancels_in(std::string_view stream) {
  auto all = frames_in(stream);
  std::erase_if(all, [](const sent_frame& each) { return each.request; });
  return all;
}

}  // namespace sent_frames
