#include "net/memory_network.hpp"

#include <braid/testing/simulation.hpp>

#include "core/loop.hpp"
#include "core/runtime_core.hpp"

#include <boost/asio/error.hpp>
#include <catch2/catch.hpp>

#include <algorithm>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

using namespace std::chrono_literals;
using namespace braid::net;
using braid::endpoint;
using braid::error_code;
using braid::core::loop;
using braid::testing::cut_point;
using braid::testing::link_faults;
using braid::testing::simulation;
namespace error = boost::asio::error;

const endpoint server_at = endpoint::parse("10.0.0.1:80").value();

std::size_t write(transport& to, std::string_view text, error_code& ec) {
  const iovec pieces[] = {{const_cast<char*>(text.data()), text.size() / 2},
                          {const_cast<char*>(text.data()) + text.size() / 2, text.size() - text.size() / 2}};
  return to.write_some(pieces, ec);
}

// One end of a connection, with all that it was told.
struct end : transport_events {
  explicit end(std::unique_ptr<transport> stream) : stream(std::move(stream)) { this->stream->start(*this); }

  std::span<char> read_space() override { return space; }
  void on_read(std::size_t size) override {
    reads.push_back(size);
    received.append(space.data(), size);
    if (const auto told = when_told) told();  // a copy: it may destroy this
  }
  void on_writable() override {
    ++writable;
    if (const auto told = when_told) told();  // a copy: it may destroy this
  }
  void on_broken(const error_code& why) override {
    broken = why;
    if (const auto told = when_told) told();  // a copy: it may destroy this
  }
  bool ended() const { return !reads.empty() && reads.back() == 0; }

  std::unique_ptr<transport> stream;
  std::vector<char> space = std::vector<char>(4096);
  std::string received;
  std::vector<std::size_t> reads;
  int writable = 0;
  error_code broken;
  std::function<void()> when_told;
};

struct host : accept_events {
  explicit host(loop& home) : home(home) {}
  loop& next_loop() override { return home; }
  void on_accepted(loop&, std::unique_ptr<transport> accepted) override {
    ends.push_back(std::make_unique<end>(std::move(accepted)));
  }
  void on_accept_failed(const error_code&) override {}

  loop& home;
  std::unique_ptr<listener> listening;
  std::vector<std::unique_ptr<end>> ends;
};

struct caller : connect_events {
  void on_connected(std::unique_ptr<transport> connected) override {
    called_inside = called_inside || inside;
    stream = std::make_unique<end>(std::move(connected));
  }
  void on_connect_failed(const error_code& why) override {
    called_inside = called_inside || inside;
    failed = why;
  }

  std::unique_ptr<connecting> attempt;
  std::unique_ptr<end> stream;
  error_code failed;
  bool inside = false;
  bool called_inside = false;
};

// Two simulated processes; the second one listens.
struct world {
  simulation sim{1};
  braid::runtime client_process{sim.node_options()};
  braid::runtime server_process{sim.node_options()};
  loop& client_loop = client_process.core()->at(0);
  loop& server_loop = server_process.core()->at(0);
  network& net = *client_process.core()->outside().network;
  caller client;
  host server{server_loop};

  ~world() {
    on(client_loop, [&] {
      client.attempt.reset();
      client.stream.reset();
    });
    on(server_loop, [&] {
      server.ends.clear();
      server.listening.reset();
    });
  }

  void on(loop& where, std::function<void()> function) {
    bool ran = false;
    REQUIRE(where.post([&] {
      function();
      ran = true;
    }));
    REQUIRE(sim.run_until([&] { return ran; }));
  }
  endpoint listen(const endpoint& at = server_at) {
    endpoint result;
    on(server_loop, [&] {
      error_code ec;
      server.listening = net.listen(server_loop, at, {}, ec);
      REQUIRE_FALSE(ec);
      server.listening->start(server);
      result = server.listening->local();
    });
    return result;
  }
  void connect(const endpoint& to = server_at) {
    on(client_loop, [&] {
      client.inside = true;
      client.attempt = net.connect(client_loop, to, {}, client);
      client.inside = false;
    });
  }
  void set(const link_faults& faults) { sim.network().set(server_at, faults); }
  std::size_t send(end& from, loop& where, std::string_view text) {
    std::size_t taken = 0;
    on(where, [&] { taken = write(*from.stream, text, send_error); });
    return taken;
  }
  std::size_t send(std::string_view text) { return send(near(), client_loop, text); }
  std::size_t answer(std::string_view text) { return send(far(), server_loop, text); }
  end& near() { return *client.stream; }
  end& far() { return *server.ends.front(); }

