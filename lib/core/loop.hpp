#pragma once

#include <braid/cancellation.hpp>
#include <braid/log.hpp>
#include <braid/runtime.hpp>

#include "core/environment.hpp"
#include "core/loan.hpp"
#include "core/stack_pool.hpp"
#include "core/timer_wheel.hpp"

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/intrusive/list.hpp>
#include <boost/intrusive/slist.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace braid::detail {
class coroutine;
}

namespace braid::core {

class runtime_core;

/// Something to run on the loop's base stack, soon: a coroutine to resume, a completion to deliver.
class ready_node : public boost::intrusive::slist_base_hook<> {
 public:
  explicit ready_node(void (*run)(ready_node&) noexcept) noexcept : run_(run) {}
  void run() noexcept { run_(*this); }

 private:
  void (*run_)(ready_node&) noexcept;
};

/// Something to do once the ready queue of a turn is empty: flush a connection, settle an overdue combo.
class turn_end_hook
    : public boost::intrusive::list_base_hook<boost::intrusive::link_mode<boost::intrusive::auto_unlink>> {
 public:
  virtual void at_turn_end() noexcept = 0;
  bool scheduled() const noexcept { return is_linked(); }
  void unschedule() noexcept { unlink(); }

 protected:
  ~turn_end_hook() = default;
};

/// An io_context that can let go of what waits in it before its own end.
class loop_context : public boost::asio::io_context {
 public:
  using boost::asio::execution_context::shutdown;
  using boost::asio::io_context::io_context;
};

/// A part of a loop that belongs to a higher layer: connections, acceptors, sessions.
class loop_service {
 public:
  virtual ~loop_service() = default;
  /// Ends what it runs. Called in a turn on the loop, once.
  virtual void shutdown() noexcept = 0;
  /// Whether everything has ended; asked again after each turn.
  virtual bool quiescent() const noexcept { return true; }
};

/// Something that runs on a loop, which the loop cancels when it stops and then waits for: a call, a
/// coroutine.
class live_node
    : public boost::intrusive::list_base_hook<boost::intrusive::link_mode<boost::intrusive::auto_unlink>> {
 public:
  virtual void cancel_for_shutdown() noexcept = 0;
  virtual std::string describe() const = 0;

 protected:
  ~live_node() = default;
};

/// One thread's event loop: an io_context, a timer wheel, a stack pool, a ready queue.
///
/// Everything is for the loop's own thread; on a loop whose context is lent (see loan), for the thread that
/// is in a turn or an entry. For any thread are now(), post(), visit(), runs_here(), context_gone(),
/// context_ends_here() and what says so.
class loop {
 public:
  /// \param lent  the program's own context, which it runs itself; null: the loop makes one.
  loop(runtime_core& owner, std::size_t index, boost::asio::io_context* lent = nullptr);
  loop(const loop&) = delete;
  loop& operator=(const loop&) = delete;
  ~loop();

  /// The loop that this thread runs, or whose code of ours it runs where the context is lent; or null.
  static loop* current() noexcept;

  boost::asio::io_context& context() noexcept { return context_; }
  boost::asio::io_context::executor_type executor() noexcept { return context_.get_executor(); }
  runtime_core& owner() noexcept { return owner_; }
  std::size_t index() const noexcept { return index_; }
  const logger& log() const noexcept;
  bool is_current() const noexcept { return current() == this; }
  /// Whether a turn runs, so that what is made ready waits for its end.
  bool in_turn() const noexcept { return turn_depth_ != 0; }
  bool is_lent() const noexcept { return loan_ != nullptr; }
  /// Whether the context is lent and this thread runs it, in whatever handler.
  bool runs_here() const noexcept { return loan_ && loan_->runs_here(); }
  /// Whether the context is lent and ends or has ended.
  bool context_gone() const noexcept { return loan_ && loan_->context_gone(); }
  /// The same on the thread that ends it.
  bool context_ends_here() const noexcept { return loan_ && loan_->context_ends_here(); }

  /// The instant `duration` from now, time_point::max() where that is too far to count.
  template <typename Rep, typename Period>
  time_point after(std::chrono::duration<Rep, Period> duration) const noexcept {
    return saturating_add(now(), duration);
  }
  time_point now() const noexcept { return time_ ? time_->now() : clock::now(); }
  std::mt19937_64& random() noexcept { return random_; }

  /// Fires `timer` at `when` or up to a tick (1 ms) later, never before it.
  void arm(timer_node& timer, time_point when);

