// Answers that are none, requests that cannot be sent, and channels that cannot be made.

#include "call_fixture.hpp"
#include "watched_network.hpp"

#include <catch2/catch.hpp>

#include <array>
#include <cstddef>
#include <string>

using namespace call_fixture;
using braid::errc;
using braid::outcome_origin;

TEST_CASE("call: bytes that are no answers fail all calls of the connection with 2002", "[call]") {
  simulation sim(1);
  scripted_server server(sim);
  client_node client(sim);
  const std::string junk = GENERATE(
      std::string("HTTP/1.1 200 OK\r\n\r\n"), std::string("PRPC\0\0\0\2\0\0\0\2\xff\xff", 14),
      std::string("PRPC\0\0\0\1\0\0\0\2", 12), std::string("PRPC\x7f\xff\xff\xff\x7f\xff\xff\xff", 12));
  std::array<started_call, 3> calls;
  for (auto& each : calls) client.start(each);
  sim.run_for(10ms);
  server.send(junk);
  sim.run_for(0ms);
  for (auto& each : calls) {
    CHECK(each.completions == 1);
    CHECK(each.ec == errc::bad_response);
    CHECK(each.ended_at == 10ms);
    CHECK(has(each.control.ErrorText(), "broken frame"));
  }
  started_call next;
  client.start(next);
  sim.run_for(1ms);
  REQUIRE(server.connections() == 2);
  server.send(answer(server.requests().back().id, echoed()), 1);
  client.finish(next);
  CHECK_FALSE(next.ec);
}

TEST_CASE("call: an answer that cannot be read fails its call alone with 2002", "[call]") {
  simulation sim(1);
  scripted_server server(sim);
  client_node client(sim, {.max_body_size = 4096});
  started_call bad, good;
  client.start(bad);
  client.start(good);
  const auto id = server.requests().at(0).id;
  const int which = GENERATE(0, 1, 2, 3, 4, 5, 6, 7);
  const std::array<std::string, 8> answers{
      answer(id, "\xff\xff\xff"),
      answer(id, ""),
      answer(id, std::string(5000, 'x')),
      answer(id, echoed(), [](braid::wire::rpc_meta& meta) { meta.attachment_size = 1000; }),
      answer(id, echoed(), [](braid::wire::rpc_meta& meta) { meta.attachment_size = -1; }),
      answer(id, echoed(), [](braid::wire::rpc_meta& meta) { meta.compress_type = 2; }),
      answer(id, echoed(), [](braid::wire::rpc_meta& meta) { meta.content_type = 4; }),
      answer(id, echoed() + "\xff")};
  const std::array<const char*, 8> texts{"no valid golden.EchoResponse",
                                         "message",
                                         "max_body_size 4096",
                                         "attachment_size",
                                         "attachment_size",
                                         "no valid gzip",
                                         "content_type 4",
                                         "no valid golden.EchoResponse"};
  server.send(answers[static_cast<std::size_t>(which)]);
  client.finish(bad);
  CHECK(bad.ec == errc::bad_response);
  CHECK(bad.control.result().origin == outcome_origin::local);
  CHECK(has(bad.control.ErrorText(), texts[static_cast<std::size_t>(which)]));
  CHECK_FALSE(bad.response.has_message());  // nothing of what could be read of it
  CHECK_FALSE(good.done());
  server.send(answer(server.requests().at(1).id, echoed()));
  client.finish(good);
  CHECK_FALSE(good.ec);
  CHECK(server.connections() == 1);
}

TEST_CASE("call: answers to nobody are dropped and counted", "[call]") {
  simulation sim(1);
  scripted_server server(sim);
  client_node client(sim);
  started_call call;
  client.start(call);
  const auto id = server.requests().at(0).id;
  for (const std::int64_t wrong : {std::int64_t{0}, std::int64_t{-1}, id + 1, id ^ (std::int64_t{1} << 40)})
    server.send(answer(wrong, echoed("wrong")));
  server.send(answer(id, echoed("right")) + answer(id, echoed("twice")));
  client.finish(call);
  CHECK_FALSE(call.ec);
  CHECK(call.response.message() == "right");
  sim.run_for(1ms);
  CHECK(client.late_answers() == 5);
}

TEST_CASE("call: a request that cannot be sent fails alone with 1003 and says why", "[call]") {
  simulation sim(1);
  server_node server(sim);
  client_node client(sim, {.max_body_size = 4096});
  const bool connected = GENERATE(false, true);
  if (connected) REQUIRE_FALSE(client.round());
  started_call good, too_large, attached, incomplete, heavy;
  good.message.set_sleep_ms(10);
  too_large.message.set_message(std::string(5000, 'x'));
  attached.control.request_attachment() = braid::buffer(std::string(5000, 'x'));
  incomplete.message.clear_message();
  client.start(good);
  for (auto* each : {&too_large, &attached, &incomplete}) {
    client.start(*each);
    client.finish(*each);
    CHECK(each->ec == errc::bad_request);
    CHECK(each->control.result().origin == outcome_origin::local);
  }
  CHECK(has(too_large.control.ErrorText(), "max_body_size 4096"));
  CHECK(has(attached.control.ErrorText(), "max_body_size 4096"));
  CHECK(has(incomplete.control.ErrorText(), "message"));
  client.finish(good);
  CHECK_FALSE(good.ec);
  CHECK(attempts(sim) == 1);
}

