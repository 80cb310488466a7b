// The cancel extension as a client keeps it, against scripted servers, and from end to end.

#include <braid/parallel_channel.hpp>

#include "client/kept_cancels.hpp"
#include "golden/golden_frames.hpp"
#include "unit/call_fixture.hpp"
#include "unit/sent_frames.hpp"
#include "unit/server_fixture.hpp"
#include "wire/control_frame.hpp"

#include <catch2/catch.hpp>

#include <array>
#include <deque>
#include <limits>
#include <map>

namespace {

using namespace call_fixture;
using namespace sent_frames;
using braid::cancel_cause;
using braid::errc;
using braid::server_call;
using braid::yield_context;
using braid::wire::control_frame;

const std::string announcement{control_frame::announcement().bytes()};

// A client and a scripted server that answers nothing by itself.
struct scripted {
  explicit scripted(braid::channel_options options = {.timeout = -1s}) : client(sim, std::move(options)) {}

  started_call& start() {
    client.start(calls.emplace_back());
    return calls.back();
  }
  void cancel(started_call& call) {
    call.control.StartCancel();
    sim.run_for(0ms);
  }
  void say(const std::string& bytes) {
    server.send(bytes);
    sim.run_for(0ms);
  }
  std::vector<sent_frame> cancels() const { return cancels_in(server.received()); }

  simulation sim{3};
  scripted_server server{sim};
  std::deque<started_call> calls;
  client_node client;
};

// A server whose handler waits until it is cancelled, and says why it was.
struct waiting_server : server_node {
  explicit waiting_server(simulation& sim, const char* at = address)
      : server_node(
            sim,
            [this](server_call& call, const EchoRequest& wanted, EchoResponse&, yield_context yield) {
              if (wanted.message() == "quick") return;
              ++running;
              error_code ec;
              braid::sleep_for(1h, yield[ec]);
              causes.push_back(call.cancelled());
              --running;
            },
            at) {}
  int running = 0;
  std::vector<cancel_cause> causes;
};

}  // namespace

TEST_CASE("cancel: the first request of a connection announces, and no other byte does") {
  scripted s;
  for (int i = 0; i < 3; ++i) s.start();
  const auto got = frames_in(s.server.received());
  REQUIRE(got.size() == 3);
  CHECK(got[0].features == 1);
  CHECK_FALSE(got[1].features);
  CHECK_FALSE(got[2].features);
  // Each connection anew.
  s.server.close(true);
  s.sim.run_for(0ms);
  s.start();
  REQUIRE(s.server.connections() == 2);
  CHECK(frames_in(s.server.received(1)).at(0).features == 1);
}

TEST_CASE("cancel: kept until the server is heard, then sent in order, the first call's too") {
  scripted s;
  for (int i = 0; i < 4; ++i) s.start();
  for (const int each : {0, 2, 1}) s.cancel(s.calls[static_cast<std::size_t>(each)]);
  CHECK(s.calls[0].ec == aborted);
  CHECK(s.cancels().empty());
  s.say(announcement);
  const auto ids = [&](std::size_t i) { return s.server.requests()[i].id; };
  auto got = s.cancels();
  REQUIRE(got.size() == 3);
  CHECK(got[0].id == ids(0));
  CHECK(got[1].id == ids(2));
  CHECK(got[2].id == ids(1));
  for (const auto& each : got) {
    CHECK(each.cause == 2);
    CHECK_FALSE(each.features);
  }
  s.cancel(s.calls[3]);  // now at once
  got = s.cancels();
  REQUIRE(got.size() == 4);
  CHECK(got[3].id == ids(3));
}

TEST_CASE("cancel: a server that does not announce first is never sent one") {
  scripted s;
  for (int i = 0; i < 4; ++i) s.start();
  s.cancel(s.calls[0]);
  s.say(answer(s.server.requests()[1].id, echoed()));  // its first frame, as bRPC sends it
  CHECK(s.calls[1].done());
  s.cancel(s.calls[2]);
  s.say(announcement);  // too late
  s.cancel(s.calls[3]);
  s.start();
  s.cancel(s.calls[4]);
  CHECK(s.cancels().empty());
  CHECK(frames_in(s.server.received()).size() == 5);
}

