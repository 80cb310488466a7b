#include "core/timer_wheel.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <stdexcept>
#include <vector>

namespace {

using braid::core::timer_node;
using braid::core::timer_tick;
using braid::core::timer_wheel;

constexpr timer_tick end_of_time = std::numeric_limits<timer_tick>::max();

// A timer that runs a function, for tests only.
struct timer : timer_node {
  explicit timer(std::function<void()> f)
      : timer_node([](timer_node& self) { static_cast<timer&>(self).call(); }), f_(std::move(f)) {}
  void call() {
    auto f = f_;  // the function may destroy this timer
    f();
  }
  std::function<void()> f_;
};

// Timers that note their name and the wheel's tick when they fire.
struct fixture {
  explicit fixture(timer_tick now = 0) : wheel(now) {}

  timer& add(int name, timer_tick expiry) {
    timers.push_back(std::make_unique<timer>([this, name] { note(name); }));
    wheel.arm(*timers.back(), expiry);
    return *timers.back();
  }
  void note(int name) {
    fired.push_back(name);
    ticks.push_back(wheel.now());
  }

  timer_wheel wheel;
  std::vector<std::unique_ptr<timer>> timers;
  std::vector<int> fired;
  std::vector<timer_tick> ticks;
};

using names = std::vector<int>;
using ticks = std::vector<timer_tick>;

TEST_CASE("an empty wheel has nothing to wait for and jumps anywhere", "[timer_wheel]") {
  timer_wheel wheel{7};
  CHECK_FALSE(wheel.next_expiry());
  CHECK(wheel.now() == 7);
  CHECK(wheel.advance(end_of_time) == 0);
  CHECK(wheel.now() == end_of_time);
  CHECK(wheel.advance(3) == 0);
  CHECK(wheel.now() == end_of_time);
}

TEST_CASE("a timer fires at its tick, not before and only once", "[timer_wheel]") {
  const timer_tick start = GENERATE(as<timer_tick>{}, 0, 1, 62, 63, 64, 4095, 4096, 123456789, 1ULL << 60);
  const timer_tick delay = GENERATE(as<timer_tick>{}, 1, 2, 63, 64, 65, 200, 4095, 4096, 4097, 262143, 262144,
                                    31'536'000'000'000, (1ULL << 60) - 1);
  CAPTURE(start, delay);
  fixture f{start};
  auto& t = f.add(1, start + delay);
  CHECK(t.armed());
  CHECK(f.wheel.advance(start + delay - 1) == 0);
  CHECK(f.wheel.next_expiry() == start + delay);
  CHECK(f.wheel.advance(start + delay) == 1);
  CHECK_FALSE(t.armed());
  CHECK(f.ticks == ticks{start + delay});
  CHECK_FALSE(f.wheel.next_expiry());
  CHECK(f.wheel.advance(end_of_time) == 0);
}

TEST_CASE("the last tick of all can be armed", "[timer_wheel]") {
  fixture f;
  f.add(1, end_of_time);
  CHECK(f.wheel.advance(end_of_time - 1) == 0);
  CHECK(f.wheel.advance(end_of_time) == 1);
}

TEST_CASE("timers fire in order of expiry and each at its own tick", "[timer_wheel]") {
  fixture f;
  f.add(5, 70000);
  f.add(3, 64);
  f.add(1, 3);
  f.add(4, 4097);
  f.add(2, 63);
  CHECK(f.wheel.advance(70000) == 5);
  CHECK(f.fired == names{1, 2, 3, 4, 5});
  CHECK(f.ticks == ticks{3, 63, 64, 4097, 70000});
}

TEST_CASE("timers of one tick fire in order of arming, however far ahead each was armed", "[timer_wheel]") {
  fixture f;
  f.add(1, 5000);
  f.wheel.advance(4000);
  f.add(2, 5000);
  f.wheel.advance(4990);
  f.add(3, 5000);
  f.wheel.advance(4999);
  f.add(4, 5000);
  f.wheel.advance(6000);
  CHECK(f.fired == names{1, 2, 3, 4});
}

TEST_CASE("a timer armed for now or the past fires at the next advance, before all others", "[timer_wheel]") {
  fixture f{100};
  f.add(3, 101);
  f.add(1, 100);
  f.add(2, 5);
  CHECK(f.wheel.next_expiry() == timer_tick{100});
  CHECK(f.wheel.advance(100) == 2);
  CHECK(f.wheel.advance(101) == 1);
  CHECK(f.fired == names{1, 2, 3});
  CHECK(f.ticks == ticks{100, 100, 101});
}

TEST_CASE("a cancelled timer does not fire and can be armed again", "[timer_wheel]") {
  fixture f;
  auto& t = f.add(1, 10);
  CHECK(t.cancel());
  CHECK_FALSE(t.cancel());
  CHECK_FALSE(t.armed());
  CHECK_FALSE(f.wheel.next_expiry());
  CHECK(f.wheel.advance(20) == 0);
  f.wheel.arm(t, 30);
  CHECK(t.expiry() == 30);
  CHECK(f.wheel.advance(30) == 1);
}

TEST_CASE("arming an armed timer moves it, to the end of its tick", "[timer_wheel]") {
  fixture f;
  auto& first = f.add(1, 10);
  f.add(2, 10);
  f.wheel.arm(first, 10);
  f.wheel.advance(10);
  CHECK(f.fired == names{2, 1});
}

TEST_CASE("a destroyed timer does not fire", "[timer_wheel]") {
  fixture f;
  f.add(1, 10);
  f.add(2, 10);
  f.timers.erase(f.timers.begin());
  CHECK(f.wheel.advance(10) == 1);
  CHECK(f.fired == names{2});
}

TEST_CASE("a wheel that goes disarms its timers", "[timer_wheel]") {
  auto wheel = std::make_unique<timer_wheel>(50);
  timer near{[] { FAIL(); }}, far{[] { FAIL(); }}, overdue{[] { FAIL(); }};
  wheel->arm(near, 51);
  wheel->arm(far, end_of_time);
  wheel->arm(overdue, 1);
  wheel.reset();
  CHECK_FALSE(near.armed());
  CHECK_FALSE(far.armed());
  CHECK_FALSE(overdue.armed());
}

TEST_CASE("a fire function may arm its own timer again", "[timer_wheel]") {
  fixture f;
  timer* self = nullptr;
  timer periodic{[&] {
    f.note(1);
    f.wheel.arm(*self, f.wheel.now() + 100);
  }};
  self = &periodic;
  f.wheel.arm(periodic, 100);
  CHECK(f.wheel.advance(350) == 3);
  CHECK(f.ticks == ticks{100, 200, 300});
  CHECK(periodic.armed());
}

TEST_CASE("a timer armed for now from inside a fire function waits for the next advance", "[timer_wheel]") {
  fixture f;
  timer* self = nullptr;
  timer again{[&] {
    f.note(1);
    f.wheel.arm(*self, f.wheel.now());
  }};
  self = &again;
  f.wheel.arm(again, 10);
  CHECK(f.wheel.advance(20) == 1);
  CHECK(f.wheel.next_expiry() == timer_tick{20});
  CHECK(f.wheel.advance(20) == 1);
  CHECK(f.wheel.advance(20) == 1);
}

TEST_CASE("a fire function may cancel any timer of its own batch", "[timer_wheel]") {
  fixture f;
  timer canceller{[&] {
    CHECK(f.timers[0]->cancel());
    CHECK(f.timers[2]->cancel());
  }};
  f.wheel.arm(canceller, 10);
  f.add(1, 10);
  f.add(2, 10);
  f.add(3, 11);
  CHECK(f.wheel.advance(20) == 2);
  CHECK(f.fired == names{2});
}

TEST_CASE("a fire function may move a timer of its own batch to later", "[timer_wheel]") {
  fixture f;
  timer mover{[&] { f.wheel.arm(*f.timers[0], 15); }};
  f.wheel.arm(mover, 10);
  f.add(1, 10);
  f.add(2, 10);
  CHECK(f.wheel.advance(10) == 2);
  CHECK(f.wheel.advance(15) == 1);
  CHECK(f.fired == names{2, 1});
}

TEST_CASE("a fire function may destroy its own timer and others", "[timer_wheel]") {
  timer_wheel wheel;
  int fired = 0;
  std::vector<std::unique_ptr<timer>> all;
  for (int i = 0; i < 3; ++i) {
    all.push_back(std::make_unique<timer>([&] {
      ++fired;
      all.clear();
    }));
    wheel.arm(*all.back(), 10);
  }
  CHECK(wheel.advance(10) == 1);
  CHECK(fired == 1);
}

TEST_CASE("advancing from inside a fire function does nothing", "[timer_wheel]") {
  fixture f;
  timer nested{[&] { CHECK(f.wheel.advance(100) == 0); }};
  f.wheel.arm(nested, 10);
  f.add(1, 10);
  f.add(2, 50);
  CHECK(f.wheel.advance(10) == 2);
  CHECK(f.wheel.now() == 10);
  CHECK(f.fired == names{1});
}

TEST_CASE("an exception of a fire function passes and loses no other timer", "[timer_wheel]") {
  fixture f;
  timer thrower{[] { throw std::runtime_error{"made up"}; }};
  f.wheel.arm(thrower, 10);
  f.add(1, 10);
  f.add(2, 20);
  CHECK_THROWS_AS(f.wheel.advance(30), std::runtime_error);
  CHECK(f.wheel.now() == 10);
  CHECK(f.wheel.next_expiry() == timer_tick{10});
  CHECK(f.wheel.advance(30) == 2);
  CHECK(f.fired == names{1, 2});
}

TEST_CASE("stepping from one next_expiry to the next reaches a timer in few steps", "[timer_wheel]") {
  const timer_tick expiry = GENERATE(as<timer_tick>{}, 1, 64, 4095, 1'000'003, 31'536'000'123, end_of_time);
  fixture f{GENERATE(as<timer_tick>{}, 0, 777)};
  if (expiry <= f.wheel.now()) return;
  f.add(1, expiry);
  int steps = 0;
  while (const auto next = f.wheel.next_expiry()) {
    REQUIRE(*next > f.wheel.now());
    REQUIRE(*next <= expiry);
    f.wheel.advance(*next);
    ++steps;
  }
  CHECK(f.ticks == ticks{expiry});
  CHECK(steps <= 11);
}

TEST_CASE("next_expiry forgets timers cancelled at every level", "[timer_wheel]") {
  fixture f;
  for (unsigned bit = 0; bit < 64; ++bit) f.add(1, timer_tick{1} << bit);
  for (auto& t : f.timers) CHECK(t->cancel());
  CHECK_FALSE(f.wheel.next_expiry());
  f.add(2, 500);
  CHECK(f.wheel.advance(end_of_time) == 1);
}

// The wheel against the obvious implementation.
class model {
 public:
  explicit model(std::uint32_t seed, timer_tick start) : random_(seed), wheel_(start), now_(start) {
    for (std::size_t i = 0; i < count; ++i) {
      timers_.push_back(std::make_unique<timer>([this, i] { on_fire(i); }));
    }
  }

  void step() {
    const std::size_t i = pick(count);
    switch (pick(8)) {
      case 0:
        cancel(i);
        break;
      case 1:
      case 2:
        advance();
        break;
      default:
        arm(i, random_expiry());
    }
    check_next();
  }

  std::size_t fired() const { return fired_; }

 private:
  static constexpr std::size_t count = 200;
  using entry = std::multimap<timer_tick, std::size_t>::iterator;

  std::size_t pick(std::size_t n) { return std::uniform_int_distribution<std::size_t>{0, n - 1}(random_); }

  // Mostly near, sometimes far, sometimes past; distances spread over all levels.
  timer_tick random_expiry() {
    const timer_tick distance = random_() % (timer_tick{2} << pick(pick(4) == 0 ? 40 : 10));
    return pick(10) == 0 ? now_ - std::min(now_, distance) : now_ + distance;
  }

  // Overdue timers are due now, in order of arming.
  void arm(std::size_t i, timer_tick expiry) {
    erase(i);
    wheel_.arm(*timers_[i], expiry);
    if (expiry <= now_) {
      due_.push_back(i);
    } else {
      entries_[i] = expected_.emplace(expiry, i);
    }
  }

  void cancel(std::size_t i) { REQUIRE(timers_[i]->cancel() == erase(i)); }

  bool erase(std::size_t i) {
    if (entries_[i]) {
      expected_.erase(*entries_[i]);
      entries_[i].reset();
      return true;
    }
    for (auto* list : {&due_, &batch_}) {
      const auto at = std::find(list->begin(), list->end(), i);
      if (at == list->end()) continue;
      list->erase(at);
      return true;
    }
    return false;
  }

  void advance() {
    const timer_tick target = now_ + random_() % (timer_tick{2} << pick(pick(8) == 0 ? 34 : 9));
    batch_.swap(due_);
    target_ = target;
    wheel_.advance(target);
    REQUIRE(batch_.empty());
    REQUIRE((expected_.empty() || expected_.begin()->first > target));
    now_ = target;
    REQUIRE(wheel_.now() == now_);
  }

  void on_fire(std::size_t i) {
    ++fired_;
    REQUIRE_FALSE(timers_[i]->armed());
    if (!batch_.empty()) {
      REQUIRE(batch_.front() == i);
      batch_.erase(batch_.begin());
    } else {
      REQUIRE_FALSE(expected_.empty());
      const auto first = expected_.begin();
      REQUIRE(first->second == i);
      REQUIRE(first->first <= target_);
      now_ = first->first;
      expected_.erase(first);
      entries_[i].reset();
    }
    REQUIRE(wheel_.now() == now_);
    switch (pick(6)) {
      case 0:
        arm(i, random_expiry());
        break;
      case 1:
        arm(pick(count), random_expiry());
        break;
      case 2:
        cancel(pick(count));
        break;
      case 3:  // one of the same tick, if there is one
        if (!expected_.empty()) cancel(expected_.begin()->second);
        break;
      default:
        break;
    }
  }

  void check_next() {
    const auto next = wheel_.next_expiry();
    REQUIRE(next.has_value() == !(due_.empty() && expected_.empty()));
    if (!next) return;
    REQUIRE(*next >= now_);
    if (!due_.empty()) {
      REQUIRE(*next == now_);
    } else {
      REQUIRE(*next > now_);
      REQUIRE(*next <= expected_.begin()->first);
    }
  }

  std::mt19937 random_;
  timer_wheel wheel_;
  timer_tick now_;
  timer_tick target_ = 0;
  std::vector<std::unique_ptr<timer>> timers_;
  std::multimap<timer_tick, std::size_t> expected_;
  std::vector<std::optional<entry>> entries_ = std::vector<std::optional<entry>>(count);
  std::vector<std::size_t> due_;
  std::vector<std::size_t> batch_;
  std::size_t fired_ = 0;
};

TEST_CASE("the wheel does what a sorted map does, over many random operations", "[timer_wheel]") {
  const auto seed = GENERATE(range(1U, 9U));
  model m{seed, seed % 2 == 0 ? timer_tick{0} : (timer_tick{1} << 36) - 500};
  for (int i = 0; i < 10'000; ++i) m.step();
  CHECK(m.fired() > 1'000);
}

}  // namespace
