#include <braid/parallel_channel.hpp>

#include "auth_fixture.hpp"
#include "call_fixture.hpp"
#include "client/connection_table.hpp"
#include "sent_frames.hpp"
#include "wire/control_frame.hpp"

#include <boost/asio/bind_cancellation_slot.hpp>
#include <catch2/catch.hpp>

#include <array>
#include <deque>
#include <random>
#include <string>
#include <vector>

namespace {

using namespace call_fixture;
using braid::connection_type;
using braid::testing::link_faults;

const braid::endpoint server_at = braid::endpoint::parse(address).value();

// A process with two loops and a channel of a type. With `single` one of the loops, which one is not the
// test's to know, has the connection, and the other's calls cross.
struct two_loop_client {
  two_loop_client(simulation& sim, connection_type type, braid::channel_options options = {})
      : sim(sim), channel(std::make_unique<braid::channel>(make_process())) {
    options.connection_type = type;
    channel->init(address, std::move(options));
  }

  braid::runtime& make_process() {
    auto options = sim.node_options();
    options.loops = 2;
    process = std::make_unique<braid::runtime>(options);
    return *process;
  }
  void on(std::size_t loop, std::function<void()> function) {
    process->core()->at(loop).post(std::move(function));
    sim.run_for(0ms);
  }
  void start_here(started_call& call) {
    call.completions = 0;
    channel->async_call(echo(), call.control, call.message, call.response, [this, &call](error_code ec) {
      ++call.completions;
      call.ec = ec;
      call.ended_at = sim.elapsed();
    });
  }
  void start(started_call& call, std::size_t loop) {
    on(loop, [&] { start_here(call); });
  }
  bool finish(started_call& call) {
    return sim.run_until([&] { return call.done(); });
  }
  error_code round(std::size_t loop) {
    started_call call;
    start(call, loop);
    finish(call);
    return call.ec;
  }
  std::uint64_t late_answers() {
    std::uint64_t found = 0;
    for (const std::size_t loop : {0, 1}) {
      on(loop, [&] {
        found += braid::core::loop::current()->service<braid::client::connection_table>().late_answers();
      });
    }
    return found;
  }

  simulation& sim;
  std::unique_ptr<braid::runtime> process;
  std::unique_ptr<braid::channel> channel;
};

}  // namespace

TEST_CASE("connection types: one for each loop, one for all, or one for each call") {
  const auto [type, connects, left_open] =
      GENERATE(table<connection_type, std::size_t, std::size_t>({{connection_type::per_loop, 2, 2},
                                                                 {connection_type::single, 1, 1},
                                                                 {connection_type::short_lived, 6, 0}}));
  simulation sim(1);
  server_node server(sim);
  two_loop_client client(sim, type);
  for (int i = 0; i < 3; ++i) {
    CHECK_FALSE(client.round(0));
    CHECK_FALSE(client.round(1));
  }
  sim.run_for(1ms);
  CHECK(sim.network().attempts(server_at) == connects);
  CHECK(sim.network().connections(server_at) == left_open);
  client.channel.reset();
  sim.run_for(1ms);
  CHECK(sim.network().connections(server_at) == 0);
}

TEST_CASE("connection types: one that does not exist is refused by init, with the names of those that do") {
  simulation sim(1);
  braid::runtime rt(sim.node_options());
  braid::channel channel(rt);
  std::string text;
  try {
    channel.init(address, {.connection_type = static_cast<connection_type>(3)});
  } catch (const boost::system::system_error& refused) {
    CHECK(refused.code().value() == 22);
    text = refused.what();
  }
  CHECK(has(text, "connection_type 3"));
  CHECK(has(text, "per_loop, single, short_lived"));
}

