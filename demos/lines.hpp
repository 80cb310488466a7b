#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

/// \file
/// What the servers of parallel_echo do to a text, and how a text is divided among them.

namespace demo {

/// Bytes that a text may have. Its answer is longer: up to 12 bytes for an empty line.
constexpr std::size_t largest_text = std::size_t{64} << 20;
/// The limit of a message for client and servers; what largest_text may come to.
constexpr std::size_t largest_message = std::size_t{1} << 30;

/// Some whole lines of a text.
struct block {
  std::string_view text;
  std::uint64_t first_line = 1;  ///< The number of its first line, from 1.
};

/// How many lines a text has; a last one without a newline counts.
std::uint64_t count_lines(std::string_view text);

/// The part of `text` that server `index` of `count` gets: whole lines, about the same number for each. Empty
/// when there are fewer lines than servers. The blocks of all servers, joined, are the text.
block block_of(std::string_view text, std::size_t index, std::size_t count);

/// Each line in capitals (ASCII letters only; other bytes stay as they are) behind its number. A last line
/// without a newline stays without.
std::string number_lines(block lines);

}  // namespace demo
