#pragma once

#include <braid/runtime.hpp>
#include <braid/testing/simulation.hpp>

#include "core/loop.hpp"
#include "core/runtime_core.hpp"

#include <initializer_list>

/// Runs one handler of the first loop that has one, or what is due of its timers; false: it had nothing to
/// do.
inline bool run_one_handler(braid::testing::simulation& sim, braid::runtime& of) {
  braid::core::loop& home = of.core()->at(0);
  home.enter();
  bool any = home.context().poll_one() != 0;
  if (!any && home.next_timer() <= sim.now()) {
    any = true;
    braid::core::turn in_turn(home);
    home.fire_timers();
  }
  home.leave();
  return any;
}

/// One step of simulated runtimes: the smallest after which they can be torn down. When none has anything to
/// do, time passes to the next timer.
inline void run_one_step(braid::testing::simulation& sim, std::initializer_list<braid::runtime*> all) {
  for (braid::runtime* each : all)
    if (run_one_handler(sim, *each)) return;
  int asked = 0;
  sim.run_until([&] { return asked++ == 1; });
}
