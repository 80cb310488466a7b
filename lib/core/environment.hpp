#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>

namespace braid::net {
class network;
class resolver;
}  // namespace braid::net

namespace braid::core {

class loop;

using clock = std::chrono::steady_clock;
using time_point = clock::time_point;

/// The instant `by` after `start`; time_point::max() where that is too far to count, the clock's own start
/// where it lies before that.
template <typename Rep, typename Period>
constexpr time_point saturating_add(time_point start, std::chrono::duration<Rep, Period> by) noexcept {
  // Compared in the unit of `by`, whose longest times may be too long for the clock's.
  using unit = std::chrono::duration<Rep, Period>;
  if (by >= std::chrono::duration_cast<unit>(time_point::max() - start)) return time_point::max();
  if (by < std::chrono::duration_cast<unit>(-start.time_since_epoch())) return {};
  return start + by;
}

/// Where a loop reads the time.
class time_source {
 public:
  virtual ~time_source() = default;
  virtual time_point now() const noexcept = 0;
};

/// Runs the loops of a runtime that has no threads of its own: a simulation.
class loop_driver {
 public:
  virtual ~loop_driver() = default;
  virtual void add(loop& added) = 0;
  virtual void remove(loop& removed) noexcept = 0;
  /// Runs the loops until `done` says so.
  virtual void drive_until(const std::function<bool()>& done) = 0;
};

/// Everything that is not a function of its input. A null member means the real thing.
struct environment {
  std::shared_ptr<time_source> time;
  std::shared_ptr<loop_driver> driver;
  std::shared_ptr<net::network> network;
  std::shared_ptr<net::resolver> resolver;
  /// An older kernel, on which at most so many stacks of the process are guarded; see stack_pool.
  std::optional<std::size_t> most_protected_stacks{};
};

}  // namespace braid::core
