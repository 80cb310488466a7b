#include "core/coroutine.hpp"

#include "core/runtime_core.hpp"

#include <boost/asio/post.hpp>
#include <fmt/format.h>

#include <exception>
#include <new>
#include <stdexcept>

namespace braid::detail {

coroutine::coroutine(core::loop& home, coroutine_body& body, const core::stack_pool::stack& whole,
                     const coroutine_context& context, std::shared_ptr<cancel_handle> handle)
    : loop_(home), body_(body), stack_(whole), own_deadline_(context.deadline), handle_(std::move(handle)) {
  if (context.parent) own_node_.attach(*context.parent);
  if (handle_) handle_->bind(own_node_, home);
  loop_.add_live(*this);
  if (loop_.stopping()) own_node_.cancel(cancel_cause::shutdown);
}

bool coroutine::start(core::loop& home, coroutine_body& body, const coroutine_context& context,
                      start_mode mode, std::shared_ptr<cancel_handle> handle) {
  const core::stack_pool::stack whole = home.stacks().allocate();
  if (!whole) return false;
  const core::carved cut = core::carve(whole, sizeof(coroutine), alignof(coroutine));
  auto* started = ::new (cut.block) coroutine(home, body, whole, context, std::move(handle));
  started->switch_.create(cut.rest, &coroutine::entry, started);
  if (mode == start_mode::now && home.on_base_stack()) {
    started->resume();
  } else {
    started->wake();
  }
  return true;
}

void coroutine::entry(void* self) noexcept {
  auto& running = *static_cast<coroutine*>(self);
  try {
    running.body_.run(yield_context(running));
  } catch (...) {
    running.body_.failed(describe_current_exception());
  }
}

void coroutine::cancel_for_shutdown() noexcept { own_node_.cancel(cancel_cause::shutdown); }

std::string coroutine::describe() const { return body_.describe(); }

void coroutine::wake() noexcept { loop_.make_ready(ready_); }

void coroutine::run_ready(core::ready_node& node) noexcept { static_cast<ready_hook&>(node).owner.resume(); }

void coroutine::resume() noexcept {
  coroutine* outer = std::exchange(loop_.running_, this);
  switch_.resume();
  while (base_stack_task* const asked = std::exchange(for_resumer_, nullptr)) {
    asked->run();
    switch_.resume();
  }
  loop_.running_ = outer;
  if (switch_.finished()) end();
}

void coroutine::end() noexcept {
  core::loop& home = loop_;
  coroutine_body& body = body_;
  const core::stack_pool::stack whole = stack_;
  if (handle_) handle_->release();
  own_node_.hand_up_children();  // calls that it left running are still those of what it served
  this->~coroutine();
  home.stacks().release(whole);
  body.ended(home.executor());
}

void throw_outside_coroutine() {
  throw std::logic_error("braid: a yield_context is used outside its own coroutine");
}

await_base::await_base(const yield_context& yield) : owner_(yield.owner()) {
  if (!owner_.is_running()) throw_outside_coroutine();
}

bool await_base::may_start(bool reports_error) const noexcept {
  return !(reports_error && owner_.node().cancelled()) && !owner_.home().context_gone();
}

void await_base::refuse() {
  if (!owner_.refused_too_often()) return;
  core::loop& home = owner_.home();
  if (home.context_gone()) {
    while (owner_.is_hopeless()) owner_.suspend_for_good();
    throw_await_error(boost::asio::error::operation_aborted);
  }
  struct pause : core::timer_node {
    explicit pause(await_base& waiting) : timer_node(&pause::over), owner(waiting) {}
    static void over(core::timer_node& node) { static_cast<pause&>(node).owner.completed(); }
    await_base& owner;
  } timer(*this);
  home.arm(timer, home.after(std::chrono::milliseconds(1)));
  wait(false);
  owner_.keep_refusing();  // such a pause is no wait of the coroutine's own
  throw_await_error(boost::asio::error::operation_aborted);
}

void await_base::wait(bool emit_earlier_cancellation) noexcept {
  // An operation that cannot report an error was started all the same: it learns of the cancellation now.
  if (state_ == state::initiating && emit_earlier_cancellation && owner_.node().cancelled())
    owner_.node().emit();
  if (state_ == state::initiating) {
    state_ = state::waiting;
    owner_.suspend();
  }
  owner_.node().slot().clear();  // what is left there refers to an object that may die before the next emit
}

loop_executor await_base::executor() const noexcept { return owner_.home().executor(); }
boost::asio::cancellation_slot await_base::slot() const noexcept { return owner_.node().slot(); }

void await_base::called() noexcept {
  core::loop& home = owner_.home();
  if (home.is_current()) {
    completed();
  } else if (home.runs_here() && !core::loop::current()) {
    core::turn in_turn(home);  // a lent loop is not current in handlers that Asio calls by itself
    completed();
  } else {
    complete_by_post();
  }
}

void await_base::completed() noexcept {
  const bool suspended = std::exchange(state_, state::done) == state::waiting;
  if (!suspended) return;
  // Opened here for handlers that Asio calls by itself: the coroutine then goes on at once, without another
  // post.
  core::turn in_turn(owner_.home());
  owner_.wake();
}

void await_base::dropped() noexcept {
  core::loop& home = owner_.home();
  if (home.is_current()) {
    completed_later();  // who drops a handler may hold a lock, or be half destroyed
  } else if (home.context_ends_here()) {
    completed();  // at once: nothing runs any more
  } else {
    complete_by_post();
  }
}

void await_base::completed_later() noexcept {
  if (std::exchange(state_, state::done) == state::waiting) owner_.wake();
}

/// On its way to the loop.
struct await_base::wake_up {
  await_base* waiting;

  explicit wake_up(await_base& woken) noexcept : waiting(&woken) {}
  wake_up(wake_up&& other) noexcept : waiting(std::exchange(other.waiting, nullptr)) {}
  wake_up& operator=(wake_up&&) = delete;
  // The loop takes posts as long as a coroutine lives on it, unless its context ends.
  ~wake_up() {
    if (waiting && waiting->owner_.home().context_ends_here()) waiting->completed();
  }
  void operator()() { std::exchange(waiting, nullptr)->completed(); }
};

void await_base::complete_by_post() noexcept { owner_.home().post(wake_up(*this)); }

void throw_from_run(const loop_executor& home) noexcept {
  boost::asio::post(home, [thrown = std::current_exception()] { std::rethrow_exception(thrown); });
}

coroutine* running_coroutine() noexcept {
  core::loop* const here = core::loop::current();
  return here ? here->running_coroutine() : nullptr;
}

bool run_by_resumer(base_stack_task& task) {
  coroutine* const running = running_coroutine();
  if (running) running->have_run(task);
  return running != nullptr;
}

void throw_await_error(const error_code& ec) { throw boost::system::system_error(ec); }

failure describe_current_exception() {
  try {
    throw;
  } catch (const boost::system::system_error& e) {
    return {e.code() ? e.code() : error_code(errc::internal), e.what()};
  } catch (const std::exception& e) {
    return {errc::internal, e.what()};
  } catch (...) {
    return {errc::internal, "an exception that is no std::exception"};
  }
}

}  // namespace braid::detail

namespace braid {

yield_context this_coroutine() {
  detail::coroutine* const running = detail::running_coroutine();
  if (!running) throw std::logic_error("braid: this_coroutine() is called outside of a coroutine");
  return yield_context(*running);
}

bool in_coroutine() noexcept { return detail::running_coroutine() != nullptr; }

}  // namespace braid