  error_code send_error;
};

struct connected_world : world {
  explicit connected_world(const link_faults& faults = {}) {
    set(faults);
    listen();
    connect();
    REQUIRE(sim.run_until([&] { return client.stream && !server.ends.empty(); }));
  }
};

}  // namespace

TEST_CASE("memory network: bytes go both ways", "[memory_network]") {
  connected_world w;
  CHECK_FALSE(w.client.called_inside);
  CHECK(w.send("ping") == 4);
  CHECK(w.answer("pong!") == 5);
  w.sim.run_for(1ms);
  CHECK(w.far().received == "ping");
  CHECK(w.near().received == "pong!");
  CHECK(w.near().stream->remote() == server_at);
  CHECK(w.far().stream->local() == server_at);
  CHECK(w.far().stream->remote() == w.near().stream->local());
  CHECK(w.sim.network().connections(server_at) == 1);
  CHECK(w.sim.network().attempts(server_at) == 1);
}

TEST_CASE("memory network: nobody listens, or the network refuses", "[memory_network]") {
  const bool listening = GENERATE(false, true);
  world w;
  if (listening) w.listen();
  w.set({.refuse = listening});
  w.connect();
  REQUIRE(w.sim.run_until([&] { return bool{w.client.failed}; }));
  CHECK(w.client.failed == error::connection_refused);
  CHECK_FALSE(w.client.called_inside);
  CHECK(w.sim.network().connections(server_at) == 0);
}

TEST_CASE("memory network: a name that was not resolved is refused", "[memory_network]") {
  world w;
  const endpoint name = endpoint::parse("host:80").value();
  w.connect(name);
  REQUIRE(w.sim.run_until([&] { return bool{w.client.failed}; }));
  CHECK(w.client.failed.value() == EINVAL);
  error_code ec;
  CHECK(w.net.listen(w.server_loop, name, {}, ec) == nullptr);
  CHECK(ec.value() == EINVAL);
}

TEST_CASE("memory network: unix paths and abstract names are places of their own", "[memory_network]") {
  const endpoint at = endpoint::parse(GENERATE("unix:/run/echo.sock", "unix:@echo")).value();
  world w;
  w.listen(endpoint::parse("0.0.0.0:80").value());
  w.connect(at);  // not what listens on all addresses
  REQUIRE(w.sim.run_until([&] { return bool{w.client.failed}; }));
  CHECK(w.client.failed == error::connection_refused);
  CHECK(w.listen(at) == at);
  w.connect(at);
  REQUIRE(w.sim.run_until([&] { return w.client.stream && !w.server.ends.empty(); }));
  CHECK(w.near().stream->remote() == at);
  CHECK(w.far().stream->remote() == at);
  w.send("ping");
  w.sim.run_for(1ms);
  CHECK(w.far().received == "ping");
}

TEST_CASE("memory network: port 0 is one that is free, a taken one is refused", "[memory_network]") {
  world w;
  const endpoint first = w.listen(endpoint::parse("10.0.0.1:0").value());
  error_code ec;
  CHECK(first.port() != 0);
  CHECK(w.net.listen(w.server_loop, first, {}, ec) == nullptr);
  CHECK(ec == error::address_in_use);
  const auto second = w.net.listen(w.server_loop, endpoint::parse("10.0.0.1:0").value(), {}, ec);
  REQUIRE(second);
  CHECK(second->local() != first);
}

TEST_CASE("memory network: a listener on all addresses takes connections to each", "[memory_network]") {
  world w;
  w.listen(endpoint::parse("0.0.0.0:80").value());
  w.connect();
  CHECK(w.sim.run_until([&] { return w.client.stream != nullptr; }));
}