TEST_CASE("cancel: an answer may announce; the kept cancel of its own call is dropped") {
  scripted s;
  for (int i = 0; i < 2; ++i) s.start();
  s.cancel(s.calls[0]);
  s.cancel(s.calls[1]);
  s.say(answer(s.server.requests()[0].id, echoed(), [](auto& meta) { meta.features = 1; }));
  const auto got = s.cancels();
  REQUIRE(got.size() == 1);
  CHECK(got[0].id == s.server.requests()[1].id);
  CHECK(s.client.late_answers() == 1);
}

TEST_CASE("cancel: a server that speaks before it is asked is heard") {
  scripted s;
  s.start();
  s.cancel(s.calls[0]);
  s.server.close(true);  // the next connection is announced on before its first request has come
  s.sim.run_for(0ms);
  s.client.start(s.calls.emplace_back());
  s.server.send(announcement, 1);
  s.sim.run_for(0ms);
  s.cancel(s.calls[1]);
  const auto got = cancels_in(s.server.received(1));
  REQUIRE(got.size() == 1);
  CHECK(got[0].id == s.server.requests()[1].id);
}

TEST_CASE("cancel: announcements again, with odd bits, and cancels from a server mean nothing") {
  scripted s;
  for (int i = 0; i < 2; ++i) s.start();
  braid::wire::rpc_meta meta;
  meta.correlation_id = 0;
  meta.features = ~std::uint64_t{0};
  s.say(server_test::frame(meta, ""));
  meta.features = 0;
  s.say(server_test::frame(meta, "with a payload"));  // takes nothing back
  meta.correlation_id = s.server.requests()[0].id;
  s.say(server_test::frame(meta, echoed()));  // is no answer
  s.say(std::string(control_frame::cancel(s.server.requests()[1].id, cancel_cause::user).bytes()));
  CHECK_FALSE(s.calls[0].done());
  CHECK_FALSE(s.calls[1].done());
  s.cancel(s.calls[0]);
  CHECK(s.cancels().size() == 1);
  s.say(answer(s.server.requests()[1].id, echoed("fine")));
  CHECK(s.calls[1].response.message() == "fine");
  CHECK(s.client.late_answers() == 0);
}

TEST_CASE("cancel: what is kept for a server that is never heard is bounded") {
  scripted s;
  const std::size_t most = braid::client::kept_cancels::most;
  for (std::size_t i = 0; i < most + 10; ++i) s.cancel(s.start());
  s.say(announcement);
  const auto got = s.cancels();
  REQUIRE(got.size() == most);
  CHECK(got.front().id == s.server.requests()[0].id);
  s.cancel(s.start());  // and from then on none is kept
  CHECK(s.cancels().size() == most + 1);
}

TEST_CASE("cancel: answered calls and calls that were never sent are not cancelled at the server") {
  scripted s;
  s.start();
  s.say(announcement);
  s.say(answer(s.server.requests()[0].id, echoed()));
  CHECK(s.calls[0].done());
  s.cancel(s.calls[0]);
  started_call before;
  before.control.StartCancel();
  s.client.start(before);
  CHECK(before.ec == aborted);
  CHECK(s.cancels().empty());
}

TEST_CASE("cancel: the deadline is told as well") {
  scripted s({.timeout = 100ms});
  s.start();
  s.say(announcement);
  s.sim.run_for(1s);
  CHECK(s.calls[0].ec == errc::timed_out);
  const auto got = s.cancels();
  REQUIRE(got.size() == 1);
  CHECK(got[0].cause == 1);
}

