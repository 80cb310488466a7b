#include "core/loop.hpp"

#include "core/call_scope.hpp"
#include "core/coroutine.hpp"
#include "core/runtime_core.hpp"

#include <boost/asio/post.hpp>
#include <fmt/format.h>

#include <pthread.h>

#include <stdexcept>

namespace braid::core {
namespace {

constinit thread_local loop* current_loop = nullptr;

// One thread runs a loop, so what it posts to itself takes no lock. All locks stay, also those around each
// descriptor's state, which nobody contends for: other threads post, and the program may start operations of
// its own I/O objects anywhere.
constexpr int concurrency_hint = 1;

// A chain of wake-ups longer than this goes on in the next turn, so that it cannot keep the loop from its
// sockets and timers. Combos nested deeper than it is long would notice.
constexpr int most_rounds = 64;
// Where there is no next turn.
constexpr int most_rounds_at_the_end = 100'000;

constexpr std::size_t limit_of(std::size_t option) { return option != 0 ? option : SIZE_MAX; }

/// Makes the thread stand in for that of a loop which has none any more.
class stand_in {
 public:
  explicit stand_in(loop& ended) noexcept : outer_(std::exchange(current_loop, &ended)) {}
  stand_in(const stand_in&) = delete;
  stand_in& operator=(const stand_in&) = delete;
  ~stand_in() { current_loop = outer_; }