TEST_CASE("memory network: a black hole never answers", "[memory_network]") {
  world w;
  w.listen();
  w.set({.black_hole = true});
  w.connect();
  w.sim.run_for(std::chrono::hours(1));
  CHECK_FALSE(w.client.failed);
  CHECK_FALSE(w.client.stream);
  CHECK(w.server.ends.empty());
}

TEST_CASE("memory network: an abandoned attempt tells nothing, and its server hears of a reset",
          "[memory_network]") {
  world w;
  w.listen();
  w.set({.latency = 10ms});
  w.connect();
  w.sim.run_for(15ms);
  REQUIRE(w.server.ends.size() == 1);
  w.on(w.client_loop, [&] { w.client.attempt.reset(); });
  w.sim.run_for(1s);
  CHECK_FALSE(w.client.stream);
  CHECK_FALSE(w.client.failed);
  CHECK(w.far().broken == error::connection_reset);
  CHECK(w.sim.network().connections(server_at) == 1);  // the server's end is still open
}

TEST_CASE("memory network: a listener that ends refuses what is on its way to it", "[memory_network]") {
  world w;
  w.listen();
  w.set({.latency = 10ms});
  w.connect();
  w.on(w.server_loop, [&] { w.server.listening.reset(); });
  REQUIRE(w.sim.run_until([&] { return bool{w.client.failed}; }));
  CHECK(w.client.failed == error::connection_refused);
}

TEST_CASE("memory network: latency holds for the handshake and for each direction", "[memory_network]") {
  world w;
  w.listen();
  w.set({.latency = 10ms});
  const auto start = w.sim.elapsed();
  w.connect();
  REQUIRE(w.sim.run_until([&] { return w.client.stream != nullptr; }));
  CHECK(w.sim.elapsed() - start == 20ms);
  w.send("x");
  w.sim.run_for(9ms);
  CHECK(w.far().received.empty());
  w.sim.run_for(1ms);
  CHECK(w.far().received == "x");
}

TEST_CASE("memory network: jitter keeps the order of bytes", "[memory_network]") {
  connected_world w({.latency = 1ms, .jitter = 50ms});
  std::string sent;
  for (int i = 0; i < 50; ++i) {
    sent += std::to_string(i);
    w.send(std::to_string(i));
  }
  w.sim.run_for(200ms);
  CHECK(w.far().received == sent);
  CHECK(w.far().reads.size() > 1);
}

TEST_CASE("memory network: deliveries are as small as asked for", "[memory_network]") {
  connected_world w({.max_delivery = 1});
  w.send("abc");
  w.sim.run_for(1ms);
  CHECK(w.far().received == "abc");
  CHECK(w.far().reads == std::vector<std::size_t>{1, 1, 1});
}

TEST_CASE("memory network: a full window makes the writer wait until there is room", "[memory_network]") {
  connected_world w({.window = 5});
  w.on(w.server_loop, [&] { w.far().stream->pause_reading(); });
  CHECK(w.send("abcdefg") == 5);
  CHECK(w.send("fg") == 0);
  w.sim.run_for(1s);
  CHECK(w.near().writable == 0);
  CHECK(w.far().received.empty());
  w.on(w.server_loop, [&] { w.far().stream->resume_reading(); });
  w.sim.run_for(1ms);
  CHECK(w.near().writable == 1);
  CHECK(w.send("fg") == 2);
  w.sim.run_for(1ms);
  CHECK(w.far().received == "abcdefg");
  CHECK(w.near().writable == 1);
}

TEST_CASE("memory network: a writer that may go on does so although faults are set before it hears of it",
          "[memory_network]") {
  connected_world w({.window = 5});
  w.on(w.server_loop, [&] { w.far().stream->pause_reading(); });
  CHECK(w.send("abcdefg") == 5);
  w.on(w.server_loop, [&] {
    w.far().when_told = [&] { w.set({.window = 5}); };  // there is room by then
    w.far().stream->resume_reading();
  });
  w.sim.run_for(1ms);
  CHECK(w.far().received == "abcde");
  CHECK(w.near().writable == 1);
}

