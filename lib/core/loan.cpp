#include "core/loan.hpp"

#include "core/loop.hpp"
#include "core/runtime_core.hpp"

#include <boost/asio/post.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace braid::core {
namespace {

constexpr auto report_interval = std::chrono::seconds(1);

// A name of the calling thread that is cheap to get.
const void* this_thread() noexcept {
  static constinit thread_local char name = 0;
  return &name;
}

}  // namespace

/// Tells the loans of a context that it ends.
class loan_service final : public boost::asio::execution_context::service {
 public:
  static boost::asio::execution_context::id id;

  explicit loan_service(boost::asio::execution_context& owner)
      : boost::asio::execution_context::service(owner) {}

  ~loan_service() override {
    while (loan* const next = first()) next->context_ended();
  }

  void add(loan& made) {
    const std::lock_guard lock(mutex_);
    loans_.push_back(made);
  }
  void remove(loan& closed) noexcept {
    const std::lock_guard lock(mutex_);
    closed.unlink();
  }

 private:
  // Handlers that later services destroy resume coroutines; only when all have shut down is nothing left of
  // ours that could still run.
  void shutdown() override {
    std::vector<loan*> all;
    {
      const std::lock_guard lock(mutex_);
      for (loan& each : loans_) all.push_back(&each);
    }
    for (loan* each : all) each->end_with_context();
  }
  loan* first() noexcept {
    const std::lock_guard lock(mutex_);
    if (loans_.empty()) return nullptr;
    loan& next = loans_.front();
    loans_.pop_front();
    return &next;
  }

  std::mutex mutex_;
  boost::intrusive::list<loan, boost::intrusive::constant_time_size<false>> loans_;
};

boost::asio::execution_context::id loan_service::id;

loan::loan(loop& of, boost::asio::io_context& lent)
    : loop_(of), context_(lent), service_(&boost::asio::use_service<loan_service>(lent)) {
  service_->add(*this);
}

loan::~loan() {
  if (is_linked()) service_->remove(*this);  // its runtime's construction failed
}

bool loan::held_here() const noexcept { return holder_.load(std::memory_order_relaxed) == this_thread(); }

bool loan::context_ends_here() const noexcept {
  return gone_by_.load(std::memory_order_acquire) == this_thread();
}

bool loan::runs_here() const noexcept {
  return !context_gone() && context_.get_executor().running_in_this_thread();
}

void loan::enter() noexcept {
  const void* const me = this_thread();
  if (holder_.load(std::memory_order_relaxed) != me) acquire(me);
  ++depth_;
}

void loan::acquire(const void* me) noexcept {
  const bool runs = runs_here();
  for (const void* holder = nullptr;
       !holder_.compare_exchange_weak(holder, me, std::memory_order_acquire, std::memory_order_relaxed);
       holder = nullptr) {
    if (!holder) continue;
    if (runs && may_run_handlers_.load(std::memory_order_relaxed)) report_two_threads();
    holder_.wait(holder, std::memory_order_relaxed);
  }
  acquired(runs);
}

void loan::acquired(bool runs) noexcept {
  may_run_handlers_.store(runs || context_ends_here(), std::memory_order_relaxed);
  loop_.use_stack_of_thread();
}

// Others than those who run the context hold it for a moment only.
bool loan::try_enter() noexcept {
  const void* const me = this_thread();
  if (holder_.load(std::memory_order_relaxed) != me) {
    const void* holder = nullptr;
    while (!holder_.compare_exchange_weak(holder, me, std::memory_order_acquire)) {
      if (holder && may_run_handlers_.load(std::memory_order_relaxed)) return false;
      if (holder) std::this_thread::yield();
      holder = nullptr;
    }
    acquired(runs_here());
  }
  ++depth_;
  return true;
}

void loan::leave() noexcept {
  if (--depth_ != 0) return;
  if (!context_gone()) {
    if (may_run_handlers()) {
      settle_work();
      close_when_quiescent();
    } else if (wants_turn()) {
      loop_.post_turn();
    }
  }
  may_run_handlers_.store(false, std::memory_order_relaxed);
  holder_.store(nullptr, std::memory_order_release);
  holder_.notify_one();
}