TEST_CASE("connection types: a cancel reaches the handler with its cause, from each loop") {
  const auto type = GENERATE(connection_type::single, connection_type::short_lived);
  const std::size_t loop = GENERATE(0, 1);
  const bool connected = GENERATE(false, true);
  simulation sim(1);
  sim.network().set_default({.latency = 10ms});
  std::vector<braid::cancel_cause> causes;
  int running = 0;
  server_node server(sim, [&](braid::server_call& call, const EchoRequest& wanted, EchoResponse&,
                              braid::yield_context yield) {
    if (wanted.message() == "quick") return;
    ++running;
    error_code ec;
    braid::sleep_for(1h, yield[ec]);
    causes.push_back(call.cancelled());
  });
  two_loop_client client(sim, type, {.timeout = -1s});
  if (connected) {
    for (const std::size_t each : {0, 1}) {
      started_call quick;
      quick.message.set_message("quick");
      client.start(quick, each);
      CHECK(client.finish(quick));
    }
  }
  started_call call;
  client.start(call, loop);
  REQUIRE(sim.run_until([&] { return running == 1; }));
  sim.run_for(50ms);  // the server has been heard
  const auto from = sim.elapsed();
  call.control.StartCancel();
  REQUIRE(client.finish(call));
  CHECK(call.ec == aborted);
  CHECK(sim.elapsed() == from);
  REQUIRE(sim.run_until([&] { return !causes.empty(); }));
  CHECK(causes == std::vector{braid::cancel_cause::user});
  CHECK(sim.elapsed() - from <= 11ms);
}

TEST_CASE("connection types: a deadline is told to the server, from each loop") {
  const auto type = GENERATE(connection_type::single, connection_type::short_lived);
  const std::size_t loop = GENERATE(0, 1);
  simulation sim(1);
  scripted_server server(sim);
  two_loop_client client(sim, type, {.timeout = 100ms});
  started_call call;
  client.start(call, loop);
  sim.run_for(1ms);
  REQUIRE(server.requests().size() == 1);
  server.send(std::string(braid::wire::control_frame::announcement().bytes()));
  CHECK(client.finish(call));
  CHECK(call.ec == braid::errc::timed_out);
  sim.run_for(1ms);
  const auto cancels = sent_frames::cancels_in(server.received());
  REQUIRE(cancels.size() == 1);
  CHECK(cancels[0].id == server.requests()[0].id);
  CHECK(cancels[0].cause == 1);
}

TEST_CASE("connection types: each connection authenticates once, whichever loop its calls are of") {
  const auto [type, connections] = GENERATE(table<connection_type, std::size_t>(
      {{connection_type::per_loop, 2}, {connection_type::single, 1}, {connection_type::short_lived, 6}}));
  simulation sim(1);
  const auto auth = std::make_shared<auth_fixture::scripted_authenticator>();
  braid::server_options guarded;
  guarded.auth = auth;
  braid::runtime process(sim.node_options());
  braid::server server(process, guarded);
  std::vector<std::string> users;
  server.handle(&golden::EchoService::Echo,
                [&](braid::server_call& call, const EchoRequest& wanted, EchoResponse& response) {
                  users.push_back(call.auth()->user);
                  response.set_message(wanted.message());
                });
  server.start(address);
  two_loop_client client(sim, type, {.auth = auth});
  for (int i = 0; i < 3; ++i) {
    CHECK_FALSE(client.round(0));
    CHECK_FALSE(client.round(1));
  }
  CHECK(users == std::vector<std::string>(6, "123"));
  CHECK(auth->generated == static_cast<int>(connections));
  CHECK(auth->shown == std::vector<std::string>(connections, "token-123"));
}

TEST_CASE("short_lived: calls at the same time have connections of their own, closed when they end") {
  simulation sim(1);
  server_node server(sim);
  two_loop_client client(sim, connection_type::short_lived);
  std::array<started_call, 3> calls;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    calls[i].message.set_sleep_ms(static_cast<int>(10 * (i + 1)));
    client.start(calls[i], i % 2);
  }
  sim.run_for(5ms);
  CHECK(sim.network().connections(server_at) == 3);
  for (std::size_t i = 0; i < calls.size(); ++i) {
    CHECK(client.finish(calls[i]));
    CHECK_FALSE(calls[i].ec);
    sim.run_for(1ms);
    CHECK(sim.network().connections(server_at) == 2 - i);
  }
}

