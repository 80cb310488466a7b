#pragma once

#include "core/loop.hpp"
#include "core/runtime_core.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <utility>

namespace braid::core {

/// A thread's wait for something that happens on a loop. A driven loop is run meanwhile.
class blocking_event {
 public:
  void set() {
    const std::lock_guard lock(mutex_);
    set_ = true;
    changed_.notify_all();  // under the lock: the waiter may destroy this object
  }
  /// Waits at most until `limit` or what hurry() says; returns whether it has happened. A driven runtime is
  /// run until it has.
  bool wait_until(runtime_core& runtime, time_point limit) {
    if (runtime.outside().driver) {
      wait(runtime);
      return true;
    }
    std::unique_lock lock(mutex_);
    while (!set_ && clock::now() < std::min(limit, latest_)) {
      if (const time_point until = std::min(limit, latest_); until == time_point::max()) {
        changed_.wait(lock);
      } else {
        changed_.wait_until(lock, until);
      }
    }
    return set_;
  }
  /// wait_until() waits no longer than that.
  void hurry(time_point latest) {
    const std::lock_guard lock(mutex_);
    latest_ = std::min(latest_, latest);
    changed_.notify_all();
  }
  void wait(runtime_core& runtime) {
    if (auto* const driver = runtime.outside().driver.get()) {
      driver->drive_until([this] { return is_set(); });
      return;
    }
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return set_; });
  }

 private:
  bool is_set() {
    const std::lock_guard lock(mutex_);
    return set_;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  time_point latest_ = time_point::max();
  bool set_ = false;
};

/// Runs `function` on `home` and waits for it; on a lent loop, which perhaps nobody runs, on this thread. It
/// must not run code of the program. Throws what it throws. False when the loop takes no more.
template <typename Function>
bool run_on(loop& home, Function&& function) {
  if (home.is_current()) {
    function();
    return true;
  }
  if (home.is_lent()) return home.visit(function);
  blocking_event done;
  std::exception_ptr thrown;
  const bool accepted = home.post([&] {
    try {
      function();
    } catch (...) {
      thrown = std::current_exception();
    }
    done.set();
  });
  if (accepted) done.wait(home.owner());
  if (thrown) std::rethrow_exception(thrown);
  return accepted;
}

}  // namespace braid::core