TEST_CASE("call: metadata over the limit of a meta fails its call alone with 1003", "[call]") {
  simulation sim(1);
  server_node server(sim);
  client_node client(sim);
  started_call good, heavy;
  good.message.set_sleep_ms(10);
  heavy.control.mutable_request_metadata().set_user_field("key", std::string(70'000, 'x'));
  client.start(good);
  client.start(heavy);
  client.finish(heavy);
  CHECK(heavy.ec == errc::bad_request);
  CHECK(has(heavy.control.ErrorText(), "metadata"));
  client.finish(good);
  CHECK_FALSE(good.ec);
}

TEST_CASE("call: over the limit of unsent bytes a call fails at once with 1011", "[call]") {
  started_call warm, first, over, small, again;
  simulation sim(1);
  scripted_server server(sim);
  client_node client(sim, {.max_unsent_bytes = 50'000});
  const bool connecting = GENERATE(false, true);
  if (connecting) {
    black_hole(sim);
  } else {
    client.start(warm);
    sim.run_for(1ms);
    sim.network().set_default({.stalled = true, .window = 1024});
  }
  first.message.set_message(std::string(40'000, 'x'));
  over.message.set_message(std::string(40'000, 'y'));
  const auto begin = sim.elapsed();
  for (auto* each : {&first, &over, &small}) client.start(*each);
  client.finish(over);
  CHECK(over.ec == errc::overcrowded);
  CHECK(over.ended_at == begin);
  CHECK(has(over.control.ErrorText(), "max_unsent_bytes is 50000"));
  CHECK_FALSE(first.done());
  CHECK_FALSE(small.done());
  if (!connecting) return;
  // What is cancelled makes room.
  first.control.StartCancel();
  client.finish(first);
  again.message.set_message(std::string(40'000, 'z'));
  client.start(again);
  CHECK_FALSE(again.done());
}

TEST_CASE("call: a channel that was not initialised fails its calls with 22", "[call]") {
  simulation sim(1);
  braid::runtime process(sim.node_options());
  braid::channel channel(process);
  controller control;
  EchoResponse response;
  error_code ec;
  channel.call(echo(), control, request(), response, ec);
  CHECK(ec == errno_code(EINVAL));
  CHECK(has(control.ErrorText(), "not initialised"));
  CHECK_FALSE(channel.usable());
  try {
    channel.call(echo(), request(), response);
    FAIL("nothing was thrown");
  } catch (const braid::call_error& e) {
    CHECK(e.peer().empty());
  }
}

TEST_CASE("call: a channel is initialised once", "[call]") {
  simulation sim(1);
  braid::runtime process(sim.node_options());
  braid::channel channel(process);
  error_code ec;
  channel.init("nonsense", {}, ec);
  CHECK(ec);
  channel.init(address, {}, ec);  // an attempt that failed does not count
  CHECK_FALSE(ec);
  channel.init("10.0.0.2:80", {}, ec);
  CHECK(ec == errno_code(EINVAL));
  CHECK_THROWS_WITH(channel.init("10.0.0.2:80"), Catch::Contains("initialised before"));
}

TEST_CASE("call: keepalive and user timeout are on unless they are switched off, on both sides", "[call]") {
  const bool on = GENERATE(true, false);
  simulation sim(1);
  const auto near = watched_network::of(sim);
  const auto far = watched_network::of(sim);
  braid::runtime server_side(far->watch(sim.node_options()));
  braid::runtime client_side(near->watch(sim.node_options()));
  braid::server server(server_side, on ? braid::server_options{}
                                       : braid::server_options{.keepalive = 0s, .tcp_user_timeout = 0ms});
  server.start(address);
  braid::channel channel(client_side);
  channel.init(address, on ? braid::channel_options{}
                           : braid::channel_options{.keepalive = 0s, .tcp_user_timeout = 0ms});
  started_call call;
  channel.async_call(echo(), call.control, call.message, call.response,
                     [&](error_code) { ++call.completions; });
  REQUIRE(sim.run_until([&] { return call.done(); }));
  for (const auto& each : {near, far}) {
    CHECK((each->asked.keepalive > 0s) == on);
    CHECK((each->asked.user_timeout > 0ms) == on);
  }
}

TEST_CASE("call: bad addresses and options are named by init", "[call]") {
  simulation sim(1);
  braid::runtime process(sim.node_options());
  const auto why = [&](std::string_view to, braid::channel_options options = {}) {
    braid::channel channel(process), other(process);
    error_code ec;
    other.init(to, options, ec);
    CHECK(ec);
    try {
      channel.init(to, options);
    } catch (const boost::system::system_error& e) {
      CHECK(e.code() == ec);
      CHECK(has(e.what(), to));
      return std::string(e.what());
    }
    return std::string("nothing thrown");
  };
  CHECK(has(why("10.0.0.1"), "port"));
  CHECK(has(why("10.0.0.1:0"), "port 0"));
  CHECK(has(why("10.0.0.1:70000"), "port"));
  CHECK(has(why("unix:"), "the path of the unix socket is empty"));
  for (const char* bad : {"", ":80", "[::1:80", "256.1.1.1:80", "a b:80", "list://10.0.0.1:80"})
    CHECK_FALSE(has(why(bad), "nothing thrown"));
  CHECK(has(why(address, {.max_body_size = 0}), "max_body_size"));
  CHECK(has(why(address, {.max_body_size = std::size_t{1} << 31}), "max_body_size"));
  CHECK(has(why(address, {.keepalive = std::chrono::seconds(-1)}), "keepalive"));
  CHECK(has(why(address, {.tcp_user_timeout = std::chrono::milliseconds(-1)}), "tcp_user_timeout"));
}