TEST_CASE("short_lived: a call that fails leaves no connection") {
  simulation sim(1);
  scripted_server server(sim);
  two_loop_client client(sim, connection_type::short_lived, {.timeout = 50ms, .connect_timeout = 20ms});
  started_call call;
  SECTION("at its deadline") {
    client.start(call, 0);
    CHECK(client.finish(call));
    CHECK(call.ec == braid::errc::timed_out);
  }
  SECTION("when it is cancelled") {
    client.start(call, 1);
    sim.run_for(5ms);
    call.control.StartCancel();
    CHECK(client.finish(call));
    CHECK(call.ec == aborted);
  }
  SECTION("when it is refused") {
    sim.network().set(server_at, {.refuse = true});
    client.start(call, 0);
    CHECK(client.finish(call));
    CHECK(call.ec == errno_code(111));
  }
  SECTION("when no connection comes") {
    sim.network().set(server_at, {.black_hole = true});
    client.start(call, 0);
    CHECK(client.finish(call));
    CHECK(call.ec == errno_code(110));
  }
  SECTION("when the server closes") {
    client.start(call, 1);
    sim.run_for(5ms);
    server.close(false);
    CHECK(client.finish(call));
    CHECK(call.ec == braid::errc::eof);
  }
  SECTION("when its runtime goes") {
    client.start(call, 1);
    sim.run_for(5ms);
    client.process.reset();
    CHECK(call.ec == aborted);
  }
  if (server.connections() != 0) server.close(false);  // its end of a connection that the client has left
  sim.run_for(1ms);
  CHECK(call.completions == 1);
  CHECK(sim.network().connections(server_at) == 0);
}

TEST_CASE("single: metadata, attachments, application errors and large messages cross both ways") {
  const std::size_t loop = GENERATE(0, 1);
  simulation sim(1);
  server_node server(sim,
                     [](braid::server_call& call, const EchoRequest&, EchoResponse&, braid::yield_context) {
                       call.mutable_response_metadata().user_fields = call.request_metadata().user_fields;
                       call.mutable_response_metadata().set_user_field(
                           "log_id", std::to_string(*call.request_metadata().log_id));
                       call.response_attachment() = call.request_metadata().attachment;
                     });
  two_loop_client client(sim, connection_type::single, {.timeout = 10s});
  started_call call;
  const std::string large(3 << 20, 'x');
  call.message.set_message(large);
  call.control.mutable_request_metadata().set_user_field("tag", "t1");
  call.control.mutable_request_metadata().log_id = 7;
  call.control.request_attachment() = braid::buffer(large + "attached");
  client.start(call, loop);
  CHECK(client.finish(call));
  CHECK_FALSE(call.ec);
  CHECK(call.response.message() == large);
  const braid::controller& control = call.control;
  CHECK(control.response_attachment().to_string() == large + "attached");
  CHECK(control.response_metadata().user_field("tag") == "t1");
  CHECK(control.response_metadata().user_field("log_id") == "7");
  CHECK(control.remote_side() == server_at);
  CHECK(control.attempts() == 1);

  started_call failing;
  failing.message.set_fail_code(4321);
  failing.control.mutable_request_metadata().log_id = 8;
  client.start(failing, loop);
  CHECK(client.finish(failing));
  CHECK(failing.ec.value() == 4321);
  CHECK(failing.control.ErrorText() == "as asked");
  CHECK(failing.control.result().origin == braid::outcome_origin::peer);
}

TEST_CASE("single: a deadline ends a call on its own loop at its instant, and the late answer is dropped") {
  const std::size_t loop = GENERATE(0, 1);
  simulation sim(1);
  scripted_server server(sim);
  two_loop_client client(sim, connection_type::single);
  started_call call;
  call.control.set_timeout(50ms);
  started_call other;  // on the other loop, and not touched
  client.start(call, loop);
  client.start(other, 1 - loop);
  CHECK(client.finish(call));
  CHECK(call.ended_at == 50ms);
  CHECK(call.ec == braid::errc::timed_out);
  CHECK(call.control.result().cause == braid::cancel_cause::deadline);
  REQUIRE(server.requests().size() == 2);
  sim.run_for(1ms);
  for (const auto& each : server.requests()) server.send(answer(each.id, echoed()));
  CHECK(client.finish(other));
  CHECK_FALSE(other.ec);
  sim.run_for(1ms);
  CHECK(call.response.message().empty());
  CHECK(call.completions == 1);
  CHECK(client.late_answers() == 1);
  for (const auto& each : server.requests()) {
    CHECK(each.timeout_ms.value() <= (each.timeout_ms.value() <= 50 ? 50 : 500));
    CHECK(each.timeout_ms.value() >= 49);
  }
}

