#include <braid/coroutine.hpp>
#include <braid/spawn.hpp>
#include <braid/testing/simulation.hpp>

#include "core/loop.hpp"
#include "core/runtime_core.hpp"
#include "net/resolver.hpp"
#include "net/transport.hpp"
#include "unit/child_process.hpp"

#include <boost/asio/error.hpp>
#include <catch2/catch.hpp>

#include <chrono>
#include <functional>
#include <memory>
#include <stdexcept>
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
using braid::testing::loop_order;
using braid::testing::simulation;

// A process that answers every byte with the same one, or sends bytes and counts the answers.
class echo_node : accept_events, connect_events {
 public:
  echo_node(simulation& sim, std::string name) : sim_(sim), name_(std::move(name)) {}
  ~echo_node() {
    home().post([this] {
      peers_.clear();
      attempt_.reset();
      listening_.reset();
    });
  }

  void listen(const endpoint& at) {
    home().post([this, at] {
      error_code ec;
      listening_ = net().listen(home(), at, {}, ec);
      listening_->start(*this);
    });
  }
  void call(const endpoint& to, int rounds) {
    rounds_ = rounds;
    home().post([this, to] { attempt_ = net().connect(home(), to, {}, *this); });
  }
  int rounds_left() const { return rounds_; }

 private:
  struct peer : transport_events {
    peer(echo_node& node, std::unique_ptr<transport> stream) : node(node), stream(std::move(stream)) {
      this->stream->start(*this);
    }
    std::span<char> read_space() override { return space; }
    void on_read(std::size_t size) override {
      node.sim_.record(node.name_, static_cast<std::int64_t>(size));
      if (size == 0 || (node.rounds_ >= 0 && --node.rounds_ <= 0)) return stream->close();
      send(std::string_view(space.data(), size));
    }
    void on_writable() override {}
    void on_broken(const error_code& why) override { node.sim_.record(node.name_, -why.value()); }
    void send(std::string_view text) {
      const iovec piece{const_cast<char*>(text.data()), text.size()};
      error_code ec;
      stream->write_some(std::span(&piece, 1), ec);
    }

    echo_node& node;
    std::unique_ptr<transport> stream;
    std::array<char, 64> space{};
  };

  loop& home() { return process_.core()->at(0); }
  network& net() { return *process_.core()->outside().network; }
  loop& next_loop() override { return home(); }
  void on_accepted(loop&, std::unique_ptr<transport> accepted) override {
    peers_.push_back(std::make_unique<peer>(*this, std::move(accepted)));
  }
  void on_accept_failed(const error_code&) override {}
  void on_connected(std::unique_ptr<transport> connected) override {
    peers_.push_back(std::make_unique<peer>(*this, std::move(connected)));
    // How many bytes go around depends on the process's own seed.
    peers_.back()->send(std::string(1 + home().random()() % 60, 'x'));
  }
  void on_connect_failed(const error_code& why) override { sim_.record(name_, -why.value()); }

  simulation& sim_;
  const std::string name_;
  int rounds_ = -1;
  std::vector<std::unique_ptr<peer>> peers_;
  std::unique_ptr<connecting> attempt_;
  std::unique_ptr<listener> listening_;
  braid::runtime process_{sim_.node_options()};  // first to go, with what runs on it
};

braid::testing::trace run_echo(std::uint64_t seed, loop_order order) {
  const endpoint at = endpoint::parse("10.0.0.1:80").value();
  simulation sim(seed, order);
  sim.network().set_default({.latency = 1ms, .jitter = 20ms, .max_delivery = 16});
  echo_node server(sim, "server"), one(sim, "one"), two(sim, "two"), three(sim, "three");
  server.listen(at);
  sim.run_for(1ms);
  for (echo_node* each : {&one, &two, &three}) each->call(at, 20);
  CHECK(sim.run_until([&] { return one.rounds_left() + two.rounds_left() + three.rounds_left() == 0; }));
  return sim.trace();
}

// What a process that does this writes to standard error before it aborts.
template <typename Function>
std::string last_words_of(Function function) {
  const auto [status, text] = child_process::in_child(std::move(function));
  CHECK(WIFSIGNALED(status));
  return text;
}

}  // namespace

TEST_CASE("simulation: time stands still while code runs and jumps to the next timer", "[simulation]") {
  simulation sim(1);
  braid::runtime node(sim.node_options());
  std::vector<std::chrono::nanoseconds> seen;
  braid::spawn(node, [&](braid::yield_context yield) {
    seen.push_back(sim.elapsed());
    braid::sleep_for(90min, yield);
    seen.push_back(sim.elapsed());
    braid::sleep_for(1ms, yield);
    seen.push_back(sim.elapsed());
  });
  CHECK(sim.run_until([&] { return seen.size() == 3; }));
  CHECK(seen == std::vector<std::chrono::nanoseconds>{0ns, 90min, 90min + 1ms});
  CHECK(sim.now().time_since_epoch() > sim.elapsed());
}

