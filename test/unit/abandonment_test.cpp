// A parallel call over servers on a simulated network, torn down or cancelled at every step of its way.
#include <braid/channel.hpp>
#include <braid/server.hpp>

#include "parallel_fixture.hpp"
#include "unit/simulated_step.hpp"

#include <map>
#include <optional>

using namespace parallel_fixture;
using braid::testing::simulation;

namespace {

/// Three servers in one simulated process and a parallel call in another.
class scene {
 public:
  explicit scene(std::uint64_t seed = 1) : sim(seed, braid::testing::loop_order::fixed) {
    // Replies arrive in pieces, so that a step may lie inside one.
    sim.network().set_default({.latency = 1ms, .max_delivery = 40});
    servers.emplace(sim.node_options());
    for (auto& each : server) {
      each = std::make_unique<braid::server>(*servers);
      each->handle(&golden::EchoService::Echo,
                   [this](braid::server_call& call, const golden::EchoRequest& request,
                          golden::EchoResponse& response, braid::yield_context yield) {
                     ++handled;
                     braid::sleep_for(2ms, yield);
                     response.set_message(request.message() + std::string(100, '.'));
                     call.response_attachment() = call.request_attachment();
                   });
      each->start("10.0.0.1:0");
    }
    client.emplace(sim.node_options());
    auto inner = std::make_shared<braid::parallel_channel>(*client);
    inner->add_channel(plain(1), nullptr, joining());
    inner->add_channel(plain(2), nullptr, joining());
    top =
        std::make_shared<braid::parallel_channel>(*client, braid::parallel_channel_options{.fail_limit = 1});
    top->add_channel(plain(0), nullptr, joining());
    top->add_channel(inner, nullptr, joining());
  }
  ~scene() {
    client.reset();
    for (auto& each : server) each.reset();
    servers.reset();
  }

  std::shared_ptr<braid::channel> plain(std::size_t index) {
    auto made = std::make_shared<braid::channel>(*client);
    made->init("10.0.0.1:" + std::to_string(server[index]->port()));
    return made;
  }

  void start() {
    call.control.mutable_request_metadata().attachment = braid::buffer("attached");
    top->async_call(echo_method(), call.control, call.request, call.response, [this](error_code ec) {
      ++call.completions;
      call.ec = ec;
    });
  }

  /// One handler of one loop, or what is due of its timers; when nothing is, time passes to the next timer.
  void step() { run_one_step(sim, {&*client, &*servers}); }

