#pragma once

#include <braid/testing/simulation.hpp>

#include "core/environment.hpp"
#include "core/loop.hpp"
#include "net/memory_network.hpp"
#include "net/resolver.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <vector>

namespace braid::testing {

/// The clock of a simulation and the order in which its loops run.
class simulation::driver final : public core::time_source, public core::loop_driver {
 public:
  driver(std::uint64_t seed, loop_order order);

  core::time_point now() const noexcept override { return now_; }
  void add(core::loop& added) override { loops_.push_back({&added}); }
  void remove(core::loop& removed) noexcept override;
  /// Aborts the process, with the names of what is alive, where `done` can never come true.
  void drive_until(const std::function<bool()>& done) override;

  bool run_until(const std::function<bool()>& done, core::time_point limit);
  /// One round of all loops; false if none had anything to run.
  bool run_ready();
  /// Moves the clock to the next timer, if there is one at or before `limit`.
  bool advance(core::time_point limit);
  void set_now(core::time_point when) noexcept { now_ = when; }

  /// Whether no timer is armed; asked when nothing is ready.
  bool idle() const { return next_timer() == core::time_point::max(); }

  std::uint64_t next_seed() noexcept { return random_() | 1; }  // 0 would mean the system's choice

  std::shared_ptr<net::memory_network> network;
  std::shared_ptr<net::static_resolver> resolver;
  testing::trace trace;

 private:
  struct driven {
    core::loop* loop;
    bool running = false;
  };
  class visit;

  core::time_point next_timer() const;
  bool knows(const core::loop& wanted) const noexcept;
  void mark(core::loop& which, bool running) noexcept;
  std::vector<core::loop*> round();
  bool run(core::loop& target);
  [[noreturn]] void give_up(const char* why) const;

  const loop_order order_;
  std::mt19937_64 random_;
  core::time_point now_;
  std::vector<driven> loops_;
};

}  // namespace braid::testing