TEST_CASE("simulation: runs for a time, to its very end and no further", "[simulation]") {
  simulation sim(1);
  braid::runtime node(sim.node_options());
  int ticks = 0;
  braid::spawn(node, [&](braid::yield_context yield) {
    for (;; ++ticks) braid::sleep_for(10ms, yield);
  });
  sim.run_for(9ms);
  CHECK(ticks == 0);
  sim.run_for(1ms);
  CHECK(ticks == 1);
  sim.run_for(95ms);
  CHECK(ticks == 10);
  CHECK(sim.elapsed() == 105ms);
}

TEST_CASE("simulation: what cannot come true ends a wait", "[simulation]") {
  simulation sim(1);
  braid::runtime node(sim.node_options());
  CHECK_FALSE(sim.run_until([] { return false; }));
  CHECK(sim.elapsed() == 0ms);
  CHECK(sim.run_until_idle());
  braid::spawn(node, [&](braid::yield_context yield) {
    for (;;) braid::sleep_for(10ms, yield);
  });
  CHECK_FALSE(sim.run_until([] { return false; }, 1s));
  CHECK_FALSE(sim.run_until_idle(1s));
  CHECK(sim.elapsed() <= 2s);
  CHECK(sim.run_until([] { return true; }));
}

TEST_CASE("simulation: a loop that never rests does not hold up the others", "[simulation]") {
  simulation sim(1);
  braid::runtime busy(sim.node_options());
  braid::runtime other(sim.node_options());
  bool stop = false, ran = false;
  std::function<void()> again = [&] {
    if (!stop) busy.core()->at(0).post(again);
  };
  again();
  other.core()->at(0).post([&] { ran = true; });
  CHECK(sim.run_until([&] { return ran; }));
  stop = true;
}

TEST_CASE("simulation: destroying a runtime cancels and ends what runs on it", "[simulation]") {
  simulation sim(1);
  error_code ended;
  {
    braid::runtime node(sim.node_options());
    braid::spawn(
        node, [](braid::yield_context yield) { braid::sleep_for(1h, yield); },
        [&](error_code ec) { ended = ec; });
    sim.run_for(1s);
    CHECK_FALSE(ended);
  }
  CHECK(ended == boost::asio::error::operation_aborted);
  CHECK(sim.elapsed() < 1h);
}

TEST_CASE("simulation: what was posted before a runtime's end still runs", "[simulation]") {
  simulation sim(1);
  bool ran = false;
  {
    braid::runtime node(sim.node_options());
    node.core()->at(0).post([&] { ran = true; });
  }
  CHECK(ran);
}

TEST_CASE("simulation: a runtime may outlive it", "[simulation]") {
  std::unique_ptr<braid::runtime> node;
  bool ended = false;
  {
    simulation sim(1);
    node = std::make_unique<braid::runtime>(sim.node_options());
    braid::spawn(
        *node, [](braid::yield_context yield) { braid::sleep_for(1h, yield); },
        [&](error_code) { ended = true; });
    sim.run_for(1s);
  }
  node.reset();
  CHECK(ended);
}

TEST_CASE("simulation: code of one runtime may destroy another", "[simulation]") {
  simulation sim(1);
  braid::runtime node(sim.node_options());
  auto other = std::make_unique<braid::runtime>(sim.node_options());
  bool ended = false, on_own_loop = false;
  braid::spawn(
      *other, [](braid::yield_context yield) { braid::sleep_for(1h, yield); },
      [&](error_code) { ended = true; });
  sim.run_for(1s);
  node.core()->at(0).post([&] {
    other.reset();
    on_own_loop = loop::current() == &node.core()->at(0);
  });
  CHECK(sim.run_until([&] { return ended && !other; }));
  CHECK(on_own_loop);
}

TEST_CASE("simulation: timers of a loop that waits for another runtime's end come after it", "[simulation]") {
  simulation sim(1);
  braid::runtime node(sim.node_options());
  auto other = std::make_unique<braid::runtime>(sim.node_options());
  braid::spawn(*other, [](braid::yield_context yield) {
    error_code ec;
    braid::sleep_for(1h, yield[ec]);
    const braid::shield clean_up(yield, 1s);
    braid::sleep_for(100ms, yield);
  });
  std::chrono::nanoseconds woken{0}, ended{0};
  braid::spawn(node, [&](braid::yield_context yield) {
    braid::sleep_for(50ms, yield);
    woken = sim.elapsed();
  });
  sim.run_for(1ms);
  node.core()->at(0).post([&] {
    other.reset();
    ended = sim.elapsed();
  });
  CHECK(sim.run_until([&] { return woken > 0ns; }));
  CHECK(ended >= 101ms);
  CHECK(woken >= ended);
}

