// What a shield leaves running, and what is spawned inside it.
#include "unit/call_fixture.hpp"

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <catch2/catch.hpp>

using namespace call_fixture;
using braid::cancel_cause;
using braid::yield_context;
namespace asio = boost::asio;

namespace {

/// A coroutine that the test cancels, and a call of it to a server that never answers.
struct world {
  explicit world(std::function<void(yield_context)> body) {
    channel.init(address, {.timeout = 1h, .connect_timeout = 1h});
    braid::spawn(node, std::move(body), asio::bind_cancellation_slot(signal.slot(), [](error_code) {}));
    sim.run_for(1ms);
  }
  ~world() { cancel(); }
  void cancel() {
    signal.emit(asio::cancellation_type::terminal);
    sim.run_for(1ms);
  }
  void start_call() {
    channel.async_call(echo(), control, request(), response, [this](error_code ec) { ended = ec; });
  }

  simulation sim{1};
  scripted_server server{sim};
  braid::runtime node{sim.node_options()};
  braid::channel channel{node};
  asio::cancellation_signal signal;
  controller control;
  EchoResponse response;
  std::optional<error_code> ended;
};

}  // namespace

TEST_CASE("shield: calls that it leaves running are cancelled with its coroutine") {
  const bool nested = GENERATE(false, true);
  world w([&](yield_context self) {
    if (nested) {
      const braid::shield outer(self, 1h);
      const braid::shield inner(self, 5s);
      w.start_call();
    } else {
      const braid::shield guard(self, 5s);
      w.start_call();
    }
    braid::sleep_for(1h, self);
  });
  w.sim.run_for(1s);
  REQUIRE(w.server.requests().size() == 1);
  CHECK_FALSE(w.ended);
  w.cancel();
  CHECK(w.ended == aborted);
  CHECK(w.control.result().cause == cancel_cause::user);
}

TEST_CASE("shield: calls that it leaves running in a cancelled coroutine are cancelled then") {
  world w([&](yield_context self) {
    error_code ec;
    braid::sleep_for(1h, self[ec]);
    const braid::shield outer(self, 1h);
    {
      const braid::shield guard(self, 5s);
      w.start_call();
      braid::sleep_for(1s, self);
    }
    braid::sleep_for(1s, self);
  });
  w.cancel();
  w.sim.run_for(1500ms);
  CHECK_FALSE(w.ended);  // the outer one lives
  w.sim.run_for(1s);
  CHECK(w.ended == aborted);
  CHECK(w.control.result().cause == cancel_cause::user);
}

TEST_CASE("shield: a coroutine spawned inside waits as long as the shield lets its parent wait") {
  std::string steps;
  const auto child = [&](yield_context self) {
    error_code ec;
    braid::sleep_for(1ms, self[ec]);
    if (!ec && self.cancelled() == cancel_cause::none) steps += "began ";
    braid::sleep_for(1h, self[ec]);
    steps += braid::to_string(self.cancelled());
  };
  bool at_limit = false;
  SECTION("until its limit") { at_limit = true; }
  SECTION("until it is left") {}
  world w([&](yield_context self) {
    error_code ec;
    braid::sleep_for(1h, self[ec]);
    const braid::shield guard(self, 1s);
    braid::spawn(self, child);
    braid::sleep_for(at_limit ? 1h : 500ms, self[ec]);
  });
  w.cancel();
  w.sim.run_for(490ms);
  CHECK(steps == "began ");
  w.sim.run_for(20ms);
  CHECK(steps == (at_limit ? "began " : "began user"));
  w.sim.run_for(500ms);
  CHECK(steps == (at_limit ? "began deadline" : "began user"));
}

TEST_CASE("shield: a coroutine spawned inside has its parent's deadline once the shield is left") {
  bool went_on = false;
  world w([&](yield_context self) {
    {
      const braid::shield guard(self, 100ms);
      braid::spawn(self, [&](yield_context child) {
        CHECK(child.deadline() == std::chrono::steady_clock::time_point::max());
        braid::sleep_for(1s, child);
        w.start_call();
        error_code ec;
        braid::sleep_for(1h, child[ec]);
        went_on = child.cancelled() == cancel_cause::user;
      });
      braid::sleep_for(10ms, self);
    }
    braid::sleep_for(1h, self);
  });
  w.sim.run_for(2s);
  REQUIRE(w.server.requests().size() == 1);
  CHECK_FALSE(w.ended);
  w.cancel();
  CHECK(w.ended == aborted);
  CHECK(went_on);
}
