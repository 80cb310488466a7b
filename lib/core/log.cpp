#include <braid/log.hpp>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace braid {
namespace {

// A line of at most the size that a pipe takes in one piece. Needs no allocation: memory may be what ran out.
class line {
 public:
  void add(std::string_view text) noexcept {
    const auto n = std::min(text.size(), room());
    std::memcpy(buffer_.data() + size_, text.data(), n);
    size_ += n;
  }

  // Adds text with control characters (and quotes, if asked to) escaped.
  void add_escaped(std::string_view text, bool quotes) noexcept {
    for (const char c : text) {
      if (room() == 0) return;
      const auto byte = static_cast<unsigned char>(c);
      if (c == '\n') {
        add("\\n");
      } else if (byte < 0x20 || byte == 0x7f) {
        constexpr std::string_view hex = "0123456789abcdef";
        const char escape[] = {'\\', 'x', hex[byte >> 4U], hex[byte & 15U]};
        add({escape, sizeof(escape)});
      } else {
        if (quotes && (c == '"' || c == '\\')) add("\\");
        add({&c, 1});
      }
    }
  }

  void write() noexcept {
    buffer_[size_++] = '\n';
    while (::write(STDERR_FILENO, buffer_.data(), size_) < 0 && errno == EINTR) {
    }
  }

 private:
  std::size_t room() const noexcept { return buffer_.size() - 1 - size_; }

  std::array<char, 4096> buffer_;
  std::size_t size_ = 0;
};

bool needs_quotes(std::string_view value) noexcept {
  return value.empty() || value.find_first_of(" \"=") != std::string_view::npos;
}

}  // namespace

std::string_view to_string(log_level level) noexcept {
  switch (level) {
    case log_level::debug:
      return "debug";
    case log_level::info:
      return "info";
    case log_level::warning:
      return "warning";
    case log_level::error:
      return "error";
  }
  return "?";
}

void stderr_log_sink(log_level level, std::string_view text, std::span<const log_field> fields) {
  line out;
  out.add("braid ");
  out.add(to_string(level));
  out.add(": ");
  out.add_escaped(text, false);
  for (const auto& field : fields) {
    const bool quotes = needs_quotes(field.value);
    out.add(" ");
    out.add_escaped(field.name, false);
    out.add(quotes ? "=\"" : "=");
    out.add_escaped(field.value, quotes);
    if (quotes) out.add("\"");
  }
  out.write();
}

void logger::log(log_level level, std::string_view text, std::span<const log_field> fields) const noexcept {
  if (!enabled(level)) return;
  try {
    sink_(level, text, fields);
  } catch (...) {
    // A report is never worth the work it reports on.
  }
}

}  // namespace braid