TEST_CASE("simulation: what a handler throws while its runtime ends is logged, and the end goes on",
          "[simulation]") {
  simulation sim(1);
  std::string logged;
  auto options = sim.node_options();
  options.log = [&](braid::log_level, std::string_view text, std::span<const braid::log_field>) {
    logged += text;
  };
  auto node = std::make_unique<braid::runtime>(std::move(options));
  braid::spawn(
      *node, [](braid::yield_context yield) { braid::sleep_for(1h, yield); },
      [](error_code) { throw std::runtime_error("told of an end"); });
  bool ended = false;
  braid::spawn(
      *node,
      [](braid::yield_context yield) {
        const braid::shield clean_up(yield, 1s);
        braid::sleep_for(10ms, yield);
      },
      [&](error_code) { ended = true; });
  sim.run_for(1ms);
  node.reset();
  CHECK(ended);
  CHECK(logged.find("a handler on loop 0 threw: told of an end") != std::string::npos);
}

TEST_CASE("simulation: a runtime that cannot stop is named instead of waited for", "[simulation]") {
  const std::string text = last_words_of([] {
    struct immortal : braid::core::live_node {
      void cancel_for_shutdown() noexcept override {}
      std::string describe() const override { return "the immortal one"; }
    };
    simulation sim(1);
    static immortal never_ends;
    braid::runtime node(sim.node_options());
    node.core()->at(0).add_live(never_ends);
  });
  CHECK(text.find("the immortal one") != std::string::npos);
}

TEST_CASE("simulation: a runtime whose coroutines would have to end inside another's is told so",
          "[simulation]") {
  const std::string text = last_words_of([] {
    simulation sim(1);
    braid::runtime node(sim.node_options());
    auto other = std::make_unique<braid::runtime>(sim.node_options());
    braid::spawn(*other, [](braid::yield_context yield) { braid::sleep_for(1h, yield); });
    braid::spawn(node, [&](braid::yield_context yield) {
      braid::sleep_for(1ms, yield);
      other.reset();
    });
    sim.run_for(1s);
  });
  CHECK(text.find("inside a coroutine") != std::string::npos);
}

TEST_CASE("simulation: the same seed gives the same run, another seed another", "[simulation]") {
  const auto order = GENERATE(loop_order::fixed, loop_order::shuffled);
  const auto first = run_echo(7, order);
  CHECK(first.entries().size() > 60);
  CHECK(run_echo(7, order).entries() == first.entries());
  CHECK(run_echo(7, order).hash() == first.hash());
  CHECK(run_echo(8, order).hash() != first.hash());
}

TEST_CASE("simulation: the trace's hash sees every part of an entry and their order", "[simulation]") {
  const auto hash = [](std::vector<braid::testing::trace_entry> entries) {
    braid::testing::trace trace;
    for (auto& each : entries) trace.add(std::move(each));
    return trace.hash();
  };
  const auto base = hash({{1ns, "a", 1}, {2ns, "b", 2}});
  CHECK(base == hash({{1ns, "a", 1}, {2ns, "b", 2}}));
  CHECK(base != hash({{2ns, "b", 2}, {1ns, "a", 1}}));
  CHECK(base != hash({{1ns, "a", 1}, {3ns, "b", 2}}));
  CHECK(base != hash({{1ns, "a", 1}, {2ns, "c", 2}}));
  CHECK(base != hash({{1ns, "a", 1}, {2ns, "b", 3}}));
  CHECK(base != hash({{1ns, "a", 1}}));
}

TEST_CASE("simulation: host names are looked up in its table", "[simulation]") {
  simulation sim(1);
  braid::runtime node(sim.node_options());
  sim.set_host("echo.test", {boost::asio::ip::make_address("10.1.2.3")});
  loop& home = node.core()->at(0);
  resolved found;
  error_code missing;
  std::vector<lookup> lookups;
  const auto post = [&](std::function<void()> function) { home.post(std::move(function)); };
  home.post([&] {
    auto& resolver = *node.core()->outside().resolver;
    lookups.push_back(
        resolver.resolve(endpoint::parse("echo.test:80").value(), post,
                         [&](error_code, resolved addresses) { found = std::move(addresses); }));
    lookups.push_back(resolver.resolve(endpoint::parse("no.test:80").value(), post,
                                       [&](error_code ec, resolved) { missing = ec; }));
  });
  CHECK(sim.run_until([&] { return !found.empty() && missing; }));
  CHECK(endpoint(found.front()) == endpoint::parse("10.1.2.3:80").value());
  CHECK(missing == boost::asio::error::host_not_found);
}
