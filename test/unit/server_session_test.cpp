// What one connection means to its calls: deadlines, a peer that goes, calls downstream, bodies, framing.

#include <braid/channel.hpp>

#include "unit/server_world.hpp"

#include <boost/asio/error.hpp>

using namespace server_test;

// Deadlines

TEST_CASE("server: timeout_ms of zero or less is 1008 and not run") {
  world w;
  int ran = 0;
  w.start([&](server_call&, const EchoRequest&, EchoResponse& r, yield_context) {
    ++ran;
    r.set_message("x");
  });
  auto client = w.connect();
  client.send(echo_within(1, "x", 0)).send(echo_within(2, "x", -5));
  const auto got = client.answers();
  REQUIRE(got.size() == 2);
  CHECK(got[0].code == 1008);
  CHECK(got[1].code == 1008);
  CHECK(ran == 0);
}

TEST_CASE(
    "server: at the deadline the client gets 1008, the handler is cancelled and its later answer dropped") {
  std::chrono::nanoseconds left{};
  error_code ended_with;
  cancel_cause cause{};
  cancel_cause shown{};
  world w;
  w.start([&](server_call& call, const EchoRequest&, EchoResponse& r, yield_context yield) {
    left = call.deadline() - yield.now();
    braid::sleep_for(1h, yield[ended_with]);
    cause = yield.cancelled();
    shown = call.cancelled();
    CHECK(call.IsCanceled());
    r.set_message("late");
  });
  auto client = w.connect();
  client.send(echo_within(1, "x", 100));
  w.sim.run_for(99ms);
  CHECK(client.answers().empty());
  w.sim.run_for(3ms);
  const auto got = client.answers();
  REQUIRE(got.size() == 1);
  CHECK(got[0].code == 1008);
  CHECK(left == 100ms);
  CHECK(ended_with == boost::asio::error::operation_aborted);
  CHECK(cause == cancel_cause::deadline);
  CHECK(shown == cancel_cause::deadline);
  w.sim.run_for(2h);
  CHECK(client.answers().size() == 1);
}

TEST_CASE("server: default_timeout counts where the client sent none; without both a call is held") {
  SECTION("default_timeout") {
    world w({.default_timeout = 50ms});
    w.start([](server_call&, const EchoRequest&, EchoResponse&, yield_context yield) {
      braid::sleep_for(1h, yield);
    });
    auto client = w.connect();
    client.send(echo(1, "x"));
    w.sim.run_for(49ms);
    CHECK(client.answers().empty());
    w.sim.run_for(3ms);
    REQUIRE(client.answers().size() == 1);
    CHECK(client.answers()[0].code == 1008);
  }
  SECTION("none") {
    world w;
    bool unlimited = false;
    w.start([&](server_call& call, const EchoRequest&, EchoResponse& r, yield_context yield) {
      unlimited = call.deadline() == std::chrono::steady_clock::time_point::max();
      braid::sleep_for(5h, yield);
      r.set_message("patience");
    });
    auto client = w.connect();
    client.send(echo(1, "x"));
    w.sim.run_for(4h);
    CHECK(client.answers().empty());
    CHECK(unlimited);
    w.sim.run_for(2h);
    REQUIRE(client.answers().size() == 1);
    CHECK(client.answers()[0].message() == "patience");
  }
}

// The peer goes

TEST_CASE("server: a reset cancels the connection's calls with peer_gone") {
  std::vector<cancel_cause> causes;
  world w;
  w.start([&](server_call& call, const EchoRequest&, EchoResponse&, yield_context yield) {
    error_code ec;
    braid::sleep_for(1h, yield[ec]);
    causes.push_back(call.cancelled());
  });
  auto client = w.connect();
  auto other = w.connect();
  client.send(echo(1, "x") + echo(2, "y"));
  other.send(echo(3, "z"));
  client.reset();
  CHECK(causes == std::vector{cancel_cause::peer_gone, cancel_cause::peer_gone});
  CHECK(w.connections() == 1);
}

TEST_CASE("server: a client that has vanished, as keepalive and user timeout tell, has its calls cancelled") {
  std::vector<cancel_cause> causes;
  world w;
  w.start([&](server_call& call, const EchoRequest&, EchoResponse&, yield_context yield) {
    error_code ec;
    braid::sleep_for(1h, yield[ec]);
    causes.push_back(call.cancelled());
  });
  auto client = w.connect();
  client.send(echo(1, "x") + echo(2, "y"));
  w.sim.network().break_connections(w.at, {ETIMEDOUT, boost::system::system_category()});
  w.sim.run_for(0s);
  CHECK(causes == std::vector{cancel_cause::peer_gone, cancel_cause::peer_gone});
  CHECK(client.why_broken == boost::asio::error::timed_out);  // which no reset is
}