 private:
  loop* const outer_;
};

struct stack_bounds {
  const char* low = nullptr;
  const char* high = nullptr;
};

// Of the thread's own stack. Asking costs a read of /proc on the main thread.
stack_bounds find_stack() noexcept {
  pthread_attr_t attributes;
  void* low = nullptr;
  std::size_t size = 0;
  if (pthread_getattr_np(pthread_self(), &attributes) == 0) {
    pthread_attr_getstack(&attributes, &low, &size);
    pthread_attr_destroy(&attributes);
    return {static_cast<const char*>(low), static_cast<const char*>(low) + size};
  }
  // Without memory for the answer, what is near must do.
  const auto* here = static_cast<const char*>(__builtin_frame_address(0));
  constexpr std::ptrdiff_t near = std::ptrdiff_t{512} << 10;
  return {here - near, here + near};
}

stack_pool::options stack_options(runtime_core& owner) {
  const auto& most_protected = owner.outside().most_protected_stacks;
  return {
      .usable = owner.options().stack_size,
      .max_stacks = limit_of(owner.options().max_coroutines),
      .guard = most_protected ? stack_pool::guard_kind::protect : stack_pool::guard_kind::automatic,
      .most_protected = most_protected.value_or(stack_pool::default_most_protected),
      .on_unguarded = [&owner] { owner.warn_of_unguarded_stacks(); },
  };
}

}  // namespace

loop::loop(runtime_core& owner, std::size_t index, boost::asio::io_context* lent)
    : owner_(owner),
      index_(index),
      time_(owner.outside().time),
      epoch_(now()),
      stacks_(stack_options(owner)),
      wakes_itself_(owner.outside().driver == nullptr),
      random_(owner.seed() + index * 0x9e3779b97f4a7c15ULL),
      own_context_(lent ? nullptr : std::make_unique<loop_context>(concurrency_hint)),
      context_(lent ? *lent : *own_context_),
      wake_timer_(context_) {
  if (lent) {
    loan_ = std::make_unique<loan>(*this, *lent);
  } else {
    work_.emplace(boost::asio::make_work_guard(context_));
  }
}

loop::~loop() {
  const stand_in here(*this);
  while (!services_.empty()) services_.pop_back();
  if (own_context_) own_context_->shutdown();
}

void loop::drop_handlers() noexcept {
  const stand_in here(*this);
  own_context_->shutdown();
}

loop* loop::current() noexcept { return current_loop; }

const logger& loop::log() const noexcept { return owner_.log(); }

timer_tick loop::tick_at_or_after(time_point when) const noexcept {
  if (when <= epoch_) return 0;
  const auto since = when - epoch_;
  const auto whole = std::chrono::duration_cast<std::chrono::milliseconds>(since);
  return static_cast<timer_tick>(whole.count()) + (whole < since ? 1 : 0);
}

void loop::arm(timer_node& timer, time_point when) {
  if (when == time_point::max()) {
    timer.cancel();
    return;
  }
  const timer_tick tick = tick_at_or_after(when);
  wheel_.arm(timer, tick);
  if (tick < wake_tick_) schedule_wake(tick);
}

void loop::schedule_wake(timer_tick tick) {
  wake_tick_ = tick;
  if (!wakes_itself_) return;
  wake_timer_->expires_at(epoch_ + std::chrono::milliseconds(tick));
  background_started();
  wake_timer_->async_wait([this](const boost::system::error_code& ec) {
    const entry here(*this);
    background_ended();
    if (ec) return;
    turn in_turn(*this);
    fire_timers();
  });
}

void loop::fire_timers() {
  wake_tick_ = never;
  const auto since = std::chrono::duration_cast<std::chrono::milliseconds>(now() - epoch_);
  wheel_.advance(static_cast<timer_tick>(since.count()));
  if (const auto next = wheel_.next_expiry(); next && *next < wake_tick_) schedule_wake(*next);
}

time_point loop::next_timer() noexcept {
  const auto next = wheel_.next_expiry();
  return next ? epoch_ + std::chrono::milliseconds(*next) : time_point::max();
}

void loop::make_ready(ready_node& node) noexcept {
  ready_.push_back(node);
  if (turn_depth_ == 0) post_turn();
}

void loop::at_turn_end(turn_end_hook& hook) noexcept {
  if (hook.scheduled()) return;
  turn_end_hooks_.push_back(hook);
  if (turn_depth_ == 0) post_turn();
}

struct loop::posted_turn {
  loop* owner;
  void operator()() {
    if (owner->is_nested()) {
      boost::asio::post(owner->context_, *this);
      refuse_nested_run();
    }
    turn in_turn(*owner);
    owner->turn_posted_ = false;
  }
};

void loop::post_turn() noexcept {
  if (turn_posted_ || context_gone()) return;
  turn_posted_ = true;
  boost::asio::post(context_, posted_turn{this});
}

void refuse_nested_run() {
  throw std::logic_error(
      "braid: an io_context was run inside a coroutine or a completion handler of a runtime on it");
}

void loop::end_turn() noexcept {
  // A turn that Asio was made to open inside a coroutine (dispatch on its stack) must not resume others from
  // there.
  if (!on_base_stack()) {
    if (loan_ && !loan_->may_run_handlers()) run_hooks();  // which run nothing of the program's
    if (!ready_.empty() || !turn_end_hooks_.empty()) post_turn();
    return;
  }
  const call_scope::entered outside(nullptr);  // what is ready belongs to others
  const int limit = context_gone() ? most_rounds_at_the_end : most_rounds;
  for (int round = 0; round < limit; ++round) {
    while (ready_.empty()) {
      if (turn_end_hooks_.empty()) return;
      run_next_hook();
    }
    run_round();
  }
  run_hooks();
  if (!ready_.empty() || !turn_end_hooks_.empty()) post_turn();
}

// Runs what is ready now; what that makes ready is the next round's.
void loop::run_round() noexcept {
  const ready_node* const last = &ready_.back();
  for (bool more = true; more;) {
    ready_node& next = ready_.front();
    ready_.pop_front();
    more = &next != last;
    next.run();
  }
}

void loop::run_next_hook() noexcept {
  turn_end_hook& next = turn_end_hooks_.front();
  turn_end_hooks_.pop_front();
  next.at_turn_end();
}

// Those that are scheduled now. One that unschedules others may take away the mark of the end.
void loop::run_hooks() noexcept {
  for (std::size_t left = turn_end_hooks_.size(); left != 0 && !turn_end_hooks_.empty(); --left)
    run_next_hook();
}

braid::detail::coroutine* loop::running_coroutine() const noexcept {
  return running_ && running_->contains(__builtin_frame_address(0)) ? running_ : nullptr;
}

bool loop::on_base_stack() const noexcept {
  if (!is_current()) return false;
  if (loan_) {
    if (!loan_->may_run_handlers()) return false;
    if (loan_->context_ends_here()) return running_coroutine() == nullptr;
  }
  const auto* here = static_cast<const char*>(__builtin_frame_address(0));
  return here >= stack_low_ && here < stack_high_;
}

void loop::use_stack_of_thread() noexcept {
  static thread_local const stack_bounds bounds = find_stack();
  stack_low_ = bounds.low;
  stack_high_ = bounds.high;
}

void loop::enter() noexcept {
  current_loop = this;
  use_stack_of_thread();
}

void loop::leave() noexcept { current_loop = nullptr; }

void loop::run_thread() {
  enter();
  while (!surviving([this] { context_.run(); }))
    ;
  drain();
  leave();
}

bool loop::surviving(const std::function<void()>& run) noexcept {
  try {
    run();
    return true;
  } catch (...) {
    const auto thrown = braid::detail::describe_current_exception();
    log().log(log_level::error, fmt::format("a handler on loop {} threw: {}", index_, thrown.text), {});
    return false;
  }
}

void loop::drain() {
  // What is queued still runs, but no user's endless chain of handlers holds up the end.
  constexpr int limit = 100'000;
  context_.restart();
  std::size_t ran = 1;
  for (int i = 0; i < limit && ran != 0; ++i) surviving([&] { ran = context_.poll_one(); });
}

void loop::begin_shutdown() noexcept {
  if (std::exchange(stopping_, true)) return;
  decltype(live_) not_reached;
  not_reached.splice(not_reached.end(), live_);
  while (!not_reached.empty()) {
    live_node& next = not_reached.front();
    not_reached.pop_front();
    live_.push_back(next);
    next.cancel_for_shutdown();
  }
  // By index: a service may make another one, which service() then shuts down.
  const std::size_t count = services_.size();
  for (std::size_t i = 0; i < count; ++i) services_[i].second->shutdown();
}

bool loop::quiescent() noexcept {
  if (!live_.empty() || !ready_.empty()) return false;
  for (auto& [tag, service] : services_)
    if (!service->quiescent()) return false;
  return true;
}

bool loop::close_if_quiescent() noexcept {
  const std::lock_guard lock(gate_);
  if (!quiescent()) return false;
  closed_ = true;
  return true;
}

bool loop::is_closed() noexcept {
  const std::lock_guard lock(gate_);
  return closed_;
}

void loop::end_run() noexcept { context_.stop(); }

loop* loop::enter_lent() noexcept {
  loan_->enter();
  return std::exchange(current_loop, this);
}

void loop::leave_lent(loop* outer) noexcept {
  current_loop = outer;
  loan_->leave();
}

// Inside the end of the context: what is made ready now or later runs at once.
void loop::end_with_context() noexcept {
  {
    const std::lock_guard lock(gate_);
    closed_ = true;
  }
  wakes_itself_ = false;
  owner_.note_stop();
  {
    turn in_turn(*this);
    begin_shutdown();
  }
  wake_timer_.reset();
}

void loop::cancel_wake_up() noexcept {
  wakes_itself_ = false;
  wake_timer_->cancel();
}

void loop::describe_live(std::vector<std::string>& names) const {
  for (const auto& node : live_) names.push_back(node.describe());
}

}  // namespace braid::core