TEST_CASE("memory network: a stalled connection keeps its bytes", "[memory_network]") {
  connected_world w({.stalled = true, .window = 3});
  CHECK(w.send("abcd") == 3);
  w.sim.run_for(1s);
  CHECK(w.far().reads.empty());
  w.set({});
  w.sim.run_for(1ms);
  CHECK(w.far().received == "abc");
  CHECK(w.near().writable == 1);
}

TEST_CASE("memory network: the end of sending comes after the bytes and leaves the other direction open",
          "[memory_network]") {
  connected_world w({.latency = 5ms});
  w.send("last");
  w.on(w.client_loop, [&] { w.near().stream->shutdown_send(); });
  w.sim.run_for(20ms);
  CHECK(w.far().received == "last");
  CHECK(w.far().ended());
  w.answer("answer");
  w.sim.run_for(20ms);
  CHECK(w.near().received == "answer");
  CHECK(w.send("more") == 0);
  CHECK(w.send_error == error::broken_pipe);
}

TEST_CASE("memory network: a close is an end of file; a reset, or a close with bytes unread, is a reset",
          "[memory_network]") {
  connected_world w;
  const std::string how = GENERATE("close", "reset", "unread");
  if (how == "unread") {
    w.on(w.client_loop, [&] { w.near().stream->pause_reading(); });
    w.answer("never read");
  }
  w.on(w.client_loop, [&] { w.near().stream->close(how == "reset"); });
  w.sim.run_for(1ms);
  CHECK(w.far().ended() == (how == "close"));
  CHECK(w.far().broken == (how == "close" ? error_code() : error_code(error::connection_reset)));
  CHECK(w.send("x") == 0);
  CHECK(w.send_error);
  CHECK(w.near().reads.empty());
}

TEST_CASE("memory network: what is written to a closed end comes back as a reset", "[memory_network]") {
  connected_world w({.latency = 5ms});
  w.on(w.client_loop, [&] { w.client.stream.reset(); });
  CHECK(w.answer("x") == 1);
  w.sim.run_for(20ms);
  CHECK(w.far().ended());
  CHECK_FALSE(w.far().broken);  // told already that the peer is gone
  CHECK(w.answer("y") == 0);
  CHECK(w.send_error == error::connection_reset);
  w.on(w.server_loop, [&] { w.server.ends.clear(); });
  CHECK(w.sim.network().connections(server_at) == 0);
}

TEST_CASE("memory network: a cut lets so many bytes pass and then resets both ends", "[memory_network]") {
  connected_world w({.latency = 1ms, .to_server = {.after = 3, .how = cut_point::kind::reset}});
  CHECK(w.send("ab") == 2);
  w.sim.run_for(5ms);
  CHECK_FALSE(w.far().broken);
  CHECK(w.send("cde") == 3);
  w.sim.run_for(5ms);
  CHECK(w.far().received == "abc");
  CHECK(w.far().broken == error::connection_reset);
  CHECK(w.near().broken == error::connection_reset);
}

TEST_CASE("memory network: a silent cut swallows bytes, the end too, until the window is full",
          "[memory_network]") {
  connected_world w({.window = 8, .to_client = {.after = 2, .how = cut_point::kind::silence}});
  CHECK(w.answer("abcdef") == 6);
  w.sim.run_for(1ms);
  CHECK(w.answer("ghijkl") == 4);  // two bytes of the window were read
  CHECK(w.answer("kl") == 0);
  w.on(w.server_loop, [&] { w.far().stream->close(); });
  w.sim.run_for(std::chrono::hours(1));
  CHECK(w.near().received == "ab");
  CHECK_FALSE(w.near().ended());
  CHECK_FALSE(w.near().broken);
}

TEST_CASE("memory network: breaking connections loses what is on the way", "[memory_network]") {
  connected_world w({.latency = 10ms});
  w.send("lost");
  w.sim.network().break_connections(server_at);
  w.sim.run_for(20ms);
  CHECK(w.far().received.empty());
  CHECK(w.far().broken == error::connection_reset);
  CHECK(w.near().broken == error::connection_reset);
}