// What follows is only right in a handler, which itself counts as work: else the context would be stopped
// when the count gets to zero, before it was run.
bool loan::wants_turn() const noexcept { return keep_ || balance_ != wanted_balance(); }

long loan::wanted_balance() const noexcept {
  return (loop_.anything_live() || holds_ != 0 ? 1 : 0) - background_;
}

// Raised at once, and lowered in a handler of its own: what a handler posts, or starts and finds complete,
// may be counted by its thread alone until it ends, so that the context's count could get to zero before
// that.
void loan::settle_work() noexcept {
  const long wanted = wanted_balance();
  for (; balance_ < wanted; ++balance_) context_.get_executor().on_work_started();
  if (balance_ == wanted || closing_ || std::exchange(lowering_posted_, true)) return;
  boost::asio::post(context_, [this] {
    if (held_here()) {  // the program runs the context inside the handler that will settle
      lowering_posted_ = false;
      return;
    }
    const entry here(loop_);
    lowering_posted_ = false;
    lower_work();
  });
}

void loan::lower_work() noexcept {
  for (const long wanted = wanted_balance(); balance_ > wanted; --balance_)
    context_.get_executor().on_work_finished();
}

void loan::report_two_threads() noexcept {
  const clock::rep now = clock::now().time_since_epoch().count();
  clock::rep due = next_report_.load(std::memory_order_relaxed);
  if (now < due) return;
  const auto next = now + clock::duration(report_interval).count();
  if (!next_report_.compare_exchange_strong(due, next, std::memory_order_relaxed)) return;
  loop_.log().log(log_level::error,
                  "two threads run the io_context that was lent to a runtime at the same time; "
                  "one may, and another only after it",
                  {});
}

void loan::runtime_gone(std::shared_ptr<runtime_core> core) noexcept {
  if (context_gone()) return;
  const entry here(loop_);
  {
    turn in_turn(loop_);
    loop_.begin_shutdown();
  }
  keep_ = std::move(core);
}

// In a handler of the loop. Its sockets and timers are closed, so that their handlers are queued: when those
// have run, nothing refers to the loop any more.
void loan::close_when_quiescent() noexcept {
  if (!keep_ || closing_ || !loop_.close_if_quiescent()) return;
  closing_ = true;
  loop_.cancel_wake_up();
  boost::asio::post(context_, [this] { boost::asio::post(context_, [this] { finish(); }); });
}

void loan::finish() noexcept {
  {
    const entry here(loop_);
    loop_.drop_wake_timer();
    lower_work();
    service_->remove(*this);
    gone_by_.store(&loan_service::id,
                   std::memory_order_release);  // no thread: the context is not ours any more
  }
  const auto keep = std::move(keep_);  // perhaps all that keeps this
}

/// The context shuts down, on this thread, and runs no more: calls end with 125, and coroutines go on with
/// operation_aborted as far as they wait for something of ours; the others when the context drops their
/// handlers.
void loan::end_with_context() noexcept {
  gone_by_.store(this_thread(), std::memory_order_release);
  loop_.end_with_context();
}

/// All its services have shut down.
void loan::context_ended() noexcept {
  if (loop_.anything_live()) {
    std::vector<std::string> names;
    loop_.describe_live(names);
    loop_.log().log(
        log_level::error,
        fmt::format("an io_context was destroyed while these of its runtime wait for something that is "
                    "not the context's, or ignore their end; their stacks are left: {}",
                    fmt::join(names, ", ")),
        {});
    // What they wait for may still write to them.
    static auto& left = *new std::vector<std::shared_ptr<runtime_core>>;
    static std::mutex mutex;
    const std::lock_guard lock(mutex);
    left.push_back(loop_.owner().shared_from_this());
  }
  const auto keep = std::move(keep_);  // perhaps all that keeps this
}

}  // namespace braid::core