TEST_CASE(
    "single: an answer that is read at the instant of the deadline is late, in whatever order loops run") {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    simulation sim(seed);
    scripted_server server(sim);
    two_loop_client client(sim, connection_type::single);
    CHECK_FALSE(server.requests().size());
    std::array<started_call, 2> calls;
    for (const std::size_t loop : {0, 1}) {
      calls[loop].control.set_timeout(50ms);
      client.start(calls[loop], loop);
    }
    sim.run_for(50ms - 1ns);
    REQUIRE(server.requests().size() == 2);
    sim.network().set(server_at, {.latency = 1ns});  // rounded up to a tick: it comes at 50 ms
    for (const auto& each : server.requests()) server.send(answer(each.id, echoed()));
    for (auto& call : calls) {
      CHECK(client.finish(call));
      CHECK(call.ec == braid::errc::timed_out);
      CHECK(call.ended_at == 50ms);
    }
  }
}

TEST_CASE("single: a call that is cancelled before the connection exists is never sent") {
  const std::size_t loop = GENERATE(0, 1);
  simulation sim(1);
  scripted_server server(sim);
  sim.network().set(server_at, {.latency = 10ms});
  two_loop_client client(sim, connection_type::single);
  started_call cancelled;
  cancelled.message.set_message("cancelled");
  started_call kept;
  kept.message.set_message("kept");
  SECTION("in a later turn") {
    client.start(cancelled, loop);
    client.start(kept, loop);
    sim.run_for(5ms);
    cancelled.control.StartCancel();
  }
  SECTION("in the turn in which it was started") {
    client.on(loop, [&] {
      client.start_here(cancelled);
      client.start_here(kept);
      cancelled.control.StartCancel();
    });
  }
  CHECK(client.finish(cancelled));
  CHECK(cancelled.ec == aborted);
  CHECK(cancelled.control.result().cause == braid::cancel_cause::user);
  CHECK(cancelled.ended_at <= 5ms);
  REQUIRE(sim.run_until([&] { return !server.requests().empty(); }));
  server.send(answer(server.requests()[0].id, echoed()));
  CHECK(client.finish(kept));
  CHECK_FALSE(kept.ec);
  REQUIRE(server.requests().size() == 1);
  CHECK(server.requests()[0].message == "kept");
}

TEST_CASE("single: a break fails the calls of all loops at once, and the next call connects anew") {
  simulation sim(1);
  scripted_server server(sim);
  two_loop_client client(sim, connection_type::single);
  std::array<started_call, 4> calls;
  for (std::size_t i = 0; i < calls.size(); ++i) client.start(calls[i], i % 2);
  sim.run_for(1ms);
  REQUIRE(server.requests().size() == 4);
  const auto [code, breaks] = GENERATE(table<int, int>({{104, 0}, {1014, 1}, {2002, 2}}));
  if (breaks == 0) server.close(true);
  if (breaks == 1) server.close(false);
  if (breaks == 2) server.send("what is no frame");
  for (auto& call : calls) {
    CHECK(client.finish(call));
    CHECK(braid::to_wire(call.ec) == code);
    CHECK(call.ended_at == 1ms);
    CHECK(call.control.result().retryable == (code != 2002));
    CHECK(has(call.control.ErrorText(), code == 2002 ? "broken frame" : address));
  }
  started_call next;
  client.start(next, 0);
  sim.run_for(1ms);
  REQUIRE(server.requests().size() == 5);
  server.send(answer(server.requests()[4].id, echoed()), 1);
  CHECK(client.finish(next));
  CHECK_FALSE(next.ec);
  CHECK(sim.network().attempts(server_at) == 2);
}