  stack_pool& stacks() noexcept { return stacks_; }

  /// Queues for this turn; a turn is posted when none runs.
  void make_ready(ready_node& node) noexcept;
  void at_turn_end(turn_end_hook& hook) noexcept;

  /// Runs `function` in a turn of this loop, from any thread. False when the loop takes no more.
  template <typename Function>
  bool post(Function function) {
    const std::lock_guard lock(gate_);
    if (closed_) return false;
    boost::asio::post(context_, posted<Function>{this, std::move(function)});
    return true;
  }

  /// Runs `function` in a turn on this thread, on a lent loop, also one that nobody runs; it must not run
  /// code of the program. False when the loop takes no more.
  template <typename Function>
  bool visit(Function&& function);
  /// The same, but does not wait for code of the program that holds the loop: false then, too.
  template <typename Function>
  bool try_visit(Function&& function);

  /// An operation on the context that nobody waits for was started, or its handler begins: a lent context may
  /// run out of work while it is pending.
  void background_started() noexcept {
    if (loan_) loan_->background_started();
  }
  void background_ended() noexcept {
    if (loan_) loan_->background_ended();
  }
  /// Keeps a lent context from running out of work, beside calls and coroutines, which do so by themselves.
  void hold_work() noexcept {
    if (loan_) loan_->hold_work();
  }
  void release_work() noexcept {
    if (loan_) loan_->release_work();
  }

  /// The coroutine that runs now, whose stack holds the caller's stack pointer; or null.
  braid::detail::coroutine* running_coroutine() const noexcept;
  /// True when the caller is in the loop's thread on the thread's own stack.
  bool on_base_stack() const noexcept;

  /// The loop's own instance of Service, made at the first use; one made while the loop stops is shut down at
  /// once.
  template <typename Service>
  Service& service() {
    for (auto& entry : services_)
      if (entry.first == &service_tag<Service>) return static_cast<Service&>(*entry.second);
    auto made = std::make_unique<Service>(*this);
    Service& result = *made;
    services_.emplace_back(&service_tag<Service>, std::move(made));
    if (stopping_) result.shutdown();
    return result;
  }

  void add_live(live_node& node) noexcept { live_.push_back(node); }
  bool anything_live() const noexcept { return !live_.empty(); }

  bool stopping() const noexcept { return stopping_; }

  // For the runtime and for a loop_driver.
  void run_thread();
  void enter() noexcept;  ///< Makes this the thread's current loop.
  void leave() noexcept;
  /// Runs handlers; false when one has thrown, which is logged. It was the program's own: nothing of the
  /// library's is harmed.
  bool surviving(const std::function<void()>& run) noexcept;
  void begin_shutdown() noexcept;
  /// Whether nothing is left to run.
  bool quiescent() noexcept;
  /// Refuses posts from now on if nothing is left to run; else returns false.
  bool close_if_quiescent() noexcept;
  /// Lets run_thread() return once it has run what is queued. From any thread.
  void end_run() noexcept;
  /// After end_run(): runs what is still queued.
  void drain();
  /// After the end, on any thread: destroys, without calling them, the handlers that only wait in the
  /// context. They may own what keeps the runtime's core alive.
  void drop_handlers() noexcept;
  /// The runtime is destroyed; on a lent loop only, whose end the context brings or awaits.
  void release_loan(std::shared_ptr<runtime_core> core) noexcept { loan_->runtime_gone(std::move(core)); }
  /// Calls `function` on this loop once the current turn is over.
  template <typename Function>
  void after_turn(Function function) {
    boost::asio::post(context_, deferred<Function>{this, std::move(function)});
  }
  void describe_live(std::vector<std::string>& names) const;
  /// The instant at which fire_timers() has something to do; time_point::max() if never.
  time_point next_timer() noexcept;
  void fire_timers();

 private:
  friend class entry;
  friend class loan;
  friend class turn;
  friend class braid::detail::coroutine;

  static constexpr timer_tick never = ~timer_tick{0};

  template <typename Service>
  static constexpr char service_tag = 0;

  template <typename Function>
  struct posted;
  template <typename Function>
  struct deferred;
  struct posted_turn;

