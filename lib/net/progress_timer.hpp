#pragma once

#include "core/loop.hpp"

#include <chrono>
#include <cstddef>

namespace braid::net {

/// Bounds a stretch in which bytes should move and do not, or hardly: each KiB has its time, and so has the
/// rest. When that has passed it calls `Expired` of its owner.
template <typename Owner, void (Owner::*Expired)() noexcept>
class progress_timer : private core::timer_node {
 public:
  /// Without a limit (zero or negative) it never expires.
  progress_timer(Owner& owner, core::loop& home, std::chrono::milliseconds limit) noexcept
      : timer_node(&progress_timer::fire), owner_(owner), home_(home), limit_(limit) {}

  /// The stretch goes on, or begins; `moved` bytes have moved since the last call.
  void watch(std::size_t moved) noexcept {
    if (limit_.count() <= 0) return;
    moved_ += moved;
    if (armed() && moved_ < step) return;
    arm(limit_);
  }
  /// Expires that much later whatever moves, until the next call of watch() that arms it.
  void arm(std::chrono::milliseconds after) noexcept {
    moved_ = 0;
    home_.arm(*this, home_.after(after));
  }
  /// The stretch is over.
  using timer_node::cancel;

 private:
  static constexpr std::size_t step = 1024;

  static void fire(timer_node& node) noexcept {
    auto& expired = static_cast<progress_timer&>(node);
    (expired.owner_.*Expired)();
  }

  Owner& owner_;
  core::loop& home_;
  const std::chrono::milliseconds limit_;
  std::size_t moved_ = 0;  // since it was armed
};

}  // namespace braid::net