TEST_CASE("server: end of file is a half-close: complete requests are answered, then the connection closes") {
  world w({.progress_timeout = 1s});
  w.start([](server_call& call, const EchoRequest& q, EchoResponse& r, yield_context yield) {
    braid::sleep_for(5s, yield);
    CHECK(call.cancelled() == cancel_cause::none);
    r.set_message(q.message());
  });
  auto client = w.connect();
  client.send(echo(1, "first") + echo(2, "second") + echo(3, "third").substr(0, 20));
  client.end_sending();
  w.sim.run_for(4s);
  CHECK_FALSE(client.closed());  // the incomplete frame was dropped, and is not waited for
  w.sim.run_for(2s);
  const auto got = client.answers();
  REQUIRE(got.size() == 2);
  CHECK(got[0].message() == "first");
  CHECK(got[1].message() == "second");
  CHECK(client.ended);
  CHECK_FALSE(client.broken);
}

TEST_CASE("server: after a half-close the first failed write cancels the rest") {
  std::vector<cancel_cause> causes;
  world w;
  w.start([&](server_call& call, const EchoRequest& q, EchoResponse& r, yield_context yield) {
    error_code ec;
    braid::sleep_for(q.message() == "short" ? 1s : 1h, yield[ec]);
    causes.push_back(call.cancelled());
    r.set_message(q.message());
  });
  auto client = w.connect();
  client.send(echo(1, "short") + echo(2, "long"));
  client.end_sending();
  client.reset();
  w.sim.run_for(2s);
  REQUIRE(causes.size() == 2);
  CHECK(causes.back() == cancel_cause::peer_gone);
  CHECK(w.connections() == 0);
}

// Calls downstream

