#pragma once

/// \file
/// The timers of one loop: arming and cancelling cost a few instructions each, however many there are.

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace braid::core {

/// A point in time, counted in ticks of the wheel's user (a loop uses milliseconds since its start).
using timer_tick = std::uint64_t;

namespace detail {

// An element of a circular list; alone or as the head of an empty list it is linked to itself.
struct timer_link {
  timer_link* prev = this;
  timer_link* next = this;

  timer_link() = default;
  timer_link(const timer_link&) = delete;
  timer_link& operator=(const timer_link&) = delete;

  bool linked() const noexcept { return next != this; }

  void unlink() noexcept {
    prev->next = next;
    next->prev = prev;
    prev = next = this;
  }

  // Makes this element, which is alone, the last one of a list.
  void append_to(timer_link& head) noexcept {
    prev = head.prev;
    next = &head;
    head.prev->next = this;
    head.prev = this;
  }

  // Moves all elements of the list `from` behind the last one of the list `this`.
  void splice(timer_link& from) noexcept {
    if (!from.linked()) return;
    from.next->prev = prev;
    prev->next = from.next;
    from.prev->next = this;
    prev = from.prev;
    from.prev = from.next = &from;
  }
};

}  // namespace detail

/// A timer: a member (or base) of whatever waits, armed on a `timer_wheel`. Never moved or copied.
///
/// The function given is called with the node once for each arming that is not cancelled. It finds its owner
/// by deriving from this class and `static_cast`. The node is disarmed before the call, so the function may
/// arm it again, destroy it, and arm, cancel or destroy any other node, also one due in the same advance.
///
/// Thread safety: none; a node is used on the thread of its wheel only.
class timer_node : private detail::timer_link {
 public:
  using fire_function = void (*)(timer_node&);

  /// \param fire  called when the timer expires; must not be null.
  explicit timer_node(fire_function fire) noexcept : fire_(fire) {}

  /// Cancels the timer.
  ~timer_node() { unlink(); }

  timer_node(const timer_node&) = delete;
  timer_node& operator=(const timer_node&) = delete;

  /// Whether the timer is armed, that is, still to fire.
  bool armed() const noexcept { return linked(); }

  /// The tick of the last arming; 0 if there was none.
  timer_tick expiry() const noexcept { return expiry_; }

  /// Disarms the timer in constant time. Returns whether it was armed; if not, nothing happens.
  bool cancel() noexcept {
    const bool was_armed = armed();
    unlink();
    return was_armed;
  }

 private:
  friend class timer_wheel;

  timer_tick expiry_ = 0;
  fire_function fire_;
};

/// A hierarchical hashed timing wheel over integer ticks; it reads no clock.
///
/// Scheme 7 of G. Varghese and T. Lauck, "Hashed and Hierarchical Timing Wheels: Data Structures for the
/// Efficient Implementation of a Timer Facility", SOSP 1987. Each level has 64 slots, and a timer's level is
/// that of the highest base-64 digit in which its expiry differs from now. So at any time all timers of one
/// tick are in one slot, which keeps them in order without a sequence number, and an earlier level holds
/// earlier timers only. Eleven levels span all of 64 bits. A bitmap a level names the slots in use; a
/// cancelled timer leaves its bit behind, to be cleared by the next look at the slot.
///
/// Timers fire in order of their expiry, those of one tick in order of arming.
///
/// The wheel may be destroyed with timers armed: they are disarmed and do not fire.
/// Thread safety: none; a wheel belongs to one thread.
class timer_wheel {
 public:
  /// \param now  the tick to start at.
  explicit timer_wheel(timer_tick now = 0) noexcept : now_(now) {}

  ~timer_wheel();

  timer_wheel(const timer_wheel&) = delete;
  timer_wheel& operator=(const timer_wheel&) = delete;

  /// The tick of the last `advance()`; inside a fire function, the tick that is being fired.
  timer_tick now() const noexcept { return now_; }

  /// Arms a timer, cancelling an earlier arming of it. Constant time, no allocation.
  ///
  /// \param node    cancelled when it is destroyed, so it may go at any time on this thread.
  /// \param expiry  the tick to fire at; any 64-bit value. Timers armed for `now()` or the past fire at the
  ///                next `advance()`, before all others and in order of arming (also when armed from inside
  ///                a fire function, where the next advance is not the running one).
  void arm(timer_node& node, timer_tick expiry) noexcept {
    node.unlink();
    node.expiry_ = expiry;
    place(node, due_);
  }

  /// Moves to a tick and fires all timers due by then, each at its own `now()`.
  ///
  /// Timers armed by fire functions for a tick up to `target` fire too. An earlier tick than `now()` is taken
  /// as `now()`. Empty stretches cost nothing, however long. A call from inside a fire function does nothing.
  /// If a fire function throws, the exception passes through and the next call goes on with the other timers.
  ///
  /// \returns the number of timers fired.
  std::size_t advance(timer_tick target);

  /// When to call `advance()` next, or nothing if no timer is armed.
  ///
  /// Never later than the earliest timer's expiry. It may be earlier, if that lies more than 64 ticks ahead
  /// or beyond a multiple of 64; advancing then fires nothing but brings the exact tick nearer (at most
  /// one such step for each level).
  /// `now()` if a timer is due already. Amortised constant time; not const because it forgets empty slots.
  std::optional<timer_tick> next_expiry() noexcept;

 private:
  static constexpr unsigned digit_bits = 6;
  static constexpr unsigned slots_per_level = 1U << digit_bits;
  static constexpr unsigned level_count = (64 + digit_bits - 1) / digit_bits;

  struct level {
    std::uint64_t used = 0;  // may hold bits of slots emptied by cancellation
    std::array<detail::timer_link, slots_per_level> slots;
  };

  struct position {
    unsigned level;
    unsigned slot;
  };

  // Puts a node where its expiry belongs as seen from now_: into the wheel, or into `due` if that has come.
  void place(timer_node& node, detail::timer_link& due) noexcept {
    if (node.expiry_ <= now_) {
      node.append_to(due);
      return;
    }
    const unsigned index = (static_cast<unsigned>(std::bit_width(node.expiry_ ^ now_)) - 1) / digit_bits;
    const unsigned slot = static_cast<unsigned>(node.expiry_ >> (index * digit_bits)) % slots_per_level;
    level& to = levels_[index];
    node.append_to(to.slots[slot]);
    to.used |= std::uint64_t{1} << slot;
    used_levels_ |= 1U << index;
  }

  std::optional<position> first_used() noexcept;
  timer_tick start_of(position at) const noexcept;
  void open(position at) noexcept;
  std::size_t fire_all();

  timer_tick now_;
  std::uint32_t used_levels_ = 0;  // like level::used
  bool advancing_ = false;
  detail::timer_link due_;     // expired when they were armed; fire at the next advance
  detail::timer_link firing_;  // being fired
  std::array<level, level_count> levels_;
};

}  // namespace braid::core
