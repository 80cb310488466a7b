#pragma once

#include "core/environment.hpp"

#include <boost/asio/execution_context.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/intrusive/list.hpp>

#include <atomic>
#include <cstddef>
#include <memory>

namespace braid::core {

class loan_service;
class loop;
class runtime_core;

/// What a loop has beside others whose io_context is lent to it by the program.
///
/// Three things differ there. Any thread may run the context, one at a time, and others come in for a moment
/// (to start or stop a server, to end the runtime): so whoever runs code of the loop holds it, and the loop
/// is current on a thread only as long. The context must run out of work when the loop has none that anybody
/// waits for. And it may end first.
class loan
    : public boost::intrusive::list_base_hook<boost::intrusive::link_mode<boost::intrusive::auto_unlink>> {
 public:
  loan(loop& of, boost::asio::io_context& lent);
  loan(const loan&) = delete;
  loan& operator=(const loan&) = delete;
  ~loan();

  // Holding the loop, by way of core::entry.

  /// Waits until this thread has the loop to itself. Nests.
  void enter() noexcept;
  /// The same, but false where a thread that runs the context holds the loop, perhaps for long.
  bool try_enter() noexcept;
  void leave() noexcept;
  /// Whether this thread holds the loop; from any thread.
  bool held_here() const noexcept;
  /// Whether the thread that holds the loop runs the context, so that the program's code may run on it.
  bool may_run_handlers() const noexcept { return may_run_handlers_; }
  /// Whether this thread runs the context, in a handler of whomever; from any thread.
  bool runs_here() const noexcept;

  // The context's work. Under hold.

  /// An operation that nobody waits for (the read of an idle connection, a timer) does not count.
  void background_started() noexcept { ++background_; }
  /// First thing in the handler of such an operation.
  void background_ended() noexcept { --background_; }
  /// Between these two the context does not run out of work; beside calls and coroutines, which the loop
  /// knows.
  void hold_work() noexcept { ++holds_; }
  void release_work() noexcept { --holds_; }

  // Ends.

  /// The runtime is destroyed: what is left of it lives until it has ended, or the context has.
  void runtime_gone(std::shared_ptr<runtime_core> core) noexcept;
  /// Whether the context ends or has ended, so that it must not be touched any more.
  bool context_gone() const noexcept { return gone_by_.load(std::memory_order_acquire) != nullptr; }
  /// The same on the thread that ends it.
  bool context_ends_here() const noexcept;

 private:
  friend class loan_service;

  void acquire(const void* me) noexcept;
  void acquired(bool runs) noexcept;
  void settle_work() noexcept;
  void lower_work() noexcept;
  bool wants_turn() const noexcept;
  long wanted_balance() const noexcept;
  void close_when_quiescent() noexcept;
  void finish() noexcept;
  void report_two_threads() noexcept;
  void end_with_context() noexcept;
  void context_ended() noexcept;

  loop& loop_;
  boost::asio::io_context& context_;
  loan_service* service_;  // the context's; not to be used once that is gone

  std::atomic<const void*> holder_{nullptr};  // the thread
  std::atomic<bool> may_run_handlers_{false};
  int depth_ = 0;
  std::atomic<clock::rep> next_report_{0};

  long background_ = 0;
  long holds_ = 0;
  long balance_ = 0;  // what was added to the context's own count of work
  bool lowering_posted_ = false;

  std::atomic<const void*> gone_by_{nullptr};
  std::shared_ptr<runtime_core> keep_;
  bool closing_ = false;
};

}  // namespace braid::core