TEST_CASE(
    "server: calls of a handler inherit the remaining deadline and the cancellation over a chain of "
    "servers") {
  std::chrono::nanoseconds left_at_c{};
  std::vector<std::string> ends;
  world w;
  braid::runtime rt_b(node(w.sim, w.log));
  braid::runtime rt_c(node(w.sim, w.log));
  braid::server b(rt_b);
  braid::server c(rt_c);
  braid::channel to_b(*w.server_side);
  braid::channel to_c(rt_b);
  to_b.init("10.0.0.2:80", {.timeout = 1h});
  to_c.init("10.0.0.3:80", {.timeout = 1h});
  const auto method = &braid::describe_method(&EchoService::Echo);
  const auto relay = [&](braid::channel& next, const char* name) {
    return [&, name](server_call& call, const EchoRequest& q, EchoResponse& r, yield_context yield) {
      braid::sleep_for(10ms, yield);
      braid::controller control;
      error_code ec;
      next.async_call(*method, control, q, r, yield[ec]);
      ends.push_back(std::string(name) + " " + std::to_string(braid::to_wire(ec)) + " " +
                     std::string(to_string(call.cancelled())));
    };
  };
  w.srv->handle(&EchoService::Echo, relay(to_b, "a"));
  b.handle(&EchoService::Echo, relay(to_c, "b"));
  c.handle(&EchoService::Echo,
           [&](server_call& call, const EchoRequest& q, EchoResponse& r, yield_context yield) {
             left_at_c = call.deadline() - yield.now();
             error_code ec;
             if (q.message() == "slow") braid::sleep_for(1h, yield[ec]);
             if (ec) ends.push_back("c " + std::string(to_string(call.cancelled())));
             r.set_message(q.message() + " from c");
           });
  w.srv->start("10.0.0.1:80");
  b.start("10.0.0.2:80");
  c.start("10.0.0.3:80");
  auto client = w.connect();

  SECTION("the answer comes back") {
    client.send(echo_within(1, "quick", 1000));
    w.sim.run_for(100ms);
    REQUIRE(client.answers().size() == 1);
    CHECK(client.answers()[0].message() == "quick from c");
    CHECK(left_at_c <= 980ms);
    CHECK(left_at_c >= 970ms);
  }
  SECTION("the deadline ends all of them") {
    client.send(echo_within(1, "slow", 200));
    w.sim.run_for(210ms);
    REQUIRE(client.answers().size() == 1);
    CHECK(client.answers()[0].code == 1008);
    std::sort(ends.begin(), ends.end());
    CHECK(ends == std::vector<std::string>{"a 1008 deadline", "b 1008 deadline", "c deadline"});
  }
  SECTION("the client's going ends all of them at once") {
    client.send(echo_within(1, "slow", 10'000));
    w.sim.run_for(100ms);
    client.reset();
    std::sort(ends.begin(), ends.end());
    CHECK(ends == std::vector<std::string>{"a 125 peer_gone", "b 125 peer_gone", "c peer_gone"});
  }
}

TEST_CASE("server: detached calls, and calls that still run when the handler has answered, go on") {
  world w;
  braid::runtime rt_b(node(w.sim, w.log));
  braid::server b(rt_b);
  b.handle(&EchoService::Echo, [](server_call&, const EchoRequest& q, EchoResponse& r, yield_context yield) {
    braid::sleep_for(1s, yield);
    r.set_message(q.message());
  });
  b.start("10.0.0.2:80");
  braid::channel to_b(*w.server_side);
  to_b.init("10.0.0.2:80", {.timeout = 1h});
  const auto& method = braid::describe_method(&EchoService::Echo);
  EchoResponse response;
  braid::controller control;
  error_code code = errc::internal;
  bool handler_ended = false;
  w.start([&](server_call&, const EchoRequest& q, EchoResponse& r, yield_context yield) {
    if (q.message() == "detached") {
      control.set_detached(true);
      to_b.async_call(method, control, q, response, yield[code]);
    } else {
      to_b.async_call(method, control, q, response, [&](error_code ec) { code = ec; });
    }
    handler_ended = true;
    r.set_message("done");
  });
  auto client = w.connect();
  SECTION("answered") {
    client.send(echo(1, "left running"));
    CHECK(client.answers().size() == 1);
    w.sim.run_for(2s);
    CHECK_FALSE(code);
    CHECK(response.message() == "left running");
  }
  SECTION("detached, past the deadline") {
    client.send(echo_within(1, "detached", 100));
    w.sim.run_for(200ms);
    REQUIRE(client.answers().size() == 1);
    CHECK(client.answers()[0].code == 1008);
    CHECK_FALSE(handler_ended);
    w.sim.run_for(2s);
    CHECK(handler_ended);
    CHECK(control.result().cause != cancel_cause::deadline);
  }
}

// Limits

TEST_CASE("server: a body over max_body_size fails that call alone with 1003 and a text naming the limit") {
  world w({.max_body_size = 1000});
  w.start();
  auto client = w.connect();
  client.send(frame(echo_meta(1), std::string(950, 'x')).substr(0, 1));  // the frames come in any pieces
  client.send(frame(echo_meta(1), payload(std::string(5'000'000, 'x'))).substr(1) + echo(2, "lives"));
  w.sim.run_for(1s);
  const auto got = client.answers();
  REQUIRE(got.size() == 2);
  CHECK(got[0].id == 1);
  CHECK(got[0].code == 1003);
  CHECK(got[0].text.find("1000") != std::string::npos);
  CHECK(got[1].message() == "lives");
}

TEST_CASE("server: an oversized request is answered from its header and meta, before its body has come") {
  world w({.max_body_size = 1000});
  w.start();
  auto client = w.connect();
  auto other = w.connect();
  client.send(frame(echo_meta(1), std::string(100'000, 'x')).substr(0, 200));
  other.send(echo(2, "x"));
  REQUIRE(client.answers().size() == 1);
  CHECK(client.answers()[0].code == 1003);
  CHECK(other.answers().size() == 1);
  CHECK_FALSE(client.closed());
  w.sim.run_for(11s);
  CHECK(client.closed());  // the rest never came
  CHECK_FALSE(other.closed());
}

TEST_CASE("server: what can be no frame closes the connection at once, after the requests before it") {
  const std::string good = echo(1, "before");
  std::string huge_meta(12, '\0');
  braid::wire::encode_header({.body_size = 100'000, .meta_size = 70'000}, huge_meta.data());
  std::string meta_over_body(12, '\0');
  braid::wire::encode_header({.body_size = 10, .meta_size = 11}, meta_over_body.data());
  std::string bad_meta(12, '\0');
  braid::wire::encode_header({.body_size = 3, .meta_size = 3}, bad_meta.data());
  bad_meta += "\xff\xff\xff";
  for (const std::string& bad : {std::string("X"), std::string("PRPX"), std::string("GET / HTTP/1.1\r\n"),
                                 huge_meta, meta_over_body, bad_meta}) {
    CAPTURE(bad);
    world w;
    w.start();
    auto client = w.connect();
    client.send(good + bad);
    CHECK(client.closed());
    REQUIRE(client.answers().size() == 1);
    CHECK(client.answers()[0].message() == "before");
    CHECK(w.log.count("warning: a client broke the protocol") == 1);
  }
}