TEST_CASE("cancel: an answer that comes too late by the clock alone sends none") {
  scripted s({.timeout = 100ms});
  s.start();
  s.say(announcement);
  // Processed at the deadline's instant, perhaps before its timer: the server has answered.
  s.server.send(answer(s.server.requests()[0].id, echoed()));
  s.sim.run_for(0ms);
  CHECK(s.calls[0].done());
  s.sim.run_for(1s);
  CHECK(s.cancels().empty());
}

TEST_CASE("cancel: a client that goes, with its last call, has told the cause") {
  simulation sim{5};
  waiting_server server(sim);
  started_call call;
  {
    client_node client(sim, {.timeout = -1s});
    CHECK_FALSE(client.round("quick"));
    client.start(call);
    REQUIRE(sim.run_until([&] { return server.running == 1; }));
    client.on_loop([&] {
      client.end_channel();  // its connection is now the call's alone
      call.control.StartCancel();
    });
    sim.run_for(1ms);
    CHECK(call.ec == aborted);
    CHECK(server.causes == std::vector{cancel_cause::user});
    CHECK(sim.network().connections(braid::endpoint::parse(address).value()) == 0);
  }
}

TEST_CASE("cancel: started and cancelled in one turn, with nobody left on the connection") {
  simulation sim{5};
  waiting_server server(sim);
  client_node client(sim, {.timeout = -1s});
  CHECK_FALSE(client.round("quick"));
  started_call call;
  client.on_loop([&] {
    client.start_here(call);
    client.end_channel();
    call.control.StartCancel();
  });
  sim.run_for(1s);
  CHECK(call.ec == aborted);
  CHECK(server.running == 0);
}

TEST_CASE("cancel: reaches the handler within one round trip, with a latency on the way") {
  simulation sim{5};
  sim.network().set_default({.latency = 10ms});
  waiting_server server(sim);
  client_node client(sim, {.timeout = -1s});
  started_call call;  // the first of its connection, cancelled before the server is heard
  client.start(call);
  REQUIRE(sim.run_until([&] { return server.running == 1; }));
  const auto from = sim.elapsed();
  client.on_loop([&] { call.control.StartCancel(); });
  CHECK(call.done());  // the caller does not wait for that
  REQUIRE(sim.run_until([&] { return server.running == 0; }));
  CHECK(sim.elapsed() - from <= 21ms);
  CHECK(server.causes == std::vector{cancel_cause::user});

  started_call second;
  client.start(second);
  REQUIRE(sim.run_until([&] { return server.running == 1; }));
  const auto again = sim.elapsed();
  client.on_loop([&] { second.control.StartCancel(); });
  REQUIRE(sim.run_until([&] { return server.running == 0; }));
  CHECK(sim.elapsed() - again <= 11ms);
}

TEST_CASE("cancel: the end of a client's runtime, or of its connection, cancels its calls at the server") {
  simulation sim{5};
  waiting_server server(sim);
  started_call call;
  {
    client_node client(sim, {.timeout = -1s});
    client.start(call);
    REQUIRE(sim.run_until([&] { return server.running == 1; }));
  }
  sim.run_for(0ms);
  CHECK(call.ec == aborted);
  REQUIRE(server.causes.size() == 1);
  CHECK((server.causes[0] == cancel_cause::peer_gone || server.causes[0] == cancel_cause::shutdown));
  client_node client(sim, {.timeout = -1s});
  client.start(call);
  REQUIRE(sim.run_until([&] { return server.running == 1; }));
  sim.network().break_connections(braid::endpoint::parse(address).value());
  sim.run_for(0ms);
  REQUIRE(server.causes.size() == 2);
  CHECK(server.causes[1] == cancel_cause::peer_gone);
}

