// The connections that calls share, and what a call ends with when one ends.

#include "call_fixture.hpp"

#include <catch2/catch.hpp>

#include <array>
#include <cstddef>

using namespace call_fixture;
using braid::errc;

TEST_CASE("call: channels connect when a call needs it and share their connection, groups do not", "[call]") {
  simulation sim(1);
  server_node server(sim);
  client_node client(sim);
  braid::channel same(*client.process), other(*client.process);
  same.init(address);
  other.init(address, {.connection_group = "other"});
  sim.run_for(1s);
  CHECK(attempts(sim) == 0);
  std::array<EchoResponse, 3> responses;
  int ended = 0;
  client.on_loop([&] {
    int i = 0;
    for (auto* each : {&client.channel, &same, &other})
      each->async_call(echo(), request(), responses[static_cast<std::size_t>(i++)], [&](error_code ec) {
        CHECK_FALSE(ec);
        ++ended;
      });
  });
  CHECK(sim.run_until([&] { return ended == 3; }));
  CHECK(attempts(sim) == 2);
}

TEST_CASE("call: a refused connection is 111 at once, and the next call tries again", "[call]") {
  simulation sim(1);
  client_node client(sim);
  started_call call;
  client.start(call);
  client.finish(call);
  CHECK(call.ec == boost::asio::error::connection_refused);
  CHECK(call.ended_at <= 2ms);
  CHECK(call.control.result().retryable);
  CHECK(has(call.control.ErrorText(), address));
  server_node server(sim);
  CHECK_FALSE(client.round());
}

TEST_CASE("call: a name that cannot be resolved is 112, one that can is called", "[call]") {
  simulation sim(1);
  server_node server(sim);
  client_node client(sim, {}, "nowhere.test:80");
  started_call call;
  client.start(call);
  client.finish(call);
  CHECK(call.ec == errno_code(EHOSTDOWN));
  CHECK(has(call.control.ErrorText(), "nowhere.test"));
  // The first address refuses.
  sim.set_host("nowhere.test",
               {boost::asio::ip::make_address("10.0.0.77"), boost::asio::ip::make_address("10.0.0.1")});
  client.start(call);
  client.finish(call);
  CHECK_FALSE(call.ec);
  CHECK(call.control.remote_side().to_string() == address);
}

TEST_CASE(
    "call: all calls of a connection that ends fail at once, with 1014 or 104, and the next connects anew",
    "[call]") {
  simulation sim(1);
  scripted_server server(sim);
  client_node client(sim);
  const bool reset = GENERATE(false, true);
  std::array<started_call, 3> calls;
  for (auto& each : calls) client.start(each);
  sim.run_for(10ms);
  server.close(reset);
  sim.run_for(0ms);
  for (auto& each : calls) {
    CHECK(each.completions == 1);
    CHECK(each.ec == (reset ? errno_code(ECONNRESET) : error_code(errc::eof)));
    CHECK(each.ended_at == 10ms);
    CHECK(has(each.control.ErrorText(), address));
    CHECK(each.control.result().retryable);
  }
  started_call next;
  client.start(next);
  sim.run_for(1ms);
  REQUIRE(server.connections() == 2);
  server.send(answer(server.requests().back().id, echoed()), 1);
  client.finish(next);
  CHECK_FALSE(next.ec);
}

TEST_CASE("call: a connection that breaks for another reason tells it, by its errno where the code does not",
          "[call]") {
  simulation sim(1);
  scripted_server server(sim);
  client_node client(sim);
  started_call call;
  client.start(call);
  sim.run_for(10ms);
  const int why = GENERATE(EHOSTUNREACH, ENETDOWN, ETIMEDOUT);
  sim.network().break_connections(braid::endpoint::parse(address).value(), errno_code(why));
  sim.run_for(0ms);
  REQUIRE(call.done());
  const bool has_number = why == ETIMEDOUT;  // 110: keepalive, or the user timeout
  CHECK(call.ec == (has_number ? errno_code(why) : error_code(errc::socket_failed)));
  CHECK(call.control.result().retryable);
  CHECK(has(call.control.ErrorText(), address));
  CHECK(has(call.control.ErrorText(), errno_code(why).message()));
  CHECK(has(call.control.ErrorText(), "(errno " + std::to_string(why) + ")") == !has_number);
}

TEST_CASE("call: answers in any order find their calls by their correlation id", "[call]") {
  simulation sim(1);
  scripted_server server(sim);
  client_node client(sim);
  std::array<started_call, 4> calls;
  for (auto& each : calls) client.start(each);
  REQUIRE(server.requests().size() == calls.size());
  std::size_t answered = 0;
  for (const std::size_t which : {2, 0, 3, 1}) {
    server.send(answer(server.requests()[which].id, echoed(std::to_string(which))));
    sim.run_for(1ms);
    CHECK_FALSE(calls[which].ec);
    CHECK(calls[which].response.message() == std::to_string(which));
    ++answered;
    CHECK(std::count_if(calls.begin(), calls.end(), [](const auto& each) { return each.done(); }) ==
          static_cast<std::ptrdiff_t>(answered));
  }
}