TEST_CASE("memory network: faults may be chosen for each connection", "[memory_network]") {
  world w;
  w.listen();
  std::vector<std::size_t> seen;
  w.sim.network().choose_with([&](const endpoint& at, std::size_t nth, const link_faults& faults) {
    CHECK(at == server_at);
    seen.push_back(nth);
    auto mine = faults;
    mine.refuse = nth == 0;
    return mine;
  });
  w.connect();
  REQUIRE(w.sim.run_until([&] { return bool{w.client.failed}; }));
  w.connect();
  CHECK(w.sim.run_until([&] { return w.client.stream != nullptr; }));
  CHECK(seen == std::vector<std::size_t>{0, 1});
}

TEST_CASE("memory network: default faults hold where none are set", "[memory_network]") {
  world w;
  w.listen();
  w.sim.network().set_default({.refuse = true});
  const bool own = GENERATE(false, true);
  if (own) w.set({});
  w.connect();
  w.sim.run_for(1ms);
  CHECK(bool{w.client.failed} == !own);
}

TEST_CASE("memory network: the owner may destroy a transport in each event", "[memory_network]") {
  connected_world w({.window = 4});
  bool gone = false;
  w.far().when_told = [&] {
    w.server.ends.clear();
    gone = true;
  };
  SECTION("when bytes arrive") { w.send("x"); }
  SECTION("at the end") {
    w.on(w.client_loop, [&] { w.near().stream->shutdown_send(); });
  }
  SECTION("when it broke") {
    w.on(w.client_loop, [&] { w.near().stream->close(true); });
  }
  SECTION("when it can be written to again") { CHECK(w.answer("abcdef") == 4); }
  w.sim.run_for(1ms);
  CHECK(gone);
}

TEST_CASE("memory network: it joins loops that are threads", "[memory_network]") {
  memory_network net(1);
  auto outside = std::make_shared<braid::core::environment>();
  braid::runtime runtime{{.loops = 2, .environment = outside}};
  loop& client_loop = runtime.core()->at(0);
  loop& server_loop = runtime.core()->at(1);
  host server(server_loop);
  caller client;
  net.set_default({.max_delivery = 7, .window = 16});

  std::promise<void> listening;
  server_loop.post([&] {
    error_code ec;
    server.listening = net.listen(server_loop, server_at, {}, ec);
    server.listening->start(server);
    listening.set_value();
  });
  listening.get_future().get();

  const std::string text(10'000, 'x');
  std::size_t sent = 0;
  std::promise<std::string> echoed;
  struct sender : connect_events {
    void on_connected(std::unique_ptr<transport> connected) override {
      to.stream = std::make_unique<end>(std::move(connected));
      to.stream->when_told = go_on;
      go_on();
    }
    void on_connect_failed(const error_code&) override {}
    caller& to;
    std::function<void()> go_on;
    sender(caller& to, std::function<void()> go_on) : to(to), go_on(std::move(go_on)) {}
  };
  sender sending(client, [&] {
    error_code ec;
    sent += write(*client.stream->stream, std::string_view(text).substr(sent), ec);
    if (sent == text.size()) client.stream->stream->shutdown_send();
  });
  client_loop.post([&] { client.attempt = net.connect(client_loop, server_at, {}, sending); });
  // The server's end is looked at on its loop until all has come.
  std::function<void()> look = [&] {
    if (!server.ends.empty() && server.ends.front()->ended())
      return echoed.set_value(server.ends.front()->received);
    server_loop.after_turn(look);
  };
  server_loop.post(look);
  CHECK(echoed.get_future().get() == text);

  std::promise<void> client_done, server_done;
  client_loop.post([&] {
    client.stream.reset();
    client.attempt.reset();
    client_done.set_value();
  });
  client_done.get_future().get();
  server_loop.post([&] {
    server.ends.clear();
    server.listening.reset();
    server_done.set_value();
  });
  server_done.get_future().get();
}
