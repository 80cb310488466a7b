// Times that are too long to count on the clock never come.
#include "core/environment.hpp"
#include "unit/server_world.hpp"

#include <limits>

using namespace server_test;

namespace {

constexpr auto longest = std::chrono::milliseconds::max();

}  // namespace

TEST_CASE("long times: an instant that is too far to count is the last one, in each unit") {
  using braid::core::saturating_add;
  using braid::core::time_point;
  const time_point now{1h};
  CHECK(saturating_add(now, 5ms) == now + 5ms);
  CHECK(saturating_add(now, -5ms) == now - 5ms);
  CHECK(saturating_add(now, std::chrono::nanoseconds::max()) == time_point::max());
  CHECK(saturating_add(now, longest) == time_point::max());
  CHECK(saturating_add(now, std::chrono::hours::max()) == time_point::max());
  CHECK(saturating_add(time_point::max(), 1ms) == time_point::max());
  CHECK(saturating_add(time_point::max(), longest) == time_point::max());
  // What lies before the clock's start is as long past as can be told.
  CHECK(saturating_add(now, std::chrono::milliseconds::min()) == time_point{});
  CHECK(saturating_add(now, std::chrono::hours::min()) == time_point{});
}

TEST_CASE("long times: a server whose times are the longest there are waits for ever") {
  world w({.default_timeout = longest,
           .progress_timeout = longest,
           .idle_timeout = longest,
           .auth_timeout = longest});
  w.start([](server_call&, const EchoRequest& q, EchoResponse& r, yield_context yield) {
    if (q.message() == "slow") braid::sleep_for(1h, yield);
    r.set_message(q.message());
  });
  auto idle = w.connect();
  auto half = w.connect();
  half.send("PRPC");
  auto slow = w.connect();
  slow.send(echo(1, "slow"));
  w.sim.run_for(2h);
  CHECK_FALSE(idle.closed());
  CHECK_FALSE(half.closed());
  REQUIRE(slow.answers().size() == 1);
  CHECK(slow.answers()[0].code == 0);
}

TEST_CASE("long times: what is sent with the longest latency never arrives") {
  world w;
  w.start();
  auto client = w.connect();
  w.sim.network().set(w.at, {.latency = std::chrono::nanoseconds::max()});
  client.send(echo(1, "x"));
  w.sim.run_for(48h);
  CHECK(client.answers().empty());
}

TEST_CASE("long times: a stop with the longest grace or kill time waits for its calls") {
  world w;
  bool cancelled = false;
  w.start([&](server_call&, const EchoRequest& q, EchoResponse& r, yield_context yield) {
    error_code ec;
    braid::sleep_for(1h, yield[ec]);
    cancelled = yield.cancelled() != cancel_cause::none;
    if (cancelled) {
      const braid::shield clean_up(yield, 2h);
      braid::sleep_for(1h, yield);
    }
    r.set_message(q.message());
  });
  auto client = w.connect();
  client.send(echo(1, "x"));
  std::optional<std::vector<std::string>> left;
  const auto stop = [&](stop_options how) {
    w.srv->async_stop(how, [&](error_code, std::vector<std::string> names) { left = std::move(names); });
  };
  SECTION("grace") {
    stop(within(longest, longest));
    w.sim.run_for(59min);
    CHECK_FALSE(left);
    w.sim.run_for(2min);
    REQUIRE(left);
    CHECK(left->empty());
    CHECK_FALSE(cancelled);
    REQUIRE(client.answers().size() == 1);
    CHECK(client.answers()[0].code == 0);
  }
  SECTION("kill time") {
    stop(within(1s, longest));
    w.sim.run_for(59min);
    CHECK_FALSE(left);
    w.sim.run_for(2min);
    REQUIRE(left);
    CHECK(left->empty());
    CHECK(cancelled);
  }
}
