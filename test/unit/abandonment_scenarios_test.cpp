// What the demos show, torn down and cancelled after each of its steps. The scenarios are in
// abandonment_scenarios.cpp.

#include "unit/abandonment_scene.hpp"

#include <catch2/catch.hpp>

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace {

using namespace abandonment;

// Runs a scenario to its end; how many steps that took, and the codes of its calls.
struct whole_run {
  std::size_t steps = 0;
  std::vector<int> codes;
};

whole_run run_whole(const scenario& what) {
  scene in;
  what.begin(in);
  whole_run found;
  for (; !in.ended() && found.steps < 10'000; ++found.steps) in.step();
  for (const call& each : in.calls) found.codes.push_back(each.code);
  return found;
}

// A call has ended once, and its response is whole or untouched.
void check_calls(scene& in, const std::string& when) {
  INFO(when);
  CHECK(in.ended());
  for (const call& each : in.calls) {
    CHECK(each.completions == 1);
    const std::string& message = each.response.message();
    if (each.code == 0) {
      CHECK(message == "hello" + std::string(100, '.'));
    } else {
      CHECK(message == "untouched");
    }
  }
}

// Builds the scenario, lets it run for `steps`, does something to it, and says what codes its calls had.
template <typename Function>
std::map<int, int> after_each_step(const scenario& what, Function function) {
  std::map<int, int> codes;
  const whole_run whole = run_whole(what);
  CHECK(whole.steps > 10);
  CHECK(whole.steps < 10'000);
  for (std::size_t until = 0; until <= whole.steps; ++until) {
    scene in;
    what.begin(in);
    for (std::size_t i = 0; i < until; ++i) in.step();
    function(in);
    check_calls(in, what.name + (" after " + std::to_string(until)) + " steps");
    for (const call& each : in.calls) ++codes[each.code];
  }
  CHECK(codes.contains(whole.codes.front()));
  return codes;
}

}  // namespace

TEST_CASE("abandonment: every scenario, its clients torn down after each step", "[abandonment]") {
  for (const scenario& each : scenarios()) {
    DYNAMIC_SECTION(each.name) {
      const auto codes = after_each_step(each, [](scene& in) { in.near.reset(); });
      CHECK(codes.contains(125));
    }
  }
}

TEST_CASE("abandonment: every scenario, its servers torn down after each step", "[abandonment]") {
  for (const scenario& each : scenarios()) {
    DYNAMIC_SECTION(each.name) {
      const auto codes = after_each_step(each, [](scene& in) {
        in.tear_down_servers();
        in.sim.run_until([&] { return in.ended(); });
      });
      CHECK(codes.size() >= 2);
    }
  }
}

TEST_CASE("abandonment: every scenario, its calls cancelled after each step", "[abandonment]") {
  for (const scenario& each : scenarios()) {
    DYNAMIC_SECTION(each.name) {
      const auto codes = after_each_step(each, [](scene& in) {
        for (call& started : in.calls) started.control.StartCancel();
        in.sim.run_until([&] { return in.ended(); });
        in.sim.run_for(100ms);  // late answers come and are dropped
        for (auto& server : in.servers) {
          // Nothing of it runs on.
          std::optional<std::vector<std::string>> left;
          server->async_stop(
              {.grace = 0ms, .kill = 50ms},
              [&](const error_code&, std::vector<std::string> names) { left = std::move(names); });
          in.sim.run_until([&] { return left.has_value(); });
          REQUIRE(left);
          CHECK(left->empty());
        }
      });
      CHECK(codes.contains(125));
    }
  }
}
