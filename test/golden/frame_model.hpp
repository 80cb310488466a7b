#pragma once

#include "golden/oracle.hpp"
#include "wire/frame.hpp"

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace golden {

/// What a reader has to say about a stream, found with protobuf's parser and the rules of the header alone.
struct frame_model {
  struct event {
    braid::wire::frame_reader::status status{};
    braid::wire::frame_error error{};
    oracle_meta meta{};
    std::string_view payload{};
    std::string_view attachment{};
    bool bad_attachment_size = false;
  };
  std::vector<event> events;
  bool mid_frame = false;  ///< The stream ends inside a frame.

  frame_model(std::string_view stream, std::size_t max_body, std::size_t max_meta);
};

/// Feeds `stream` to a reader in reads of up to `read_size` bytes and compares it with the model, event by
/// event.
bool reads_like_model(const frame_model& model, std::string_view stream, std::size_t read_size,
                      std::size_t max_body = braid::wire::default_max_body_size,
                      std::size_t max_meta = braid::wire::default_max_meta_size);

/// A whole frame with the sizes of its parts in the header.
std::string make_frame(std::string_view meta, std::string_view rest);

/// A header with any numbers.
std::string make_header(std::uint32_t body_size, std::uint32_t meta_size);

}  // namespace golden
