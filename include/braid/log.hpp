#pragma once

/// \file
/// The one hook through which the library reports what no error code can tell.

#include <braid/config.hpp>

#include <functional>
#include <initializer_list>
#include <span>
#include <string_view>
#include <utility>

namespace braid {

/// How much a report matters.
enum class log_level {
  /// For whoever debugs the library or its use.
  debug,
  /// Something normal and rare: a server started, a list of servers changed.
  info,
  /// Something went wrong and was dealt with: a server became unusable, a peer broke the protocol.
  warning,
  /// Something went wrong and needs somebody to act.
  error,
};

/// The name of a level: "debug", "info", "warning" or "error".
std::string_view to_string(log_level level) noexcept;

/// A value that belongs to a report. Both views are valid only during the call of the sink.
struct log_field {
  /// What it is.
  std::string_view name;
  /// As it is to be shown.
  std::string_view value;
};

/// Where reports go. Text and fields are valid only during the call.
///
/// It is called on any thread of the runtime, by several at once, so it must be thread-safe; it must return
/// soon, and must not suspend a coroutine. What it throws is ignored.
using log_sink = std::function<void(log_level, std::string_view text, std::span<const log_field>)>;

/// The default sink: one line "braid <level>: <text> name=value …" in one write to standard error.
///
/// Control characters are escaped, a value that is empty or has a space, a quote or "=" in it is quoted, and
/// a line ends at 4096 bytes at the latest, so that lines of several processes do not mix in a pipe. No time
/// stamp is added.
void stderr_log_sink(log_level level, std::string_view text, std::span<const log_field> fields);

/// A sink and the least level it is to be called for.
///
/// Thread safety: distinct objects are independent; const members may be called from several threads.
class logger {
 public:
  /// Warnings and worse to standard error.
  logger() : logger(stderr_log_sink) {}

  /// \param sink     where reports go; an empty function turns logging off.
  /// \param minimum  reports of a lower level are dropped; default: warning.
  explicit logger(log_sink sink, log_level minimum = log_level::warning)
      : sink_(std::move(sink)), minimum_(minimum) {}

  /// Whether a report of this level would reach the sink: ask before building an expensive text.
  bool enabled(log_level level) const noexcept { return level >= minimum_ && sink_ != nullptr; }

  /// Hands a report to the sink, on this thread. Never throws: a report that fails is lost.
  void log(log_level level, std::string_view text, std::span<const log_field> fields = {}) const noexcept;

  /// The same with the fields written in place: `log(log_level::info, "listening", {{"on", address}})`.
  void log(log_level level, std::string_view text, std::initializer_list<log_field> fields) const noexcept {
    log(level, text, std::span<const log_field>{fields.begin(), fields.size()});
  }

 private:
  log_sink sink_;
  log_level minimum_;
};

}  // namespace braid