  simulation sim;
  std::optional<braid::runtime> servers;
  std::array<std::unique_ptr<braid::server>, 3> server;
  std::optional<braid::runtime> client;
  std::shared_ptr<braid::parallel_channel> top;
  test_call call;
  int handled = 0;
};

/// What a call of the scene may end with.
void check_ending(const test_call& call) {
  CHECK(call.completions == 1);
  if (call.code() == 0) {
    CHECK(call.response.message().size() == 3 * 108);
  } else {
    CHECK(call.code() == 125);
    CHECK(call.response.message() == "untouched");
  }
}

std::size_t steps_of_a_call() {
  scene in;
  in.start();
  std::size_t steps = 0;
  for (; !in.call.ended() && steps < 10'000; ++steps) in.step();
  check_ending(in.call);
  CHECK(in.call.code() == 0);
  CHECK(in.handled == 3);
  return steps;
}

}  // namespace

TEST_CASE("abandonment: a parallel call torn down after each of its steps completes once",
          "[parallel][abandonment]") {
  const std::size_t steps = steps_of_a_call();
  CHECK(steps > 20);
  std::map<int, int> codes;
  for (std::size_t until = 0; until <= steps; ++until) {
    CAPTURE(until);
    scene in;
    in.start();
    for (std::size_t i = 0; i < until; ++i) in.step();
    in.client.reset();
    check_ending(in.call);
    ++codes[in.call.code()];
  }
  CHECK(codes[0] >= 1);
  CHECK(codes[125] > 20);
}

TEST_CASE("abandonment: a parallel call whose servers are torn down after each of its steps completes once",
          "[parallel][abandonment]") {
  const std::size_t steps = steps_of_a_call();
  std::map<int, int> codes;
  for (std::size_t until = 0; until <= steps; ++until) {
    CAPTURE(until);
    scene in;
    in.start();
    for (std::size_t i = 0; i < until; ++i) in.step();
    for (auto& each : in.server) each.reset();
    in.servers.reset();
    CHECK(in.sim.run_until([&] { return in.call.ended(); }));
    CHECK(in.call.completions == 1);
    if (in.call.code() != 0) CHECK(in.call.response.message() == "untouched");
    ++codes[in.call.code()];
  }
  CHECK(codes[0] >= 1);
  CHECK(codes.size() >= 2);
}

TEST_CASE("abandonment: a parallel call cancelled after each of its steps completes once",
          "[parallel][abandonment]") {
  const std::size_t steps = steps_of_a_call();
  std::map<int, int> codes;
  for (std::size_t until = 0; until <= steps; ++until) {
    CAPTURE(until);
    scene in;
    in.start();
    for (std::size_t i = 0; i < until; ++i) in.step();
    in.call.control.StartCancel();
    in.call.control.StartCancel();
    CHECK(in.sim.run_until([&] { return in.call.ended(); }));
    in.sim.run_for(100ms);  // late replies come and are dropped
    check_ending(in.call);
    if (in.call.code() == 125) {
      CHECK(in.call.control.result().cause == cancel_cause::user);
      for (std::size_t i = 0; i < in.call.control.sub_count(); ++i) {
        if (in.call.sub_code(i) == 125) CHECK(in.call.sub_cause(i) == cancel_cause::user);
      }
    }
    ++codes[in.call.code()];
    // The connections are as good as before.
    test_call again;
    in.top->async_call(echo_method(), again.control, again.request, again.response,
                       [&](error_code ec) { again.ec = ec, ++again.completions; });
    CHECK(in.sim.run_until([&] { return again.ended(); }));
    CHECK(again.code() == 0);
  }
  CHECK(codes[0] >= 1);
  CHECK(codes[125] > 20);
}

TEST_CASE(
    "parallel: cancelled before the start, while connecting, after writing, after half a reply, at "
    "completion, "
    "after it",
    "[parallel][abandonment]") {
  scene in;
  const braid::endpoint at =
      braid::endpoint::parse("10.0.0.1:" + std::to_string(in.server[0]->port())).value();
  const auto ended = [&] { return in.call.ended(); };
  const auto cancel_now = [&] {
    in.call.control.StartCancel();
    const auto when = in.sim.elapsed();
    REQUIRE(in.sim.run_until(ended));
    CHECK(in.sim.elapsed() == when);
  };
  int expected = 125;
  SECTION("before the start") {
    in.call.control.StartCancel();
    in.start();
    REQUIRE(in.sim.run_until(ended));
    in.sim.run_for(50ms);
    CHECK(in.handled == 0);
    CHECK(in.sim.network().attempts(at) == 0);
  }
  SECTION("while connecting") {
    in.sim.network().set(at, {.black_hole = true});
    in.start();
    in.sim.run_for(20ms);
    CHECK(in.sim.network().attempts(at) == 1);
    CHECK(in.call.control.sub_count() == 0);
    cancel_now();
  }
  SECTION("after writing") {
    in.start();
    REQUIRE(in.sim.run_until([&] { return in.handled == 3; }));
    CHECK_FALSE(ended());
    cancel_now();
  }
  SECTION("after half a reply") {
    in.sim.network().set(
        at, {.latency = 1ms, .to_client = {.after = 60, .how = braid::testing::cut_point::kind::silence}});
    in.start();
    in.sim.run_for(100ms);
    CHECK(in.handled == 3);
    CHECK_FALSE(ended());
    cancel_now();
    CHECK(in.call.sub_code(1) == 0);
  }
  SECTION("at completion") {
    in.top->async_call(echo_method(), in.call.control, in.call.request, in.call.response, [&](error_code ec) {
      in.call.control.StartCancel();
      ++in.call.completions;
      in.call.ec = ec;
    });
    REQUIRE(in.sim.run_until(ended));
    expected = 0;
  }
  SECTION("after it") {
    in.start();
    REQUIRE(in.sim.run_until(ended));
    in.call.control.StartCancel();
    expected = 0;
  }
  in.sim.run_for(100ms);
  check_ending(in.call);
  CHECK(in.call.code() == expected);
  if (expected != 0) CHECK(in.call.control.result().cause == cancel_cause::user);
}
