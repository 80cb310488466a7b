// What clients can make a server hold: requests that grow when they are decompressed, answers that nobody
// reads, and requests that never come whole.

#include "unit/live_memory.hpp"
#include "unit/server_world.hpp"
#include "wire/compressors.hpp"

#include <catch2/catch.hpp>

#include <deque>
#include <string>

namespace {

using namespace server_test;

// A request of a few KiB whose message has so many bytes.
std::string growing(std::int64_t id, std::size_t size) {
  auto meta = echo_meta(id);
  meta.compress_type = static_cast<std::int32_t>(braid::compression::zlib);
  braid::compression_output out{std::size_t{1} << 30};
  std::string why;
  REQUIRE(braid::wire::zlib_compressor().compress(payload(std::string(size, 'x')), out, why));
  return frame(meta, out.take().to_string());
}

// A request of a client that announces its features.
std::string announcing(std::int64_t id, std::string_view message) {
  auto meta = echo_meta(id);
  meta.features = 1;
  return frame(meta, payload(message));
}

bool has(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

// Keeps each call until the test lets them go.
struct holding : world {
  explicit holding(server_options options = {}) : world(options) {
    service.run = [this](server_call&, const EchoRequest& q, EchoResponse& r,
                         google::protobuf::Closure* done) {
      r.set_message(std::to_string(q.message().size()));
      held.push_back(done);
    };
    start();
  }
  ~holding() { release(); }
  void release() {
    for (; !held.empty(); held.pop_front()) held.front()->Run();
    sim.run_for(0s);
  }
  std::deque<google::protobuf::Closure*> held;
};

}  // namespace

TEST_CASE("server memory: what a request has grown to counts as bytes in flight") {
  const bool of_connection = GENERATE(true, false);
  holding w(of_connection ? server_options{.max_bytes_in_flight_per_connection = 3'000'000}
                          : server_options{.max_bytes_in_flight = 3'000'000});
  auto client = w.connect();
  auto other = w.connect();
  auto& second = of_connection ? client : other;
  client.send(growing(1, 2'000'000));
  second.send(growing(2, 2'000'000));
  CHECK(w.held.size() == 1);
  REQUIRE(second.answers().size() == 1);
  CHECK(second.answers()[0].code == 2004);
  CHECK(has(second.answers()[0].text, of_connection ? "max_bytes_in_flight_per_connection is 3000000"
                                                    : "max_bytes_in_flight is 3000000"));
  second.send(growing(3, 900'000));
  CHECK(w.held.size() == 2);
  w.release();
  second.send(growing(4, 2'900'000));  // all that was held is free again, and one that is alone always fits
  CHECK(w.held.size() == 1);
  w.release();
  client.send(growing(5, 5'000'000));
  CHECK(w.held.size() == 1);
}

TEST_CASE("server memory: the announcement of features is no answer that waits") {
  constexpr std::size_t size = 1'500'000;
  SECTION("for the bytes in flight of a connection") {
    holding w({.max_bytes_in_flight_per_connection = 1'000'000});
    auto client = w.connect();
    client.send(announcing(1, std::string(size, 'x')));
    CHECK(w.held.size() == 1);
    client.send(announcing(2, "x"));  // which is not alone
    w.release();
    REQUIRE(client.answers().size() == 3);  // the first is the announcement
    CHECK(client.answers()[1].code == 2004);
    CHECK(client.answers()[2].message() == std::to_string(size));
  }
  SECTION("for the bytes in flight of all connections") {
    holding w({.max_bytes_in_flight = 1'000'000});
    auto client = w.connect();
    client.send(announcing(1, std::string(size, 'x')));
    CHECK(w.held.size() == 1);
  }
  SECTION("for the unsent bytes, also while part of it has been sent") {
    const bool slowly = GENERATE(false, true);
    world w({.max_unsent_bytes = 100'000});
    if (slowly) w.sim.network().set_default({.window = 10});
    w.service.run = [](server_call&, const EchoRequest&, EchoResponse& r, google::protobuf::Closure* done) {
      r.set_message(std::string(size, 'x'));
      done->Run();
    };
    w.start();
    auto client = w.connect();
    if (slowly) {
      client.stop_reading();
      braid::wire::rpc_meta nothing;
      nothing.features = 1;
      client.send(frame(nothing, ""));
      client.send(echo(1, "x"));
      w.sim.network().set_default({});
      client.read_on();
    } else {
      client.send(announcing(1, "x"));
    }
    REQUIRE(w.sim.run_until([&] { return client.answers().size() == 2; }, 1h));
    CHECK(client.answers()[1].code == 0);
    CHECK(client.answers()[1].message().size() == size);
  }
}

TEST_CASE("server memory: no message that has grown is kept after its call") {
  holding w;
  auto client = w.connect();
  client.send(echo(1, "x"));
  w.release();
  const std::size_t before = test_memory::live();
  for (int i = 2; i <= 9; ++i) client.send(growing(i, 2'000'000));
  REQUIRE(w.held.size() == 8);
  CHECK(test_memory::live() > before + 16'000'000);
  w.release();
  CHECK(test_memory::live() < before + 2'000'000);
  // Nor of those that lack a required field, or whose end is broken.
  for (int i = 10; i <= 17; ++i) {
    std::string bad = growing(i, 2'000'000);
    bad.back() = static_cast<char>(~bad.back());
    client.send(bad);
  }
  CHECK(w.held.empty());
  CHECK(client.answers().back().code == 1003);
  CHECK(test_memory::live() < before + 2'000'000);
}

TEST_CASE("server memory: a request for which there is no memory is 12, and its connection goes on") {
  world w({.max_concurrency = 1});
  w.start();
  auto client = w.connect();
  static constexpr std::size_t message = 1'000'000;
  static constexpr std::size_t field = 50'000;
  auto meta = echo_meta(1);
  const std::string value(field, 'v');
  meta.user_fields.push_back({"key", value});
  const std::string request = frame(meta, payload(std::string(message, 'x')));
  const std::size_t refused = GENERATE(as<std::size_t>(), message, field);
  // All but its last byte before, so that nobody but the server needs that much then.
  client.send(std::string_view(request).substr(0, request.size() - 1));
  {
    const test_memory::shortage none(refused, refused + 100);
    client.send(std::string_view(request).substr(request.size() - 1));
  }
  client.send(echo(2, "small"));  // whose place is free again
  client.send(request);
  const auto got = client.answers();
  REQUIRE(got.size() == 3);
  CHECK(got[0].id == 1);
  CHECK(got[0].code == 12);
  CHECK(got[0].text == "no memory for the request");
  CHECK(got[1].message() == "small");
  CHECK(got[2].message().size() == message);
  CHECK_FALSE(client.closed());
}

TEST_CASE("server memory: without memory to read into a connection is closed, and others go on") {
  world w;
  w.start();
  auto other = w.connect();
  auto client = w.connect();
  other.send(echo(1, "before"));
  const std::string request = echo(1, std::string(300'003, 'x'));
  {
    const test_memory::shortage none(300'000, 310'000);  // the block that holds just this request
    client.send(std::string_view(request).substr(0, 150'000));
  }
  CHECK(client.closed());
  other.send(echo(2, "after"));
  CHECK(other.answers().size() == 2);
  auto next = w.connect();
  next.send(echo(1, "next"));
  CHECK(next.answers().at(0).message() == "next");
}

TEST_CASE(
    "server memory: without memory for a request's metadata its connection is closed, and others go on") {
  world w;
  w.start();
  auto other = w.connect();
  auto client = w.connect();
  auto meta = echo_meta(1);
  meta.user_fields.resize(10'000);
  const std::string request = frame(meta, payload("x"));
  client.send(std::string_view(request).substr(0, request.size() - 1));
  {
    const test_memory::shortage none(400'000, 2'000'000);
    client.send(std::string_view(request).substr(request.size() - 1));
  }
  CHECK(client.closed());
  CHECK(w.log.count("error: there is no memory for the metadata of a request") == 1);
  other.send(echo(1, "other"));
  CHECK(other.answers().size() == 1);
}

TEST_CASE("server memory: a response for which there is no memory is 12, and its connection goes on") {
  constexpr std::size_t size = 1'000'000;
  world w;
  w.service.run = [](server_call&, const EchoRequest& q, EchoResponse& r, google::protobuf::Closure* done) {
    r.set_message(std::string(q.message() == "large" ? size : 1, 'x'));
    const test_memory::shortage none(size, 2 * size);
    done->Run();
  };
  w.start();
  auto client = w.connect();
  client.send(echo(1, "large")).send(echo(2, "small"));
  const auto got = client.answers();
  REQUIRE(got.size() == 2);
  CHECK(got[0].code == 12);
  CHECK(got[0].text == "no memory for the response");
  CHECK(got[1].message() == "x");
  CHECK_FALSE(client.closed());
}

TEST_CASE(
    "server memory: answers that nobody reads are bounded by max_bytes_in_flight over all connections") {
  holding w({.max_bytes_in_flight = 2'000'000});
  w.sim.network().set_default({.window = 10'000});
  w.service.run = [&w](server_call&, const EchoRequest&, EchoResponse& r, google::protobuf::Closure* done) {
    r.set_message(std::string(200'000, 'x'));
    w.held.push_back(done);
  };
  std::deque<peer> clients;
  for (int i = 0; i < 10; ++i) {
    clients.emplace_back(w.sim, *w.client_side, w.at).stop_reading();
    for (int id = 1; id <= 5; ++id) clients.back().send(echo(id, "x"));
  }
  REQUIRE(w.held.size() == 50);
  const std::size_t before = test_memory::live();
  w.release();
  // One on each connection in any case, and those within the limit.
  CHECK(test_memory::live() < before + 10 * 200'000 + 2'500'000);  // all of them are 10,000,000
  int whole = 0;
  int refused = 0;
  for (auto& each : clients) {
    each.read_on();
    w.sim.run_for(1s);
    for (const answer& got : each.answers()) {
      whole += got.code == 0 ? 1 : 0;
      if (got.code != 1011) continue;
      ++refused;
      CHECK(has(got.text, "max_bytes_in_flight is 2000000"));
    }
  }
  CHECK(whole >= 10);
  CHECK(refused >= 20);
  CHECK(whole + refused == 50);
}
