#pragma once

#include <braid/runtime.hpp>

#include "core/compressor_set.hpp"
#include "core/environment.hpp"
#include "core/loop.hpp"

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

namespace braid::core {

/// What a runtime is made of. Channels and handles share it, so that they may outlive the runtime; the loops'
/// threads do not.
class runtime_core : public std::enable_shared_from_this<runtime_core> {
 public:
  /// \param lent  the program's own context, to be the only loop; null: loops with threads.
  explicit runtime_core(runtime_options options, boost::asio::io_context* lent = nullptr);
  ~runtime_core();

  const runtime_options& options() const noexcept { return options_; }
  const environment& outside() const noexcept { return environment_; }
  const logger& log() const noexcept { return log_; }
  std::uint64_t seed() const noexcept { return seed_; }
  /// Those that the program added.
  const compressor_set& compressors() const noexcept { return compressors_; }

  std::size_t loop_count() const noexcept { return loops_.size(); }
  loop& at(std::size_t index) noexcept { return *loops_[index]; }

  /// The current loop where it is one of ours, else null.
  loop* current() noexcept;
  /// Whether the only loop is a lent io_context.
  bool is_lent() const noexcept { return lent_; }
  /// Whether waiting on this thread would keep one of our loops from running.
  bool runs_here() noexcept { return current() || (lent_ && loops_.front()->runs_here()); }
  /// The loop for a call that starts on this thread.
  loop& home() noexcept;

  /// A loop has given out a stack without a guard page; told once.
  void warn_of_unguarded_stacks() noexcept;

  void begin_stop() noexcept;
  /// Whether begin_stop() was called; on any thread.
  bool stop_begun() const noexcept { return stop_begun_.load(std::memory_order_relaxed); }
  /// The same as begin_stop() where the loop's end comes from the context.
  void note_stop() noexcept { stop_begun_.store(true, std::memory_order_relaxed); }
  /// Waits until nothing is left and joins the threads. A lent loop is not waited for.
  void finish() noexcept;

 private:
  using question = bool (loop::*)() noexcept;

  void run_loops();
  void close_loops() noexcept;
  void close_driven_loops() noexcept;
  bool wait_for(loop& stopping, question wanted) noexcept;
  bool ask(loop& stopping, question wanted) noexcept;
  bool report_is_due() noexcept;
  void name_live(loop& stopping) noexcept;

  runtime_options options_;
  environment environment_;
  logger log_;
  std::uint64_t seed_;
  const compressor_set compressors_;
  const bool lent_;
  std::vector<std::unique_ptr<loop>> loops_;
  std::vector<std::thread> threads_;
  std::atomic<bool> stop_begun_{false};
  std::atomic<bool> warned_of_stacks_{false};
  clock::time_point next_report_{};
};

}  // namespace braid::core
