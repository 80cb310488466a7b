#include "core/timer_wheel.hpp"

#include <algorithm>

namespace braid::core {

timer_wheel::~timer_wheel() {
  const auto clear = [](detail::timer_link& list) {
    while (list.linked()) list.next->unlink();
  };
  clear(due_);
  clear(firing_);
  for (auto& level : levels_) std::for_each(level.slots.begin(), level.slots.end(), clear);
}

std::size_t timer_wheel::advance(timer_tick target) {
  if (advancing_) return 0;
  struct guard {
    explicit guard(bool& flag) : flag_(flag) { flag_ = true; }
    ~guard() { flag_ = false; }
    bool& flag_;
  } running{advancing_};

  firing_.splice(due_);
  std::size_t fired = fire_all();
  while (const auto at = first_used()) {
    const timer_tick start = start_of(*at);
    if (start > target) break;
    now_ = start;
    open(*at);
    fired += fire_all();
  }
  now_ = std::max(now_, target);
  return fired;
}

std::optional<timer_tick> timer_wheel::next_expiry() noexcept {
  if (due_.linked() || firing_.linked()) return now_;
  const auto at = first_used();
  if (!at) return std::nullopt;
  return start_of(*at);
}

// The slot that comes first in time: all of a level lies before all of the next one, and within a level the
// slots are in order, because each is ahead of the digit of now_.
std::optional<timer_wheel::position> timer_wheel::first_used() noexcept {
  while (used_levels_ != 0) {
    const auto index = static_cast<unsigned>(std::countr_zero(used_levels_));
    level& in = levels_[index];
    while (in.used != 0) {
      const auto slot = static_cast<unsigned>(std::countr_zero(in.used));
      if (in.slots[slot].linked()) return position{index, slot};
      in.used &= in.used - 1;
    }
    used_levels_ &= used_levels_ - 1;
  }
  return std::nullopt;
}

// The first tick of a slot: now_ with the digit of the level replaced and those below cleared.
timer_tick timer_wheel::start_of(position at) const noexcept {
  const unsigned shift = at.level * digit_bits;
  const timer_tick above = (now_ >> shift) & ~timer_tick{slots_per_level - 1};
  return (above | at.slot) << shift;
}

// Deals the timers of a slot, whose first tick is now_, to the levels below and to firing_.
void timer_wheel::open(position at) noexcept {
  level& from = levels_[at.level];
  detail::timer_link list;
  list.splice(from.slots[at.slot]);
  from.used &= ~(std::uint64_t{1} << at.slot);
  if (at.level == 0) {
    firing_.splice(list);
    return;
  }
  while (list.linked()) {
    auto& node = static_cast<timer_node&>(*list.next);
    node.unlink();
    place(node, firing_);
  }
}

std::size_t timer_wheel::fire_all() {
  std::size_t fired = 0;
  while (firing_.linked()) {
    auto& node = static_cast<timer_node&>(*firing_.next);
    node.unlink();
    ++fired;
    node.fire_(node);  // may destroy the node
  }
  return fired;
}

}  // namespace braid::core
