#pragma once

// A server and scripted clients of it in one thread, under virtual time.

#include <braid/runtime.hpp>
#include <braid/server.hpp>
#include <braid/testing/simulation.hpp>

#include "core/loop.hpp"
#include "core/runtime_core.hpp"
#include "net/loop_network.hpp"
#include "net/transport.hpp"
#include "unit/server_fixture.hpp"

#include <catch2/catch.hpp>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace server_test {

using namespace std::chrono_literals;
using braid::cancel_cause;
using braid::errc;
using braid::error_code;
using braid::server_call;
using braid::server_options;
using braid::stop_options;
using braid::yield_context;
using golden::EchoRequest;
using golden::EchoResponse;
using golden::EchoService;
namespace net = braid::net;

inline braid::runtime_options node(braid::testing::simulation& sim, log_lines& log) {
  auto options = sim.node_options();
  options.log = log.sink();
  options.log_at_least = braid::log_level::debug;
  return options;
}

// A client that sends what the test says, byte by byte if need be, and keeps what comes.
class peer : net::connect_events, net::transport_events {
 public:
  peer(braid::testing::simulation& sim, braid::runtime& on, const braid::endpoint& to)
      : sim_(sim), home_(on.core()->home()) {
    home_.post([this, to] { attempt_ = net::network_of(home_).connect(home_, to, {}, *this); });
    REQUIRE(sim_.run_until([&] { return stream_ != nullptr; }, 1s));
  }
  ~peer() {
    home_.post([this] { stream_.reset(); });
    sim_.run_for(0s);
  }

  // Writes and lets the other side work, without time passing.
  peer& send(std::string_view bytes) {
    home_.post([this, text = std::string(bytes)] {
      unsent += text;
      on_writable();
    });
    sim_.run_for(0s);
    return *this;
  }
  void end_sending() {
    home_.post([this] { stream_->shutdown_send(); });
    sim_.run_for(0s);
  }
  void reset() {
    home_.post([this] { stream_->close(true); });
    sim_.run_for(0s);
  }
  void stop_reading() {
    home_.post([this] { stream_->pause_reading(); });
    sim_.run_for(0s);
  }
  void read_on() {
    home_.post([this] { stream_->resume_reading(); });
    sim_.run_for(0s);
  }
  std::vector<answer> answers() const { return answers_in(received); }
  // Whether the server has closed the connection, one way or the other.
  bool closed() const { return ended || broken; }

  bool one_read_at_a_time = false;  // then none before the next read_on()
  std::string received;
  std::string unsent;
  bool ended = false;
  bool broken = false;
  error_code why_broken;

 private:
  void on_connected(std::unique_ptr<net::transport> connected) override {
    stream_ = std::move(connected);
    stream_->start(*this);
  }
  void on_connect_failed(const error_code&) override {}
  std::span<char> read_space() override { return space_; }
  void on_read(std::size_t size) override {
    received.append(space_.data(), size);
    if (one_read_at_a_time) stream_->pause_reading();
    ended = ended || size == 0;
  }
  void on_writable() override {
    const iovec piece{unsent.data(), unsent.size()};
    error_code ec;
    unsent.erase(0, stream_->write_some(std::span(&piece, 1), ec));
    if (unsent.empty()) unsent.shrink_to_fit();
  }
  void on_broken(const error_code& why) override {
    broken = true;
    why_broken = why;
  }

  braid::testing::simulation& sim_;
  braid::core::loop& home_;
  std::unique_ptr<net::connecting> attempt_;
  std::unique_ptr<net::transport> stream_;
  std::vector<char> space_ = std::vector<char>(64 * 1024);
};

// A server and its clients in one thread, under virtual time.
struct world {
  explicit world(server_options options = {}) : srv(std::in_place, *server_side, options) {}

  // With the generated service, whose function the test sets.
  void start() {
    srv->add_service(service);
    srv->start("10.0.0.1:80");
  }
  // With a stackful function.
  template <typename Handler>
  void start(Handler handler) {
    srv->handle(&EchoService::Echo, handler);
    srv->start("10.0.0.1:80");
  }
  peer connect() { return {sim, *client_side, at}; }
  std::size_t connections() { return sim.network().connections(at); }

  braid::testing::simulation sim{7};
  log_lines log;
  const braid::endpoint at = braid::endpoint::parse("10.0.0.1:80").value();
  echo_service service;
  std::optional<braid::runtime> server_side{std::in_place, node(sim, log)};
  std::optional<braid::runtime> client_side{std::in_place, node(sim, log)};
  std::optional<braid::server> srv;
};

inline stop_options within(std::chrono::milliseconds grace, std::chrono::milliseconds kill) {
  return {.grace = grace, .kill = kill};
}

}  // namespace server_test
