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
  /// How many loops, each one thread. 0: one for each processor that this process may use. On a lent
  /// io_context: 0 or 1.
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

/// A pool of loops, or one loop on an `io_context` of the program's own.
///
/// What it does: each loop is one `io_context` run by one thread of its own, with its own timers, coroutine
/// stacks and connections. A call lives on one loop from start to end.
///
/// Shutdown: the destructor cancels what is still running (calls complete with 125), waits until every call
/// and coroutine has ended, and joins the threads. A coroutine that never ends holds it up; it is named in
/// the log each second. Destroying a runtime on one of its own loops aborts the process with a message.
///
/// Errors: what a handler of the program throws on a loop is logged, and the loop goes on.
///
/// Object lifetimes: channels and servers may outlive their runtime; their calls then end with 125.
///
/// Thread safety: distinct and shared objects are safe, except that destruction must not race with other use.
///
/// A lent `io_context`
/// -------------------
///
/// `runtime rt{ioc}` makes no thread: its one loop runs in `ioc.run()`, `run_for()`, `poll()` and so on,
/// beside the program's own handlers. Several runtimes may be lent one context; each has a loop of its own
/// there.
///
/// Threads: one at a time runs the context; another may after it. Two at once are reported in the log at
/// level error, and made to wait for one another while they run code of the runtime. A context that was made
/// with `BOOST_ASIO_CONCURRENCY_HINT_UNSAFE` is for a program in which one thread does everything. Running
/// the context inside a coroutine of the runtime or a completion handler that it calls throws
/// std::logic_error from there, once something of the runtime would run; so does nothing else. It must be run
/// on a thread's own stack. Where one thread runs it after another, a suspended coroutine goes on on another
/// thread than before: a function of it that uses `errno` or thread_local variables both before and after a
/// suspension may find those of the first thread, since compilers keep their addresses.
///
/// Work: `run()` does not return while calls or coroutines are running or a server is listening. Connections
/// that are idle and timers do not count.
///
/// Waiting: a synchronous call, or server::stop(), on the thread that runs the context, outside of a
/// coroutine, is refused (1, EDEADLK). On another thread a synchronous call ends at its own deadline,
/// although nobody runs the context.
///
/// Exceptions: what a handler of the program throws, also a completion handler, leaves `run()`; the runtime
/// remains usable when the context is run again.
///
/// Shutdown: the destructor waits for nothing and may be called anywhere, in a handler too. It closes
/// connections and listeners and cancels calls and coroutines; these end, and calls complete with 125, as the
/// context is run further, or when it is destroyed. What they refer to must live as long. To join them first:
/// stop(), then `run()`. A context that is destroyed before them, with or without the runtime, ends them in
/// its destructor: completion handlers of calls that have no executor of their own are called there, with
/// 125; coroutines are resumed with `operation_aborted` and must not wait for anything more: each further
/// operation fails. One that waits for something outside of the context then is named in the log and its
/// stack is left.
class runtime {
 public:
  /// The executor of a loop.
  using executor_type = boost::asio::io_context::executor_type;

  /// One with all defaults.
  runtime() : runtime(runtime_options{}) {}
  /// Starts the loops' threads. Throws a system_error where an option or the system does not allow it.
  explicit runtime(runtime_options options);
  /// Runs on a context of the program's own, which it runs itself. Throws a system_error (22) where the
  /// options do not suit: more than one loop, the environment of a simulation.
  explicit runtime(boost::asio::io_context& lent, runtime_options options = {});
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
