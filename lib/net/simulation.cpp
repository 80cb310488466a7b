#include "net/simulation.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

namespace braid::testing {
namespace {

using namespace std::chrono_literals;

constexpr core::time_point start_of_time{1h};  // so that instants before the start can be counted

// A loop that never gets tired of posting is left after this many handlers, and asked again in the next
// round.
constexpr int most_in_a_row = 1000;
// Rounds that a shutdown may take without any progress of the clock, and how far that may go.
constexpr std::size_t most_rounds_at_an_instant = 1'000'000;
constexpr std::size_t most_rounds_in_a_coroutine = 100;  // where no other one is resumed
constexpr auto longest_shutdown = 24h;

}  // namespace

std::uint64_t trace::hash() const noexcept {
  std::uint64_t value = 14695981039346656037ULL;
  const auto add = [&value](unsigned char byte) { value = (value ^ byte) * 1099511628211ULL; };
  const auto add_number = [&add](std::uint64_t number) {
    for (int shift = 0; shift < 64; shift += 8) add(static_cast<unsigned char>(number >> shift));
  };
  for (const trace_entry& entry : entries_) {
    add_number(static_cast<std::uint64_t>(entry.at.count()));
    add_number(entry.node.size());
    for (const char c : entry.node) add(static_cast<unsigned char>(c));
    add_number(static_cast<std::uint64_t>(entry.code));
  }
  return value;
}

/// Makes a loop the thread's current one for a while.
class simulation::driver::visit {
 public:
  visit(driver& owner, core::loop& target) : owner_(owner), target_(target), outer_(core::loop::current()) {
    owner_.mark(target_, true);
    target_.enter();
  }
  ~visit() {
    target_.leave();
    owner_.mark(target_, false);
    if (outer_) outer_->enter();
  }

 private:
  driver& owner_;
  core::loop& target_;
  core::loop* const outer_;  // where code of one runtime destroys another
};

simulation::driver::driver(std::uint64_t seed, loop_order order)
    : network(std::make_shared<net::memory_network>(seed ^ 0x6e6574ULL)),
      resolver(std::make_shared<net::static_resolver>()),
      order_(order),
      random_(seed),
      now_(start_of_time) {}

void simulation::driver::remove(core::loop& removed) noexcept {
  std::erase_if(loops_, [&](const driven& each) { return each.loop == &removed; });
}

void simulation::driver::mark(core::loop& which, bool running) noexcept {
  for (driven& each : loops_)
    if (each.loop == &which) each.running = running;
}

std::vector<core::loop*> simulation::driver::round() {
  std::vector<core::loop*> targets;
  for (const driven& each : loops_)
    if (!each.running) targets.push_back(each.loop);
  if (order_ == loop_order::fixed) return targets;
  // Not std::shuffle, whose results are the library's own choice.
  for (std::size_t i = targets.size(); i > 1; --i) std::swap(targets[i - 1], targets[random_() % i]);
  return targets;
}

bool simulation::driver::knows(const core::loop& wanted) const noexcept {
  return std::any_of(loops_.begin(), loops_.end(), [&](const driven& each) { return each.loop == &wanted; });
}

bool simulation::driver::run_ready() {
  bool any = false;
  for (core::loop* const target : round())
    if (knows(*target)) any = run(*target) || any;  // one before it may have destroyed its runtime
  return any;
}

bool simulation::driver::run(core::loop& target) {
  const visit here(*this, target);
  bool any = false;
  if (target.next_timer() <= now_) {
    core::turn in_turn(target);
    target.fire_timers();
    any = true;
  }
  for (int i = 0; i < most_in_a_row && target.context().poll_one() != 0; ++i) any = true;
  return any;
}

core::time_point simulation::driver::next_timer() const {
  core::time_point first = core::time_point::max();
  for (const driven& each : loops_)
    if (!each.running) first = std::min(first, each.loop->next_timer());  // else below us, and held up
  return first;
}

bool simulation::driver::advance(core::time_point limit) {
  const core::time_point next = next_timer();
  if (next == core::time_point::max() || next > limit) return false;
  now_ = std::max(now_, next);
  return true;
}

bool simulation::driver::run_until(const std::function<bool()>& done, core::time_point limit) {
  while (!done())
    if (!run_ready() && !advance(limit)) return done();
  return true;
}

void simulation::driver::drive_until(const std::function<bool()>& done) {
  const core::time_point limit = core::saturating_add(now_, longest_shutdown);
  const core::loop* const outer = core::loop::current();
  const bool in_coroutine = outer && outer->running_coroutine();
  std::size_t rounds = 0;
  for (;;) {
    const core::time_point before = now_;
    // First, since what was posted before a runtime's end still runs, as it does on a loop that is a thread.
    const bool ran = run_ready();
    if (done()) return;
    if (!ran && !advance(limit)) give_up(idle() ? "nothing is left to run" : "it has taken a day");
    rounds = now_ == before ? rounds + 1 : 0;
    if (in_coroutine && rounds > most_rounds_in_a_coroutine)
      give_up("it is waited for inside a coroutine, where no other is resumed");
    if (rounds > most_rounds_at_an_instant) give_up("it does not get on");
  }
}

void simulation::driver::give_up(const char* why) const {
  std::vector<std::string> names;
  for (const driven& each : loops_) each.loop->describe_live(names);
  if (names.empty()) names.emplace_back("a service of a loop");
  const std::string text = fmt::format(
      "braid: a simulated runtime cannot stop: {}, but these still live: {}\n", why, fmt::join(names, ", "));
  std::fputs(text.c_str(), stderr);
  std::abort();
}

simulation::simulation(std::uint64_t seed, loop_order order)
    : driver_(std::make_shared<driver>(seed, order)) {
  auto outside = std::make_shared<core::environment>();
  outside->time = driver_;
  outside->driver = driver_;
  outside->network = driver_->network;
  outside->resolver = driver_->resolver;
  environment_ = std::move(outside);
}

simulation::~simulation() = default;

runtime_options simulation::node_options() {
  runtime_options options;
  options.loops = 1;
  options.seed = driver_->next_seed();
  options.environment = environment_;
  return options;
}

const std::shared_ptr<core::environment>& simulation::environment() const noexcept { return environment_; }

network_faults& simulation::network() noexcept { return *driver_->network; }

void simulation::set_host(const std::string& name, std::vector<boost::asio::ip::address> addresses) {
  driver_->resolver->set(name, std::move(addresses));
}

simulation::time_point simulation::now() const noexcept { return driver_->now(); }

simulation::duration simulation::elapsed() const noexcept { return driver_->now() - start_of_time; }

void simulation::run_for(duration length) {
  const core::time_point end = core::saturating_add(now(), length);
  driver_->run_until([] { return false; }, end);
  driver_->set_now(end);
}

bool simulation::run_until(const std::function<bool()>& done, duration within) {
  return driver_->run_until(done, core::saturating_add(now(), within));
}

bool simulation::run_until_idle(duration within) {
  const core::time_point limit = core::saturating_add(now(), within);
  driver_->run_until([] { return false; }, limit);
  return driver_->idle();
}

void simulation::record(std::string_view node, std::int64_t code) {
  driver_->trace.add({elapsed(), std::string(node), code});
}

const testing::trace& simulation::trace() const noexcept { return driver_->trace; }

}  // namespace braid::testing
