#include "core/coroutine.hpp"

#include <boost/asio/error.hpp>

#include <utility>

namespace braid {
namespace {

/// A coroutine's wait on the loop's timer wheel, ended early by its node.
class sleep final : public detail::await_base {
 public:
  sleep(std::chrono::nanoseconds duration, const yield_context& yield)
      : await_base(yield), timer_(*this), cancelled_(!may_start()) {
    if (cancelled_) {
      refuse();
      return;
    }
    if (duration.count() <= 0) return;
    core::loop& home = yield.owner().home();
    home.arm(timer_, home.after(duration));
    slot().assign([this](boost::asio::cancellation_type) {
      if (std::exchange(over_, true)) return;
      timer_.cancel();
      cancelled_ = true;
      completed();
    });
    wait(false);
  }
  bool cancelled() const noexcept { return cancelled_; }

 private:
  struct expiry : core::timer_node {
    explicit expiry(sleep& waiting) : timer_node(&expiry::fire), owner(waiting) {}
    static void fire(core::timer_node& node) {
      sleep& owner = static_cast<expiry&>(node).owner;
      if (!std::exchange(owner.over_, true)) owner.completed();
    }
    sleep& owner;
  };

  expiry timer_;
  bool cancelled_;
  bool over_ = false;  // apart from the timer, which is not armed where its time is too far to count
};

}  // namespace

void sleep_for(std::chrono::nanoseconds duration, yield_context yield) {
  const bool cancelled = sleep(duration, yield).cancelled();
  detail::deliver_error(cancelled ? error_code(boost::asio::error::operation_aborted) : error_code(), yield);
}

/// The node that stands in for the coroutine's own while the shield lives.
struct shield::state : core::timer_node {
  state(detail::coroutine& shielded, core::time_point end)
      : timer_node(&state::expired),
        owner(shielded),
        outer(shielded.exchange_node(node)),
        outer_deadline(shielded.exchange_deadline(end)) {
    if (&outer == &owner.own_node()) return;
    // Inside another shield, which then bounds this one too.
    if (outer_deadline < end) owner.exchange_deadline(outer_deadline);
    node.attach(outer);
  }
  ~state() {
    // What it leaves running is below the coroutine again.
    if (node.is_root()) node.attach(owner.own_node());
    node.hand_up_children();
    owner.exchange_deadline(outer_deadline);
    owner.exchange_node(outer);
  }
  static void expired(core::timer_node& timer) {
    static_cast<state&>(timer).node.cancel(cancel_cause::deadline);
  }

  detail::coroutine& owner;
  signal_node node;
  signal_node& outer;
  core::time_point outer_deadline;
};

shield::shield(yield_context yield, std::chrono::nanoseconds limit) {
  if (!yield.owner().is_running()) detail::throw_outside_coroutine();
  state_ = std::make_unique<state>(yield.owner(), yield.owner().home().after(limit));
  yield.owner().home().arm(*state_, yield.owner().deadline());
}

shield::~shield() = default;

yield_context::executor_type yield_context::get_executor() const noexcept {
  return owner_->home().executor();
}
cancel_cause yield_context::cancelled() const noexcept { return owner_->own_node().cause(); }
std::chrono::steady_clock::time_point yield_context::deadline() const noexcept { return owner_->deadline(); }
std::chrono::steady_clock::time_point yield_context::now() const noexcept { return owner_->home().now(); }

}  // namespace braid
