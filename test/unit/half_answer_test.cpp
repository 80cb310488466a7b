// A server that begins an answer and does not go on, or hardly: the calls of its connection do not wait for
// ever, and the next one finds another connection.

#include "unit/call_fixture.hpp"

#include <catch2/catch.hpp>

#include <deque>
#include <string>
#include <string_view>

namespace {

using namespace call_fixture;

struct scene {
  explicit scene(braid::channel_options options) : client(sim, std::move(options)) {}

  started_call& start() {
    client.start(calls.emplace_back());
    return calls.back();
  }
  void say(std::string_view bytes, std::size_t connection = 0) {
    server.send(std::string(bytes), connection);
    sim.run_for(0ms);
  }
  std::string answer_to(std::size_t request, std::size_t size = 10) const {
    return answer(server.requests().at(request).id, echoed(std::string(size, 'x')));
  }

  simulation sim{5};
  scripted_server server{sim};
  std::deque<started_call> calls;
  client_node client;
};

}  // namespace

TEST_CASE(
    "half an answer: after progress_timeout all calls of its connection fail with 110, the next goes to "
    "another") {
  scene s({.timeout = -1s, .progress_timeout = 5s});
  started_call& halved = s.start();
  started_call& behind = s.start();
  const std::string whole = s.answer_to(0);
  s.say(whole.substr(0, whole.size() - 1));
  s.sim.run_for(4990ms);
  CHECK_FALSE(halved.done());
  s.sim.run_for(20ms);
  for (const started_call* each : {&halved, &behind}) {
    CHECK(each->completions == 1);
    CHECK(each->ec.value() == ETIMEDOUT);
    CHECK(each->control.ErrorText().find("progress_timeout, 5000 ms") != std::string::npos);
    CHECK(each->control.result().retryable);
  }
  started_call& next = s.start();
  REQUIRE(s.server.connections() == 2);
  CHECK(s.server.ended(0));
  s.say(s.answer_to(2), 1);
  CHECK(next.done());
  CHECK_FALSE(next.ec);
}

TEST_CASE("half an answer: each KiB has its time, and so has the rest") {
  scene s({.timeout = -1s, .progress_timeout = 5s});
  started_call& slow = s.start();
  const std::string whole = s.answer_to(0, 5000);
  std::size_t sent = 0;
  const auto send = [&](std::size_t size) {
    s.say(whole.substr(sent, size));
    sent += size;
    s.sim.run_for(4s);
  };
  SECTION("a KiB in each") {
    while (sent < whole.size()) send(1024);
    CHECK(slow.done());
    CHECK_FALSE(slow.ec);
  }
  SECTION("less than that") {
    while (sent < whole.size() && !slow.done()) send(500);
    CHECK(slow.ec.value() == ETIMEDOUT);
    CHECK(sent < 2000);
  }
}

TEST_CASE("half an answer: the time begins anew with each answer, and a connection without one has none") {
  scene s({.timeout = -1s, .progress_timeout = 5s});
  started_call& first = s.start();
  started_call& second = s.start();
  const std::string two = s.answer_to(0) + s.answer_to(1);
  s.sim.run_for(60s);  // not a byte: that is for the deadline
  s.say(two.substr(0, 5));
  s.sim.run_for(4s);
  s.say(two.substr(5, two.size() / 2));  // the first one whole, part of the second
  CHECK(first.done());
  s.sim.run_for(4s);
  CHECK_FALSE(second.done());
  s.say(two.substr(5 + two.size() / 2));
  CHECK(second.done());
  CHECK_FALSE(second.ec);
  s.sim.run_for(60s);
  CHECK(s.server.connections() == 1);
  CHECK_FALSE(s.server.ended(0));
}

TEST_CASE("half an answer: without a progress_timeout the deadlines alone end its calls") {
  scene s({.timeout = 60s, .progress_timeout = 0s});
  started_call& halved = s.start();
  s.say(s.answer_to(0).substr(0, 20));
  s.sim.run_for(59s);
  CHECK_FALSE(halved.done());
  s.sim.run_for(2s);
  CHECK(halved.ec == braid::errc::timed_out);
}
