#pragma once

/// \file
/// The runtime: a pool of loops on which everything of braid runs.

#include <braid/compression.hpp>
#include <braid/config.hpp>
#include <braid/log.hpp>

#include <boost/asio/io_context.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

namespace braid {

namespace core {
class runtime_core;
struct environment;
}  // namespace core

/// What a runtime is made of. All fields have defaults; use designated initialisers.
struct runtime_options {
  /// How many loops, each one thread. 0: one for each processor that this process may use.
  std::size_t loops = 0;

  /// Usable bytes of a coroutine's stack, rounded up to whole pages; at least 16 KiB.
  std::size_t stack_size = 64 * 1024;

  /// How many coroutines may live at once on each loop; one more fails with 12. 0: no limit.
  std::size_t max_coroutines = 0;

  /// Where log lines go. Empty: warnings and errors to standard error.
  log_sink log{};

  /// The least severe level that reaches `log`.
  log_level log_at_least = log_level::warning;

  /// Seeds every random choice of this runtime. 0: a seed from the system.
  std::uint64_t seed = 0;

  /// Compressors beside those that are built in; see compressor. A name or a number that is taken makes the
  /// constructor throw a system_error that says which.
  std::vector<std::shared_ptr<const compressor>> compressors{};

  /// The outside world: time, network, name resolution. Empty: the real one. See braid::testing::simulation.
  std::shared_ptr<core::environment> environment{};
};

/// A pool of loops.
///
/// What it does: each loop is one `io_context` run by one thread of its own, with its own timers, coroutine
/// stacks and connections. A call lives on one loop from start to end.
///
/// Shutdown: the destructor cancels what is still running (calls complete with 125), waits until every call
/// and coroutine has ended, and joins the threads. A coroutine that never ends holds it up; it is named in
/// the log each second. Destroying a runtime on one of its own loops aborts the process with a message.
///
/// Object lifetimes: channels and servers may outlive their runtime; their calls then end with 125.
///
/// Thread safety: distinct and shared objects are safe, except that destruction must not race with other use.
class runtime {
 public:
  using executor_type = boost::asio::io_context::executor_type;

  runtime() : runtime(runtime_options{}) {}
  explicit runtime(runtime_options options);
  runtime(const runtime&) = delete;
  runtime& operator=(const runtime&) = delete;
  ~runtime();

  /// How many loops it has; at least 1.
  std::size_t loop_count() const noexcept;

  /// The executor of loop `index`, which must be less than loop_count().
  executor_type loop_executor(std::size_t index) const noexcept;

  /// The executor of the loop that a call started on this thread would run on: the current loop where the
  /// thread is one of this runtime's, else one chosen by the thread's id and always the same for that thread.
  executor_type get_executor() const noexcept;

  /// The compression called `name`, built in ("none", "snappy", "gzip", "zlib") or one of
  /// runtime_options::compressors: for names that come from a configuration. Nothing: there is none.
  std::optional<compression> find_compression(std::string_view name) const noexcept;

  /// Cancels every call and coroutine, and refuses new ones with 125. Returns at once; the destructor waits.
  void stop() noexcept;

  /// For the library's own layers.
  const std::shared_ptr<core::runtime_core>& core() const noexcept { return core_; }

 private:
  std::shared_ptr<core::runtime_core> core_;
};

}  // namespace braid
