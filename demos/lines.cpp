#include "lines.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace demo {
namespace {

char capital(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; }

// The size of the first line of `text`, its newline included.
std::size_t line_size(std::string_view text) {
  const auto newline = text.find('\n');
  return newline == std::string_view::npos ? text.size() : newline + 1;
}

// How many bytes the first `lines` lines of `text` have.
std::size_t size_of_lines(std::string_view text, std::uint64_t lines) {
  std::size_t size = 0;
  for (; lines > 0; --lines) size += line_size(text.substr(size));
  return size;
}

}  // namespace

std::uint64_t count_lines(std::string_view text) {
  const auto newlines = static_cast<std::uint64_t>(std::count(text.begin(), text.end(), '\n'));
  return newlines + (text.empty() || text.ends_with('\n') ? 0 : 1);
}

block block_of(std::string_view text, std::size_t index, std::size_t count) {
  const auto lines = count_lines(text);
  const auto first = lines * index / count;
  const auto end = lines * (index + 1) / count;
  const auto rest = text.substr(size_of_lines(text, first));
  return {.text = rest.substr(0, size_of_lines(rest, end - first)), .first_line = first + 1};
}

std::string number_lines(block lines) {
  std::string numbered;
  numbered.reserve(lines.text.size() + 8 * count_lines(lines.text));
  for (auto number = lines.first_line; !lines.text.empty(); ++number) {
    const auto line = lines.text.substr(0, line_size(lines.text));
    fmt::format_to(std::back_inserter(numbered), "{}: ", number);
    std::transform(line.begin(), line.end(), std::back_inserter(numbered), capital);
    lines.text.remove_prefix(line.size());
  }
  return numbered;
}

}  // namespace demo