TEST_CASE("cancel: the limits of a parallel call cancel the handlers of the other servers") {
  simulation sim{5};
  struct row {
    const char* name;
    braid::parallel_channel_options options;
    bool first_fails;
    cancel_cause cause;
  };
  for (const row& each :
       {row{"fail_limit", {.timeout = -1s, .fail_limit = 1}, true, cancel_cause::fail_limit},
        row{"success_limit", {.timeout = -1s, .success_limit = 1}, false, cancel_cause::success_limit},
        row{"deadline", {.timeout = 50ms}, false, cancel_cause::deadline}}) {
    CAPTURE(each.name);
    server_node first(sim, [&](server_call& call, const EchoRequest&, EchoResponse&, yield_context) {
      if (each.first_fails) call.set_failed(12345, "as asked");
    });
    waiting_server second(sim, "10.0.0.2:80"), third(sim, "10.0.0.3:80");
    client_node client(sim, {});
    braid::parallel_channel all(*client.process, each.options);
    for (const char* at : {"10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80"}) {
      auto one = std::make_shared<braid::channel>(*client.process);
      one->init(at);
      all.add_channel(one);
    }
    started_call call;
    client.on_loop(
        [&] { all.async_call(echo(), call.control, call.message, call.response, client.completion(call)); });
    REQUIRE(client.finish(call));
    sim.run_for(1ms);
    CHECK(second.causes == std::vector{each.cause});
    CHECK(third.causes == std::vector{each.cause});
  }
}

TEST_CASE("cancel: a handler's downstream calls end with the cause of the far client, hop by hop") {
  simulation sim{5};
  waiting_server leaf(sim, "10.0.0.2:80");
  std::optional<braid::outcome> downstream;
  braid::runtime* middle_process = nullptr;
  server_node middle(sim, [&](server_call&, const EchoRequest&, EchoResponse& response, yield_context yield) {
    braid::channel next(*middle_process);
    next.init("10.0.0.2:80", {.timeout = -1s});
    braid::controller control;
    error_code ec;
    next.async_call(echo(), control, request(), response, yield[ec]);
    downstream = control.result();
  });
  middle_process = &middle.process;
  client_node client(sim, {.timeout = -1s});
  started_call call;
  client.start(call);
  REQUIRE(sim.run_until([&] { return leaf.running == 1; }));
  client.on_loop([&] { call.control.StartCancel(); });
  sim.run_for(1ms);
  REQUIRE(downstream);
  CHECK(downstream->cause == cancel_cause::user);
  CHECK(downstream->code == aborted);
  CHECK(leaf.causes == std::vector{cancel_cause::user});

  // When the client is lost rather than heard, the middle says so to its own server.
  client.start(call);
  REQUIRE(sim.run_until([&] { return leaf.running == 1; }));
  sim.network().break_connections(braid::endpoint::parse(address).value());
  sim.run_for(1ms);
  CHECK(downstream->cause == cancel_cause::peer_gone);
  CHECK(leaf.causes == std::vector{cancel_cause::user, cancel_cause::peer_gone});
}

TEST_CASE("cancel: a server that speaks only the recorded frames is sent nothing that it does not know") {
  for (const auto& chunk : golden::load(GOLDEN_FRAMES_FILE)) {
    if (chunk.to_server) continue;
    CAPTURE(chunk.name);
    scripted s;
    started_call& answered = s.start();
    s.start();
    s.cancel(s.calls[1]);
    // The recorded frame, but for its correlation id.
    std::string recorded = chunk.bytes;
    const std::string id{"\x20\x82\x80\x80\x80\x10", 6};
    if (const auto at = recorded.find(id); at != std::string::npos) {
      const auto number = static_cast<std::uint64_t>(s.server.requests()[0].id);
      for (std::size_t i = 0; i < 5; ++i) {
        recorded[at + 1 + i] =
            static_cast<char>((number >> (7 * i) & 0x7f) | (i < 4 ? std::uint64_t{0x80} : 0));
      }
      s.say(recorded);
      CHECK(answered.done());
      s.cancel(s.start());
    }
    bool first = true;
    for (const auto& each : frames_in(s.server.received())) {
      CHECK(each.request);
      CHECK_FALSE(each.cause);
      CHECK(each.features.has_value() == std::exchange(first, false));
    }
  }
}
