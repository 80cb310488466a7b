// What a server bounds: time, calls, bytes, connections.
#include "unit/live_memory.hpp"
#include "unit/server_world.hpp"

using namespace server_test;

namespace {

bool has(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

// The codes of a client's answers, by id; 0: success, -1: none.
int code_of(const peer& client, std::int64_t id) {
  for (const answer& each : client.answers())
    if (each.id == id) return each.code;
  return -1;
}
std::string text_of(const peer& client, std::int64_t id) {
  for (const answer& each : client.answers())
    if (each.id == id) return each.text;
  return {};
}

// A handler that runs for a second, whoever cancels it.
void sleep_a_second(server_call&, const EchoRequest& q, EchoResponse& r, yield_context yield) {
  const braid::shield until_then(yield, 2s);
  braid::sleep_for(1s, yield);
  r.set_message(q.message());
}

}  // namespace

TEST_CASE("server: part of a frame followed by silence is closed after the progress timeout") {
  world w({.progress_timeout = 10s, .idle_timeout = 0s});
  w.start([](server_call&, const EchoRequest& q, EchoResponse& r, yield_context yield) {
    braid::sleep_for(1s, yield);
    r.set_message(q.message());
  });
  auto client = w.connect();
  auto idle = w.connect();
  SECTION("one byte") { client.send("P"); }
  SECTION("a header that lies about what follows") {
    std::string header(12, '\0');
    braid::wire::encode_header({.body_size = 60'000'000, .meta_size = 100}, header.data());
    client.send(header);
  }
  SECTION("answers to earlier requests are no progress of the frame") {
    std::string requests;
    for (int i = 1; i <= 5; ++i) requests += echo(i, "x");
    client.send(requests + "P");
  }
  w.sim.run_for(9990ms);
  CHECK_FALSE(client.closed());
  w.sim.run_for(20ms);
  CHECK(client.closed());
  w.sim.run_for(1h);
  CHECK_FALSE(idle.closed());
}

TEST_CASE("server: a frame may arrive one byte at a time") {
  world w({.progress_timeout = 10s});
  w.start();
  auto client = w.connect();
  for (const char byte : echo(1, "slowly") + echo(2, "again")) {
    client.send(std::string_view(&byte, 1));
    w.sim.run_for(100ms);
  }
  const auto got = client.answers();
  REQUIRE(got.size() == 2);
  CHECK(got[0].message() == "slowly");
  CHECK(got[1].message() == "again");
  CHECK_FALSE(client.closed());
}

TEST_CASE("server: a client that does not read is not read from over max_unsent_bytes") {
  world w({.max_unsent_bytes = 100'000, .progress_timeout = 10s});
  int ran = 0;
  w.service.run = [&](server_call&, const EchoRequest&, EchoResponse& r, google::protobuf::Closure* done) {
    ++ran;
    r.set_message(std::string(10'000, 'x'));
    done->Run();
  };
  w.sim.network().set_default({.window = 50'000});
  w.start();
  auto client = w.connect();
  client.stop_reading();
  std::string burst;
  for (int i = 1; i <= 1000; ++i) burst += echo(i, "x");
  client.send(burst);
  w.sim.run_for(1s);
  // Also the requests of one read wait: what is unsent passes the limit by one answer at most.
  CHECK(ran >= 10);
  CHECK(ran <= 17);
  SECTION("it is closed when nothing moves for progress_timeout") {
    w.sim.run_for(8900ms);
    CHECK(w.connections() == 1);
    w.sim.run_for(200ms);
    CHECK(w.srv->stop(within(0ms, 0ms)).empty());
    client.read_on();
    w.sim.run_for(1s);
    CHECK(client.closed());
    CHECK(ran <= 17);
  }
  SECTION("it is served on once it reads") {
    client.read_on();
    w.sim.run_for(1s);
    CHECK(ran == 1000);
    CHECK(client.answers().size() == 1000);
    CHECK_FALSE(client.closed());
  }
}

TEST_CASE(
    "server: the deadline of a request counts from its arrival, also while it waits behind unsent answers") {
  world w({.max_unsent_bytes = 10'000, .progress_timeout = 10s});
  std::vector<std::string> ran;
  std::vector<std::chrono::nanoseconds> left;
  w.service.run = [&](server_call& call, const EchoRequest& q, EchoResponse& r,
                      google::protobuf::Closure* done) {
    ran.push_back(q.message());
    left.push_back(call.deadline() - w.sim.now());
    r.set_message(std::string(ran.size() == 1 ? 20'000 : 1, 'x'));
    done->Run();
  };
  w.sim.network().set_default({.window = 5'000});
  w.start();
  auto client = w.connect();
  client.stop_reading();
  client.send(echo(1, "fills the queue") + echo_within(2, "too late", 50) + echo_within(3, "in time", 300));
  w.sim.run_for(100ms);
  REQUIRE(ran.size() == 1);
  client.read_on();
  w.sim.run_for(100ms);
  const auto got = client.answers();
  REQUIRE(got.size() == 3);
  CHECK(got[1].id == 2);
  CHECK(got[1].code == 1008);
  CHECK(got[2].code == 0);
  CHECK(ran == std::vector<std::string>{"fills the queue", "in time"});
  CHECK(left.back() <= 200ms);
  CHECK(left.back() > 100ms);
}

TEST_CASE("server: more answers are no progress of a client that does not read") {
  world w({.max_unsent_bytes = 0, .progress_timeout = 10s});
  w.start([](server_call&, const EchoRequest&, EchoResponse& r, yield_context yield) {
    braid::sleep_for(1s, yield);
    r.set_message(std::string(60'000, 'x'));
  });
  w.sim.network().set_default({.window = 50'000});
  auto client = w.connect();
  client.stop_reading();
  for (int i = 1; i <= 5; ++i) {
    client.send(echo(i, "x"));
    w.sim.run_for(3s);
  }
  client.read_on();
  w.sim.run_for(1s);
  CHECK(client.closed());
}

TEST_CASE("server: connections over max_connections are closed, and their place can be taken later") {
  world w({.max_connections = 2});
  w.start();
  auto first = w.connect();
  {
    auto second = w.connect();
    auto third = w.connect();
    w.sim.run_for(1s);
    CHECK(third.closed());
    CHECK_FALSE(second.closed());
    second.send(echo(1, "x"));
    CHECK(second.answers().size() == 1);
    second.reset();
  }
  auto fourth = w.connect();
  fourth.send(echo(1, "x"));
  CHECK(fourth.answers().size() == 1);
  CHECK_FALSE(first.closed());
}

// Time

TEST_CASE("server: a trickle of less than a KiB in each progress_timeout is closed") {
  world w({.progress_timeout = 10s});
  w.start();
  auto slow = w.connect();
  auto steady = w.connect();
  const std::string large = echo(1, std::string(4000, 'x'));
  std::size_t sent_slowly = 0;
  std::size_t sent_steadily = 0;
  for (int second = 0; second < 38 && !slow.closed(); ++second) {
    if (second % 9 == 0) slow.send(large.substr(sent_slowly++, 1));
    steady.send(large.substr(sent_steadily, 130));
    sent_steadily += 130;
    w.sim.run_for(1s);
  }
  CHECK(slow.closed());
  CHECK(sent_slowly == 2);
  while (sent_steadily < large.size()) {
    steady.send(large.substr(sent_steadily, 130));
    sent_steadily += 130;
    w.sim.run_for(1s);
  }
  CHECK(w.sim.elapsed() > 30s);
  CHECK_FALSE(steady.closed());
  CHECK(code_of(steady, 1) == 0);
}

TEST_CASE("server: a client that takes less than a KiB of its answers in each progress_timeout is closed") {
  world w({.progress_timeout = 10s});
  w.service.run = [](server_call&, const EchoRequest&, EchoResponse& r, google::protobuf::Closure* done) {
    r.set_message(std::string(20'000, 'x'));
    done->Run();
  };
  const std::size_t taken_at_once = GENERATE(10, 400);
  w.sim.network().set_default({.max_delivery = taken_at_once, .window = 1000});
  w.start();
  auto client = w.connect();
  client.one_read_at_a_time = true;
  client.send(echo(1, "x"));
  for (int second = 0; second < 40; ++second) {
    client.read_on();
    w.sim.run_for(1s);
  }
  CHECK(w.connections() == 1);  // the client's own end; the server's is gone if it was too slow
  CHECK(w.log.count("broke") == 0);
  CHECK(w.srv->stop(within(0ms, 0ms)).empty());
  for (int i = 0; i < 3; ++i) client.read_on();
  CHECK(client.received.size() >= 40 * std::min<std::size_t>(taken_at_once, 20));
  CHECK((client.received.size() > 10'000) == (taken_at_once == 400));
}

TEST_CASE("server: a connection that never sends is closed after idle_timeout") {
  world w({.idle_timeout = 60s});
  w.start();
  auto silent = w.connect();
  w.sim.run_for(30s);
  auto busy = w.connect();
  busy.send(echo(1, "x"));
  w.sim.run_for(29'900ms);
  CHECK_FALSE(silent.closed());
  w.sim.run_for(200ms);
  CHECK(silent.ended);
  CHECK_FALSE(silent.broken);
  CHECK_FALSE(busy.closed());
  for (int i = 2; i < 10; ++i) {
    w.sim.run_for(50s);
    busy.send(echo(i, "x"));
    CHECK(code_of(busy, i) == 0);
  }
  w.sim.run_for(120s);
  CHECK(busy.ended);
}

TEST_CASE("server: idle_timeout never closes while a call runs or an answer waits, and may be off") {
  world w({.progress_timeout = 0s, .idle_timeout = 60s});
  w.start([](server_call&, const EchoRequest& q, EchoResponse& r, yield_context yield) {
    braid::sleep_for(q.message() == "long" ? 1h : 0h, yield);
    r.set_message(q.message() == "large" ? std::string(5000, 'x') : q.message());
  });
  w.sim.network().set_default({.window = 1000});
  auto running = w.connect();
  auto unread = w.connect();
  unread.stop_reading();
  running.send(echo(1, "long"));
  unread.send(echo(1, "large"));
  w.sim.run_for(1h + 1s);
  CHECK(code_of(running, 1) == 0);
  CHECK_FALSE(running.closed());
  unread.read_on();
  w.sim.run_for(1s);
  CHECK(code_of(unread, 1) == 0);
  w.sim.run_for(121s);
  CHECK(running.ended);
  CHECK(unread.ended);

  world off({.idle_timeout = 0s});
  off.start();
  auto silent = off.connect();
  off.sim.run_for(48h);
  CHECK_FALSE(silent.closed());
}

TEST_CASE("server: without a progress timeout an incomplete frame is closed by the idle one") {
  world w({.progress_timeout = 0s, .idle_timeout = 60s});
  w.start();
  auto client = w.connect();
  client.send("PRPC");
  w.sim.run_for(59s);
  CHECK_FALSE(client.closed());
  w.sim.run_for(2s);
  CHECK(client.closed());
}

// Calls at once

TEST_CASE("server: over max_concurrency a call is 2004, on whichever connection, and others live") {
  world w({.max_concurrency = 2});
  w.start(sleep_a_second);
  auto one = w.connect();
  auto two = w.connect();
  one.send(echo(1, "a"));
  two.send(echo(1, "b") + echo(2, "c"));
  one.send(echo(2, "d"));
  CHECK(code_of(two, 2) == 2004);
  CHECK(has(text_of(two, 2), "max_concurrency is 2"));
  CHECK(code_of(one, 2) == 2004);
  w.sim.run_for(1s);
  CHECK(code_of(one, 1) == 0);
  CHECK(code_of(two, 1) == 0);
  one.send(echo(3, "e") + echo(4, "f") + echo(5, "g"));
  w.sim.run_for(1s);
  CHECK(code_of(one, 3) == 0);
  CHECK(code_of(one, 4) == 0);
  CHECK(code_of(one, 5) == 2004);
}

TEST_CASE("server: a call counts until its handler has ended, also after its deadline or its connection") {
  world w({.max_concurrency = 1});
  w.start(sleep_a_second);
  auto client = w.connect();
  auto other = w.connect();
  bool gone = false;
  SECTION("its deadline") { client.send(echo_within(1, "a", 100)); }
  SECTION("its connection") {
    client.send(echo(1, "a"));
    client.reset();
    gone = true;
  }
  w.sim.run_for(500ms);
  if (!gone) CHECK(code_of(client, 1) == 1008);
  other.send(echo(2, "b"));
  CHECK(code_of(other, 2) == 2004);
  w.sim.run_for(600ms);
  other.send(echo(3, "c"));
  w.sim.run_for(1s);
  CHECK(code_of(other, 3) == 0);
}

TEST_CASE("server: a call that cannot be read, or whose handler throws, gives its place back") {
  world w({.max_concurrency = 1});
  w.service.run = [](server_call&, const EchoRequest& q, EchoResponse& r, google::protobuf::Closure* done) {
    if (q.message() == "throw") throw std::runtime_error("a test");
    r.set_message(q.message());
    done->Run();
  };
  w.start();
  auto client = w.connect();
  for (int i = 1; i < 30; i += 3) {
    client.send(frame(echo_meta(i), "\xff") + echo(i + 1, "throw") + echo(i + 2, "x"));
    CHECK(code_of(client, i) == 1003);
    CHECK(code_of(client, i + 1) == 2001);
    CHECK(code_of(client, i + 2) == 0);
  }
}

TEST_CASE("server: a limit of one method is its own") {
  world w;
  w.srv->handle(&EchoService::Missing, sleep_a_second);
  w.srv->handle(&EchoService::Echo, sleep_a_second);
  w.srv->limit_concurrency(&EchoService::Echo, 1);
  w.srv->start("10.0.0.1:80");
  auto client = w.connect();
  auto other_method = echo_meta(3);
  other_method.request.method_name = "Missing";
  client.send(echo(1, "a") + echo(2, "b") + frame(other_method, payload("c")));
  CHECK(code_of(client, 2) == 2004);
  CHECK(has(text_of(client, 2), "the limit of golden.EchoService.Echo is 1"));
  w.sim.run_for(1s);
  CHECK(code_of(client, 1) == 0);
  CHECK(code_of(client, 3) == 0);
  CHECK_THROWS_AS(w.srv->limit_concurrency(&EchoService::Echo, 2), boost::system::system_error);

  braid::server without(*w.server_side);
  try {
    without.limit_concurrency(&EchoService::Echo, 2);
    FAIL("limited a method that is not there");
  } catch (const boost::system::system_error& refused) {
    CHECK(refused.code() == errc::no_method);
    CHECK(has(refused.what(), "golden.EchoService.Echo"));
  }
}

TEST_CASE("server: the calls of one connection are bounded, and those of others not by it") {
  world w({.max_concurrency_per_connection = 3});
  w.start(sleep_a_second);
  auto client = w.connect();
  auto other = w.connect();
  std::string burst;
  for (int i = 1; i <= 50; ++i) burst += echo_within(i, "x", 100);
  client.send(burst);
  other.send(echo(1, "y"));
  CHECK(code_of(client, 4) == 2004);
  CHECK(has(text_of(client, 50), "max_concurrency_per_connection is 3"));
  w.sim.run_for(500ms);  // the three are answered and still run
  CHECK(code_of(client, 3) == 1008);
  client.send(echo(51, "x"));
  CHECK(code_of(client, 51) == 2004);
  w.sim.run_for(1s);
  client.send(echo(52, "x"));
  w.sim.run_for(1s);
  CHECK(code_of(client, 52) == 0);
  CHECK(code_of(other, 1) == 0);
  CHECK_FALSE(client.closed());
}

// Bytes in flight

TEST_CASE(
    "server: the bytes in flight of one connection are bounded, and one request alone is always taken") {
  world w({.max_bytes_in_flight_per_connection = 100'000});
  w.start(sleep_a_second);
  auto client = w.connect();
  auto other = w.connect();
  client.send(echo(1, std::string(60'000, 'x')) + echo(2, std::string(60'000, 'x')) + echo(3, "small"));
  CHECK(code_of(client, 2) == 2004);
  CHECK(has(text_of(client, 2), "max_bytes_in_flight_per_connection is 100000"));
  other.send(echo(1, std::string(60'000, 'x')));
  w.sim.run_for(1s);
  CHECK(code_of(client, 1) == 0);
  CHECK(code_of(client, 3) == 0);
  CHECK(code_of(other, 1) == 0);
  client.send(echo(4, std::string(300'000, 'x')));
  w.sim.run_for(1s);
  CHECK(code_of(client, 4) == 0);
}

TEST_CASE("server: the bytes in flight of all connections are bounded together") {
  world w({.max_bytes_in_flight = 1'000'000});
  w.start(sleep_a_second);
  auto client = w.connect();
  auto other = w.connect();
  auto third = w.connect();
  client.send(echo(1, std::string(450'000, 'x')));
  other.send(echo(1, std::string(450'000, 'x')));
  third.send(echo(1, std::string(450'000, 'x')) + echo(2, "small"));
  CHECK(code_of(third, 1) == 2004);
  CHECK(has(text_of(third, 1), "max_bytes_in_flight is 1000000"));
  w.sim.run_for(1s);
  CHECK(code_of(client, 1) == 0);
  CHECK(code_of(other, 1) == 0);
  CHECK(code_of(third, 2) == 0);
  w.sim.run_for(1s);
  third.send(echo(3, std::string(900'000, 'x')));
  w.sim.run_for(1s);
  CHECK(code_of(third, 3) == 0);
}

TEST_CASE("server: requests that arrive in part count, and what finds no room is not stored") {
  world w({.max_bytes_in_flight = 4'000'000, .progress_timeout = 10s});
  w.start();
  const std::string large = echo(1, std::string(1'500'000, 'x'));
  std::vector<std::unique_ptr<peer>> clients;
  for (int i = 0; i < 20; ++i) clients.push_back(std::make_unique<peer>(w.sim, *w.client_side, w.at));
  const std::size_t before = test_memory::live();
  for (auto& each : clients) each->send(large.substr(0, large.size() - 1));
  CHECK(test_memory::live() - before < 2 * 4'000'000 + 20 * 600'000);  // 30,000,000 were sent
  int refused = 0;
  for (auto& each : clients) refused += code_of(*each, 1) == 2004 ? 1 : 0;
  CHECK(refused >= 17);
  CHECK(refused < 20);
  for (auto& each : clients) each->send(large.substr(large.size() - 1));
  for (auto& each : clients) {
    refused -= code_of(*each, 1) == 2004 ? 1 : 0;
    if (code_of(*each, 1) != 2004) CHECK(code_of(*each, 1) == 0);
    each->send(echo(2, "again"));
    CHECK(code_of(*each, 2) == 0);
    CHECK(each->answers().size() == 2);
  }
  CHECK(refused == 0);
}

TEST_CASE("server: answers that find no room beside twice max_unsent_bytes fail with 1011") {
  world w({.max_unsent_bytes = 100'000, .progress_timeout = 0s});
  w.start([](server_call&, const EchoRequest&, EchoResponse& r, yield_context yield) {
    braid::sleep_for(1s, yield);
    r.set_message(std::string(60'000, 'x'));
  });
  w.sim.network().set_default({.window = 1000});
  auto client = w.connect();
  client.stop_reading();
  std::string burst;
  for (int i = 1; i <= 100; ++i) burst += echo(i, "x");
  client.send(burst);
  w.sim.run_for(500ms);
  const std::size_t before = test_memory::live();
  w.sim.run_for(1s);
  CHECK(test_memory::live() < before + 1'000'000);  // the answers are 6,000,000
  client.read_on();
  w.sim.run_for(10s);
  const auto got = client.answers();
  REQUIRE(got.size() == 100);
  const auto whole = std::count_if(got.begin(), got.end(), [](const answer& each) { return each.code == 0; });
  CHECK(whole == 3);
  CHECK(std::count_if(got.begin(), got.end(), [](const answer& each) { return each.code == 1011; }) ==
        100 - whole);
  CHECK(has(got.back().text, "max_unsent_bytes is 100000"));
  client.send(echo(101, "x"));
  w.sim.run_for(2s);
  CHECK(code_of(client, 101) == 0);
}

TEST_CASE("server: memory grows with the bytes received, not with what headers claim") {
  world w;
  w.start();
  std::vector<std::unique_ptr<peer>> clients;
  for (int i = 0; i < 100; ++i) clients.push_back(std::make_unique<peer>(w.sim, *w.client_side, w.at));
  for (auto& each : clients) each->send(echo(1, "warm"));
  std::string lie(12, '\0');
  braid::wire::encode_header({.body_size = 60'000'000, .meta_size = 50}, lie.data());
  test_memory::restart_peak();
  const std::size_t before = test_memory::live();
  for (auto& each : clients) each->send(lie);
  for (auto& each : clients) each->send(std::string(50, '\0'));
  CHECK(test_memory::peak() - before < 100 * 20'000);
  test_memory::restart_peak();
  clients.front()->send(std::string(1'000'000, '\0'));
  CHECK(test_memory::peak() - before < 10'000'000);
}

TEST_CASE("server: a large request leaves no memory behind with the messages that are kept for later ones") {
  world w;
  w.start(sleep_a_second);
  auto client = w.connect();
  client.send(echo(1, "warm"));
  w.sim.run_for(1s);
  const std::size_t before = test_memory::live();
  {
    // A field that comes twice: the message is small in the end.
    const std::string large_then_small = payload(std::string(1'000'000, 'x')) + payload("small");
    for (int i = 2; i < 12; ++i) client.send(frame(echo_meta(i), large_then_small));
  }
  w.sim.run_for(2s);
  CHECK(client.answers().size() == 11);
  CHECK(client.answers().back().message() == "small");
  CHECK(test_memory::live() < before + 3'000'000);
}

TEST_CASE("server: clients that break the protocol fill no log") {
  world w;
  w.start();
  for (int i = 0; i < 100; ++i) w.connect().send("GET / HTTP/1.1");
  CHECK(w.log.count("a client broke the protocol") == 1);
  w.sim.run_for(1s);
  for (int i = 0; i < 100; ++i) w.connect().send("GET / HTTP/1.1");
  CHECK(w.log.count("a client broke the protocol") == 2);
}

TEST_CASE("server: options that cannot be are named by start, and nothing listens") {
  const auto why = [](const server_options& options) {
    world w(options);
    w.srv->add_service(w.service);
    try {
      w.srv->start("10.0.0.1:80");
    } catch (const boost::system::system_error& e) {
      CHECK(e.code() == boost::system::errc::invalid_argument);
      CHECK(w.srv->endpoints().empty());
      return std::string(e.what());
    }
    return std::string("nothing thrown");
  };
  CHECK(has(why({.max_body_size = 0}), "max_body_size 0 is not between 1 and 2147483647"));
  CHECK(has(why({.max_body_size = std::size_t{1} << 31}), "max_body_size 2147483648 is not between"));
  CHECK(has(why({.keepalive = std::chrono::seconds(-1)}), "keepalive is negative"));
  CHECK(has(why({.tcp_user_timeout = -1ms}), "tcp_user_timeout is negative"));
}
