// One deadline ends a call, whatever it waits for.

#include "call_fixture.hpp"

#include <catch2/catch.hpp>

#include <string>
#include <utility>
#include <vector>

using namespace call_fixture;
using braid::cancel_cause;
using braid::errc;
using braid::outcome_origin;

TEST_CASE("call: the default timeout is 500 ms, and the deadline ends a call that is never answered",
          "[call]") {
  simulation sim(1);
  scripted_server silent(sim);
  client_node client(sim);
  started_call call;
  client.start(call);
  client.finish(call);
  check_deadline(call, 500ms);
  CHECK(silent.requests().size() == 1);
  sim.run_for(5s);
  CHECK(call.completions == 1);
}

TEST_CASE("call: the channel's timeout, and the controller's before it", "[call]") {
  simulation sim(1);
  scripted_server silent(sim);
  client_node client(sim, {.timeout = 70ms});
  started_call by_channel, by_controller, longer;
  by_controller.control.set_timeout(30ms);
  longer.control.set_timeout(2s);
  for (auto* each : {&by_channel, &by_controller, &longer}) client.start(*each);
  client.finish(longer);
  check_deadline(by_channel, 70ms);
  check_deadline(by_controller, 30ms);
  check_deadline(longer, 2s);
}

TEST_CASE("call: a negative timeout is none", "[call]") {
  simulation sim(1);
  server_node server(sim);
  client_node client(sim, {.timeout = -1ms});
  started_call call;
  call.message.set_sleep_ms(3'600'000);
  client.start(call);
  client.finish(call);
  CHECK_FALSE(call.ec);
  CHECK(call.ended_at >= 1h);
  client_node limited(sim);
  started_call other;
  other.control.set_timeout(-1s);
  other.message.set_sleep_ms(10'000);
  limited.start(other);
  limited.finish(other);
  CHECK_FALSE(other.ec);
}

TEST_CASE("call: with a timeout of zero nothing is sent and the call ends with 1008", "[call]") {
  simulation sim(1);
  scripted_server server(sim);
  client_node client(sim, {.timeout = 0ms});
  started_call call;
  client.start(call);
  client.finish(call);
  check_deadline(call, 0ms);
  CHECK(attempts(sim) == 0);
}

TEST_CASE("call: the deadline ends a call that waits for a black-holed connection", "[call]") {
  simulation sim(1);
  black_hole(sim);
  client_node client(sim, {.timeout = 300ms, .connect_timeout = -1ms});
  started_call call;
  client.start(call);
  client.finish(call);
  check_deadline(call, 300ms);
}

TEST_CASE("call: no connection within the connect timeout is 110, unless the deadline has come", "[call]") {
  simulation sim(1);
  black_hole(sim);
  client_node client(sim, {.timeout = 300ms, .connect_timeout = 50ms});
  started_call call, earlier, same, second;
  earlier.control.set_timeout(20ms);
  same.control.set_timeout(50ms);
  for (auto* each : {&call, &earlier, &same}) client.start(*each);
  client.finish(call);
  CHECK(call.ec == errno_code(ETIMEDOUT));
  CHECK(call.ended_at >= 50ms);
  CHECK(call.ended_at <= 52ms);
  CHECK(call.control.result().cause == cancel_cause::none);
  CHECK(has(call.control.ErrorText(), address));
  check_deadline(earlier, 20ms);
  client.finish(same);
  check_deadline(same, 50ms);
  client.start(second);  // tried anew
  client.finish(second);
  CHECK(second.ec == errno_code(ETIMEDOUT));
  CHECK(attempts(sim) == 2);
}

TEST_CASE("call: the default connect timeout is 200 ms", "[call]") {
  simulation sim(1);
  black_hole(sim);
  client_node client(sim);
  started_call call;
  client.start(call);
  client.finish(call);
  CHECK(call.ec == errno_code(ETIMEDOUT));
  CHECK(call.ended_at >= 200ms);
  CHECK(call.ended_at <= 202ms);
}

TEST_CASE("call: the deadline ends a call whose name is never resolved", "[call]") {
  struct hanging final : braid::net::resolver {
    void start(request wanted) override { kept.push_back(std::move(wanted.state)); }
    std::vector<std::shared_ptr<braid::net::detail::lookup_state>> kept;
  };
  simulation sim(1);
  auto outside = std::make_shared<braid::core::environment>(*sim.environment());
  outside->resolver = std::make_shared<hanging>();
  auto options = sim.node_options();
  options.environment = outside;
  braid::runtime process(options);
  braid::channel channel(process);
  channel.init("slow.test:80", {.timeout = 100ms, .connect_timeout = -1ms});
  braid::channel impatient(process);
  impatient.init("slow.test:80", {.timeout = 100ms, .connect_timeout = 40ms});
  EchoResponse one, two;
  error_code first, second;
  std::chrono::nanoseconds ended{};
  process.core()->at(0).post([&] {
    channel.async_call(echo(), request(), one, [&](error_code ec) {
      first = ec;
      ended = sim.elapsed();
    });
    impatient.async_call(echo(), request(), two, [&](error_code ec) { second = ec; });
  });
  CHECK(sim.run_until([&] { return first && second; }));
  CHECK(first == errc::timed_out);
  CHECK(ended >= 100ms);
  CHECK(ended <= 102ms);
  CHECK(second == errno_code(ETIMEDOUT));
}

TEST_CASE("call: the deadline ends a call to a server that never reads, and the calls queued behind it",
          "[call]") {
  simulation sim(1);
  scripted_server server(sim);
  client_node client(sim, {.timeout = 100ms});
  sim.network().set_default({.stalled = true, .window = 1024});
  started_call large, queued;
  large.message.set_message(std::string(500'000, 'x'));
  client.start(large);
  client.start(queued);
  client.finish(queued);
  check_deadline(large, 100ms);
  check_deadline(queued, 100ms);
}

TEST_CASE("call: an answer processed at the deadline is late, one before it is not", "[call]") {
  simulation sim(1);
  server_node server(sim);
  client_node client(sim);
  sim.network().set_default({.latency = 50ms});
  started_call warm;
  client.start(warm);
  client.finish(warm);
  REQUIRE_FALSE(warm.ec);
  for (const auto& [timeout, in_time] :
       {std::pair(99ms, false), std::pair(100ms, false), std::pair(102ms, true)}) {
    started_call call;
    const auto begin = sim.elapsed();
    call.response.set_message("as it was");
    call.control.set_timeout(timeout);
    client.start(call);
    sim.run_for(1s);
    INFO(timeout.count());
    if (in_time) {
      CHECK_FALSE(call.ec);
      CHECK(call.response.message() == "hello");
    } else {
      check_deadline(call, begin + timeout);
      CHECK(call.response.message() == "as it was");
    }
  }
}

TEST_CASE("call: an answer processed at the deadline is late although the timer has not fired yet",
          "[call]") {
  simulation sim(1);
  scripted_server server(sim);
  client_node client(sim);
  started_call call;
  call.response.set_message("as it was");
  call.control.set_timeout(9200us);
  client.start(call);
  sim.run_for(9500us);
  REQUIRE_FALSE(call.done());  // timers have ticks of 1 ms
  server.send(answer(server.requests().at(0).id, echoed()));
  sim.run_for(0ms);
  check_deadline(call, 9500us);
  CHECK(call.ended_at == 9500us);
  CHECK(call.response.message() == "as it was");
  CHECK(client.late_answers() == 1);
}

TEST_CASE("call: a peer's own 1008 and 125 are answers, not the deadline or a cancellation", "[call]") {
  simulation sim(1);
  server_node server(sim);
  client_node client(sim);
  for (const int code : {1008, 125, 112, 2004, -5, 123456}) {
    started_call call;
    call.message.set_fail_code(code);
    client.start(call);
    client.finish(call);
    CHECK(call.ec == braid::from_wire(code));
    CHECK(call.control.result().cause == cancel_cause::none);
    CHECK(call.control.result().origin == outcome_origin::peer);
    CHECK(call.control.ErrorText() == "as asked");
  }
}