TEST_CASE("single: what fails where the connection is fails the call with the same code and text") {
  const std::size_t loop = GENERATE(0, 1);
  simulation sim(1);
  scripted_server server(sim);
  two_loop_client client(sim, connection_type::single,
                         {.connect_timeout = 20ms, .max_body_size = 4096, .max_unsent_bytes = 2048});
  started_call call;
  SECTION("nobody listens") {
    sim.network().set(server_at, {.refuse = true});
    client.start(call, loop);
    CHECK(client.finish(call));
    CHECK(call.ec == errno_code(111));
    CHECK(has(call.control.ErrorText(), address));
  }
  SECTION("no connection in time") {
    sim.network().set(server_at, {.black_hole = true});
    client.start(call, loop);
    CHECK(client.finish(call));
    CHECK(call.ec == errno_code(110));
    CHECK(call.ended_at == 20ms);
    CHECK_FALSE(call.control.result().cause != braid::cancel_cause::none);
  }
  SECTION("the request is too large") {
    call.message.set_message(std::string(5000, 'x'));
    client.start(call, loop);
    CHECK(client.finish(call));
    CHECK(call.ec == braid::errc::bad_request);
    CHECK(has(call.control.ErrorText(), "max_body_size 4096"));
  }
  SECTION("too much waits to be sent") {
    sim.network().set(server_at, {.latency = 10ms});
    started_call first;
    first.message.set_message(std::string(2000, 'x'));
    client.start(first, 1 - loop);
    call.message.set_message(std::string(2000, 'x'));
    client.start(call, loop);
    CHECK(client.finish(call));
    CHECK(call.ec == braid::errc::overcrowded);
    CHECK(has(call.control.ErrorText(), "max_unsent_bytes is 2048"));
    first.control.StartCancel();
    CHECK(client.finish(first));
  }
  SECTION("the answer is too large") {
    client.start(call, loop);
    sim.run_for(1ms);
    REQUIRE(server.requests().size() == 1);
    server.send(answer(server.requests()[0].id, echoed(std::string(5000, 'x'))));
    CHECK(client.finish(call));
    CHECK(call.ec == braid::errc::bad_response);
    CHECK(has(call.control.ErrorText(), "max_body_size 4096"));
  }
  SECTION("the answer cannot be read") {
    started_call other;
    client.start(call, loop);
    client.start(other, loop);
    sim.run_for(1ms);
    REQUIRE(server.requests().size() == 2);
    server.send(answer(server.requests()[0].id, "\xff\xff\xff"));
    server.send(answer(server.requests()[1].id, echoed()));
    CHECK(client.finish(call));
    CHECK(call.ec == braid::errc::bad_response);
    CHECK(client.finish(other));
    CHECK_FALSE(other.ec);
  }
}

TEST_CASE(
    "single: total cancellation ends a call of the connection's loop while it is unsent; one that crossed "
    "goes on") {
  simulation sim(1);
  scripted_server server(sim);
  sim.network().set(server_at, {.latency = 10ms});
  two_loop_client client(sim, connection_type::single);
  int cancelled = 0;
  for (const std::size_t loop : {0, 1}) {
    started_call call;
    boost::asio::cancellation_signal signal;
    client.on(loop, [&] {
      client.channel->async_call(echo(), call.control, call.message, call.response,
                                 boost::asio::bind_cancellation_slot(signal.slot(), [&](error_code ec) {
                                   ++call.completions;
                                   call.ec = ec;
                                 }));
    });
    client.on(loop, [&] { signal.emit(boost::asio::cancellation_type::total); });
    sim.run_for(1ms);
    if (call.done()) ++cancelled;
    client.on(loop, [&] { signal.emit(boost::asio::cancellation_type::terminal); });
    CHECK(client.finish(call));
    CHECK(call.ec == aborted);
  }
  CHECK(cancelled == 1);
}

TEST_CASE("single: the channel may go while calls run; the connection goes after the last of them") {
  simulation sim(1);
  server_node server(sim);
  two_loop_client client(sim, connection_type::single, {.timeout = 10s});
  std::array<started_call, 2> calls;
  for (const std::size_t loop : {0, 1}) {
    calls[loop].message.set_sleep_ms(static_cast<int>(10 * (loop + 1)));
    client.start(calls[loop], loop);
  }
  sim.run_for(1ms);
  client.channel.reset();
  for (auto& call : calls) {
    CHECK(client.finish(call));
    CHECK_FALSE(call.ec);
  }
  sim.run_for(1ms);
  CHECK(sim.network().connections(server_at) == 0);
}

TEST_CASE("single: a runtime that goes ends the calls of all loops with 125, connected or not") {
  const auto latency = GENERATE(0ms, 10ms);
  simulation sim(1);
  scripted_server server(sim);
  sim.network().set(server_at, {.latency = latency});
  two_loop_client client(sim, connection_type::single);
  std::array<started_call, 4> calls;
  for (std::size_t i = 0; i < calls.size(); ++i) client.start(calls[i], i % 2);
  if (GENERATE(true, false)) sim.run_for(1ms);
  client.process.reset();
  for (auto& call : calls) {
    CHECK(call.completions == 1);
    CHECK(call.ec == aborted);
    CHECK(call.control.result().cause == braid::cancel_cause::shutdown);
  }
}