  timer_tick tick_at_or_after(time_point when) const noexcept;
  void schedule_wake(timer_tick tick);
  void end_turn() noexcept;
  void run_round() noexcept;
  void run_next_hook() noexcept;
  void run_hooks() noexcept;
  void post_turn() noexcept;
  bool is_closed() noexcept;
  /// Whether a handler that Asio calls by itself has been called inside a turn: the program runs the context
  /// there.
  bool is_nested() const noexcept { return loan_ ? loan_->held_here() : turn_depth_ != 0; }

  // Of a lent loop.
  loop* enter_lent() noexcept;
  void leave_lent(loop* outer) noexcept;
  void use_stack_of_thread() noexcept;
  void end_with_context() noexcept;
  void cancel_wake_up() noexcept;
  void drop_wake_timer() noexcept { wake_timer_.reset(); }

  runtime_core& owner_;
  const std::size_t index_;
  std::shared_ptr<time_source> time_;
  time_point epoch_;
  stack_pool stacks_;
  timer_wheel wheel_;
  timer_tick wake_tick_ = never;
  bool wakes_itself_;  // else somebody else calls fire_timers()
  std::mt19937_64 random_;

  using ready_queue = boost::intrusive::slist<ready_node, boost::intrusive::cache_last<true>,
                                              boost::intrusive::constant_time_size<false>>;
  ready_queue ready_;
  boost::intrusive::list<turn_end_hook, boost::intrusive::constant_time_size<false>> turn_end_hooks_;
  int turn_depth_ = 0;
  bool turn_posted_ = false;
  std::unique_ptr<loan> loan_;  // null: the context is the loop's own

  braid::detail::coroutine* running_ = nullptr;
  boost::intrusive::list<live_node, boost::intrusive::constant_time_size<false>> live_;
  std::vector<std::pair<const char*, std::unique_ptr<loop_service>>> services_;

  const char* stack_low_ = nullptr;
  const char* stack_high_ = nullptr;
  bool stopping_ = false;

  std::mutex gate_;
  bool closed_ = false;

  // Last, so that handlers destroyed with the context find all of the above.
  std::unique_ptr<loop_context> own_context_;  // null: lent
  boost::asio::io_context& context_;
  std::optional<boost::asio::executor_work_guard<boost::asio::io_context::executor_type>> work_;
  std::optional<boost::asio::steady_timer> wake_timer_;
};

/// Code of ours that touches the loop, where Asio calls it: opened first thing in each handler that is no
/// turn from its first line on. On a lent loop it has the loop to itself and makes it current; else it does
/// nothing.
class entry {
 public:
  explicit entry(loop& owner) noexcept : loop_(owner), outer_(owner.loan_ ? owner.enter_lent() : nullptr) {}
  entry(const entry&) = delete;
  entry& operator=(const entry&) = delete;
  ~entry() {
    if (loop_.loan_) loop_.leave_lent(outer_);
  }

 protected:
  loop& loop_;

 private:
  loop* outer_;
};

/// One run of braid's code on a loop: opened by each handler that Asio calls. When the outermost one ends,
/// the ready queue is run until it is empty, then the turn-end hooks; a chain of wake-ups without end goes on
/// in further turns.
class turn : private entry {
 public:
  explicit turn(loop& owner) noexcept : entry(owner) { ++loop_.turn_depth_; }
  turn(const turn&) = delete;
  turn& operator=(const turn&) = delete;
  ~turn() {
    if (loop_.turn_depth_ == 1) loop_.end_turn();
    --loop_.turn_depth_;
  }
};

/// Throws std::logic_error, out of the run() or poll() that was called where it must not be.
[[noreturn]] void refuse_nested_run();

template <typename Function>
bool loop::visit(Function&& function) {
  if (context_gone()) return false;
  turn in_turn(*this);
  if (is_closed()) return false;
  std::forward<Function>(function)();
  return true;
}

template <typename Function>
bool loop::try_visit(Function&& function) {
  if (context_gone() || !loan_->try_enter()) return false;
  const bool visited = visit(std::forward<Function>(function));
  loan_->leave();
  return visited;
}

template <typename Function>
struct loop::posted {
  loop* owner;
  Function function;
  void operator()() {
    if (owner->is_nested()) {
      boost::asio::post(owner->context_, std::move(*this));
      refuse_nested_run();
    }
    turn in_turn(*owner);
    function();
  }
};

template <typename Function>
struct loop::deferred {
  loop* owner;
  Function function;
  void operator()() {
    const entry here(*owner);
    Function run = std::move(function);  // what it holds goes before the loop is let go
    run();
  }
};

}  // namespace braid::core
