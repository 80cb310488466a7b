#pragma once

// What the tests of the system's network share: ends, listeners and attempts to connect on two loops.

#include "core/loop.hpp"
#include "core/runtime_core.hpp"
#include "net/transport.hpp"

#include <boost/asio/error.hpp>
#include <catch2/catch.hpp>

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace network_fixture {

using namespace std::chrono_literals;
using namespace braid::net;
using braid::endpoint;
using braid::error_code;
using braid::core::loop;
namespace error = boost::asio::error;

// What a test waits for comes within moments; the limit only turns a hang into a failure.
constexpr auto long_enough = 60s;

template <typename Function>
auto on(loop& where, Function function) {
  std::packaged_task<decltype(function())()> task(std::move(function));
  auto result = task.get_future();
  // Catch2 is not for two threads at once, so nothing is asserted here while the function may assert.
  const bool posted = where.post([task = std::move(task)]() mutable { task(); });
  const bool ran = posted && result.wait_for(long_enough) == std::future_status::ready;
  REQUIRE(ran);
  return result.get();
}

template <typename Condition>
bool eventually(loop& where, Condition condition) {
  const auto limit = std::chrono::steady_clock::now() + long_enough;
  while (std::chrono::steady_clock::now() < limit) {
    if (on(where, condition)) return true;
    std::this_thread::sleep_for(1ms);
  }
  return false;
}

inline std::size_t write(transport& to, std::string_view text, error_code& ec) {
  const iovec piece{const_cast<char*>(text.data()), text.size()};
  return to.write_some(std::span(&piece, 1), ec);
}

// One end of a connection, with all that it was told.
struct end : transport_events {
  explicit end(std::unique_ptr<transport> stream) : stream(std::move(stream)) {}

  std::span<char> read_space() override {
    if (no_memory) throw std::bad_alloc();
    return space;
  }
  void on_read(std::size_t size) override {
    in_turn = in_turn && loop::current() == home;
    if (size == 0) {
      ended = true;
    } else {
      received.append(space.data(), size);
    }
    if (const auto told = when_read) told();  // a copy: it may destroy this
  }
  void on_writable() override {
    ++writable;
    if (const auto told = when_writable) told();  // a copy: it may destroy this
  }
  void on_broken(const error_code& why) override {
    broken = why;
    if (const auto told = when_broken) told();  // a copy: it may destroy this
  }

  void start() {
    home = loop::current();
    stream->start(*this);
  }

  std::unique_ptr<transport> stream;
  loop* home = nullptr;
  std::vector<char> space = std::vector<char>(64 * 1024);
  std::string received;
  bool no_memory = false;
  bool ended = false;
  bool in_turn = true;
  int writable = 0;
  error_code broken;
  std::function<void()> when_read;
  std::function<void()> when_writable;
  std::function<void()> when_broken;
};

// A listener on one loop that puts every connection on another.
struct host : accept_events {
  host(loop& at, loop& homes) : at(at), homes(homes) {}
  ~host() {
    on(at, [&] { listening.reset(); });  // first: what it has accepted is then on its way to the other loop
    on(homes, [&] { ends.clear(); });
  }

  loop& next_loop() override { return homes; }
  void on_accepted(loop& home, std::unique_ptr<transport> accepted) override {
    home.post([this, accepted = std::make_shared<std::unique_ptr<transport>>(std::move(accepted))] {
      ends.push_back(std::make_unique<end>(std::move(*accepted)));
      ends.back()->start();
      if (when_accepted) when_accepted(*ends.back());
    });
  }
  void on_accept_failed(const error_code& why) override { failed.push_back(why); }

  endpoint listen(const char* address = "127.0.0.1:0", transport_options options = {}) {
    return on(at, [&] {
      error_code ec;
      listening = system_network().listen(at, endpoint::parse(address).value(), options, ec);
      REQUIRE_FALSE(ec);
      listening->start(*this);
      return listening->local();
    });
  }

  loop& at;
  loop& homes;
  std::unique_ptr<listener> listening;
  std::vector<std::unique_ptr<end>> ends;
  std::vector<error_code> failed;
  std::function<void(end&)> when_accepted;
};

// An attempt to connect.
struct caller : connect_events {
  void on_connected(std::unique_ptr<transport> connected) override {
    called_inside = called_inside || inside;
    stream = std::make_unique<end>(std::move(connected));
    stream->start();
  }
  void on_connect_failed(const error_code& why) override {
    called_inside = called_inside || inside;
    failed = why;
  }

  void connect(const endpoint& to, transport_options options = {}) {
    inside = true;
    attempt = system_network().connect(*loop::current(), to, options, *this);
    inside = false;
  }

  std::unique_ptr<connecting> attempt;
  std::unique_ptr<end> stream;
  error_code failed;
  bool inside = false;
  bool called_inside = false;
};

struct two_loops {
  braid::runtime runtime{{.loops = 2}};
  loop& first = runtime.core()->at(0);
  loop& second = runtime.core()->at(1);
};

// A connection from the first loop to the second.
struct connected_pair : two_loops {
  explicit connected_pair(const char* address = "127.0.0.1:0", transport_options options = {}) {
    at = server.listen(address, options);
    on(first, [&] { client.connect(at, options); });
    REQUIRE(eventually(first, [&] { return client.stream != nullptr; }));
    REQUIRE(eventually(second, [&] { return server.ends.size() == 1; }));
  }
  ~connected_pair() {
    on(first, [&] { client.stream.reset(); });
  }

  end& near() { return *client.stream; }
  end& far() { return *server.ends.front(); }

  host server{second, second};
  caller client;
  endpoint at;
};

}  // namespace network_fixture