TEST_CASE("single: combos of both loops share the connection") {
  simulation sim(1);
  server_node server(sim);
  two_loop_client client(sim, connection_type::single);
  braid::parallel_channel all(*client.process, {.timeout = 1s});
  for (int i = 0; i < 5; ++i) all.add_channel(client.channel.get());
  std::array<started_call, 2> calls;
  for (const std::size_t loop : {0, 1}) {
    client.on(loop, [&] {
      auto& call = calls[loop];
      all.async_call(echo(), call.control, call.message, call.response, [&](error_code ec) {
        ++call.completions;
        call.ec = ec;
      });
    });
  }
  for (auto& call : calls) {
    CHECK(client.finish(call));
    CHECK_FALSE(call.ec);
    CHECK(call.control.sub_count() == 5);
  }
  CHECK(sim.network().attempts(server_at) == 1);
}

namespace {

// Many calls of both loops with everything that may befall them; returns the trace.
std::uint64_t random_run(std::uint64_t seed, connection_type type) {
  simulation sim(seed);
  sim.network().set_default({.latency = 1ms, .jitter = 3ms});
  auto server = std::make_unique<server_node>(sim);
  two_loop_client client(sim, type, {.connect_timeout = 15ms});
  std::mt19937_64 random(seed);
  const auto below = [&](std::uint64_t n) { return random() % n; };
  std::deque<started_call> calls;
  for (int step = 0; step < 60; ++step) {
    switch (below(8)) {
      case 0:
        if (!calls.empty()) calls[below(calls.size())].control.StartCancel();
        break;
      case 1:
        if (below(4) == 0) sim.network().break_connections(server_at);
        break;
      case 2:
        if (below(4) == 0) sim.network().set(server_at, {.refuse = below(2) == 0, .latency = 2ms});
        break;
      default: {
        started_call& call = calls.emplace_back();
        call.control.set_timeout(std::chrono::milliseconds(1 + below(40)));
        call.message.set_sleep_ms(static_cast<int>(below(30)));
        client.start(call, below(2));
      }
    }
    sim.run_for(std::chrono::milliseconds(below(5)));
  }
  if (below(2) == 0) client.channel.reset();
  if (below(3) == 0) {
    client.process.reset();
  } else {
    sim.run_for(100ms);
  }
  for (auto& call : calls) {
    REQUIRE(call.completions == 1);
    const int code = braid::to_wire(call.ec);
    CAPTURE(seed, code);
    REQUIRE((code == 0 || code == 1008 || code == 125 || code == 104 || code == 111 || code == 110 ||
             code == 1014));
    REQUIRE((code == 1008) == (call.control.result().cause == braid::cancel_cause::deadline));
    if (code == 1008) REQUIRE(call.control.latency() == call.control.timeout());
    sim.record("call", code);
  }
  client.channel.reset();
  client.process.reset();
  sim.run_for(100ms);
  REQUIRE(sim.network().connections(server_at) == 0);
  return sim.trace().hash();
}

}  // namespace

TEST_CASE(
    "connection types: random calls, cancels, breaks and refusals end each call once, the same way for a "
    "seed") {
  const auto type =
      GENERATE(connection_type::per_loop, connection_type::single, connection_type::short_lived);
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    const auto first = random_run(seed, type);
    if (seed % 10 == 0) CHECK(random_run(seed, type) == first);
  }
}

TEST_CASE("single: what is on the way to the connection's loop counts against the limit of unsent bytes") {
  simulation sim(1);
  server_node server(sim);
  two_loop_client client(sim, connection_type::single, {.timeout = 1s, .max_unsent_bytes = 100'000});
  const std::size_t loop = GENERATE(0, 1);
  braid::core::loop& alone = client.process->core()->at(loop);
  std::array<started_call, 3> calls;
  alone.enter();  // the other loop is held up
  for (auto& call : calls) {
    call.message.set_message(std::string(60'000, 'x'));
    alone.post([&] { client.start_here(call); });
    alone.context().poll();
  }
  alone.leave();
  CHECK_FALSE(calls[0].done());
  for (const auto* over : {&calls[1], &calls[2]}) {
    CHECK(over->ec == braid::errc::overcrowded);
    CHECK(has(over->control.ErrorText(), "max_unsent_bytes is 100000"));
  }
  REQUIRE(client.finish(calls[0]));
  CHECK_FALSE(calls[0].ec);
  for (int i = 0; i < 3; ++i) {
    client.start(calls[1], loop);
    CHECK(client.finish(calls[1]));
    CHECK_FALSE(calls[1].ec);
  }
}
