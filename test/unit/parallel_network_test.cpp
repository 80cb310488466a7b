// Parallel calls over the simulated network: what depends on when bytes were sent and arrive.

#include <braid/parallel_channel.hpp>

#include "call_fixture.hpp"

#include <boost/asio/bind_cancellation_slot.hpp>
#include <catch2/catch.hpp>

#include <optional>

using namespace call_fixture;
using boost::asio::cancellation_signal;
using boost::asio::cancellation_type;
using braid::cancel_cause;
using braid::errc;

namespace {

constexpr const char* second_address = "10.0.0.2:80";

/// A parallel channel over a server that answers and one that never does.
struct two_servers {
  explicit two_servers(braid::parallel_channel_options options)
      : other(*client.process), both(*client.process, options) {
    other.init(second_address);
    both.add_channel(&client.channel);
    both.add_channel(&other);
  }
  void connect() {
    REQUIRE_FALSE(client.round());
    started_call unanswered;
    unanswered.control.set_timeout(1ms);
    client.on_loop([&] {
      other.async_call(echo(), unanswered.control, unanswered.message, unanswered.response,
                       client.completion(unanswered));
    });
    client.finish(unanswered);
    sim.run_for(100ms);
  }
  void start(started_call& call, boost::asio::cancellation_slot slot = {}) {
    client.on_loop([this, &call, slot] {
      both.async_call(echo(), call.control, call.message, call.response,
                      boost::asio::bind_cancellation_slot(slot, client.completion(call)));
    });
  }

  simulation sim{1};
  bool answers = true;
  scripted_server answering{sim, [this](const seen_request& seen) {
                              if (answers) answering.send(answer(seen.id, echoed()), seen.connection);
                            }};
  scripted_server silent{sim, nullptr, second_address};
  client_node client{sim};
  braid::channel other;
  braid::parallel_channel both;
};

}  // namespace

TEST_CASE("parallel: a reply after the deadline's instant ends the whole call before its timer does",
          "[parallel]") {
  two_servers w({.fail_limit = 1});
  w.connect();
  w.answers = false;
  // Timers go by milliseconds; the reply comes between the deadline and the next of them.
  w.sim.run_for(1ms - w.sim.elapsed() % 1ms);
  started_call call;
  call.control.set_timeout(10400us);
  const auto begin = w.sim.elapsed();
  w.start(call);
  w.sim.run_for(10600us);
  CHECK_FALSE(call.done());
  w.answering.send(answer(w.answering.requests().back().id, echoed()));
  w.client.finish(call);
  CHECK(call.ended_at - begin == 10600us);
  CHECK(call.ec == errc::timed_out);
  CHECK(call.control.result().cause == cancel_cause::deadline);
  for (std::size_t i = 0; i < 2; ++i) {
    CHECK(call.control.sub(i)->error() == errc::timed_out);
    CHECK(call.control.sub(i)->result().cause == cancel_cause::deadline);
  }
}

TEST_CASE("parallel: a connection that breaks at or after the deadline ends all its sub calls with 1008",
          "[parallel]") {
  const auto breaks_after = GENERATE(10400us, 10600us);
  const bool reset = GENERATE(false, true);
  two_servers w({});
  REQUIRE_FALSE(w.client.round());
  w.answers = false;
  braid::parallel_channel same(*w.client.process);
  for (int i = 0; i < 4; ++i) same.add_channel(&w.client.channel);
  w.sim.run_for(1ms - w.sim.elapsed() % 1ms);
  started_call call;
  call.control.set_timeout(10400us);
  w.client.on_loop(
      [&] { same.async_call(echo(), call.control, call.message, call.response, w.client.completion(call)); });
  w.sim.run_for(breaks_after);
  REQUIRE_FALSE(call.done());
  w.answering.close(reset);
  w.client.finish(call);
  CHECK(call.ec == errc::timed_out);
  for (std::size_t i = 0; i < 4; ++i) CHECK(call.control.sub(i)->error() == errc::timed_out);
  w.answers = true;
  CHECK_FALSE(w.client.round());
}

TEST_CASE("parallel: total cancels while nothing was sent, and not when a sub call that has ended was",
          "[parallel]") {
  const bool sent = GENERATE(false, true);
  two_servers w({});
  if (sent) REQUIRE_FALSE(w.client.round());
  // No connection is made any more, so that what has not ended by then was not sent.
  w.sim.network().set_default({.latency = 50s});
  if (sent) w.sim.network().set(braid::endpoint::parse(address).value(), {});
  started_call call;
  cancellation_signal signal;
  w.start(call, signal.slot());
  w.sim.run_for(5ms);
  const std::size_t asked = w.answering.requests().size();
  CHECK(asked == (sent ? 2U : 0U));
  w.client.on_loop([&] { signal.emit(cancellation_type::total); });
  CHECK(call.done() == !sent);
  w.client.on_loop([&] { signal.emit(cancellation_type::terminal); });
  w.client.finish(call);
  CHECK(call.ec == aborted);
  CHECK(call.completions == 1);
}

TEST_CASE(
    "parallel: a sub call whose connects were refused has sent nothing, also behind others of our parts",
    "[parallel]") {
  constexpr const char* refusing = "10.0.0.3:80";
  const bool behind_interceptor = GENERATE(true, false);  // else on another runtime
  const bool answers = GENERATE(false, true);
  simulation sim(1);
  std::optional<server_node> server;
  if (answers) server.emplace(sim, nullptr, refusing);
  client_node client(sim, {}, second_address);  // which never connects
  sim.network().set(braid::endpoint::parse(second_address).value(), {.black_hole = true});
  braid::runtime elsewhere(sim.node_options());
  braid::channel other(behind_interceptor ? *client.process : elsewhere);
  braid::channel_options options;
  if (behind_interceptor) {
    options.interceptors.emplace_back(
        [](controller&, braid::client_next& next, braid::yield_context yield) { next(yield); });
  }
  other.init(refusing, std::move(options));
  braid::parallel_channel both(*client.process, {});
  both.add_channel(&client.channel);
  both.add_channel(&other);
  started_call call;
  cancellation_signal signal;
  client.on_loop([&] {
    both.async_call(echo(), call.control, call.message, call.response,
                    boost::asio::bind_cancellation_slot(signal.slot(), client.completion(call)));
  });
  sim.run_for(5ms);
  client.on_loop([&] { signal.emit(cancellation_type::total); });
  CHECK(call.done() == !answers);
  client.on_loop([&] { signal.emit(cancellation_type::terminal); });
  client.finish(call);
  CHECK(call.ec == aborted);
  CHECK(call.control.sub(1)->error().value() == (answers ? 0 : 111));
  CHECK(call.control.sub(1)->attempts() == 1);
}
