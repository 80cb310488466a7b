// Two simulated processes with servers and clients, and the calls that are made there: what a scenario of
// abandonment is built in.

#pragma once

#include <braid/channel.hpp>
#include <braid/controller.hpp>
#include <braid/runtime.hpp>
#include <braid/server.hpp>
#include <braid/testing/simulation.hpp>

#include "golden.pb.h"
#include "unit/simulated_step.hpp"

#include <boost/asio/cancellation_signal.hpp>

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace abandonment {

using namespace std::chrono_literals;
using braid::error_code;
using golden::EchoRequest;
using golden::EchoResponse;
using golden::EchoService;

inline const google::protobuf::MethodDescriptor& echo() { return braid::describe_method(&EchoService::Echo); }

/// A call of a scenario, with all that must outlive it.
struct call {
  EchoRequest request;
  EchoResponse response;
  braid::controller control;
  boost::asio::cancellation_signal signal;
  std::function<void()> look;  // asks whether it has ended, where nobody is told
  int completions = 0;
  int code = 0;

  call() {
    request.set_message("hello");
    response.set_message("untouched");
  }
  void end(const error_code& ec) {
    ++completions;
    code = braid::to_wire(ec);
  }
  // For where it may have been told before, and for a coroutine that was never begun.
  void end_unless_ended(const error_code& ec) {
    if (completions == 0) end(ec);
  }
  auto handler() {
    return [this](const error_code& ec) { end(ec); };
  }
};

/// Simulated processes: servers in one, clients in another, and a third, whose loop handlers may run on.
class scene {
 public:
  scene() : sim(1, braid::testing::loop_order::fixed) {
    // Frames arrive in pieces, so that a step may lie inside one.
    sim.network().set_default({.latency = 1ms, .max_delivery = 40});
    near.emplace(options());
    far.emplace(options());
    elsewhere.emplace(options());
  }
  ~scene() {
    near.reset();
    tear_down_servers();
  }

  template <typename Handler>
  void serve(Handler handler, const braid::method_options& options = {}) {
    auto& made = servers.emplace_back(std::make_unique<braid::server>(*far));
    made->handle(&EchoService::Echo, handler, options);
    made->start("10.0.0.1:0");
  }
  std::shared_ptr<braid::channel> channel(std::size_t index) { return channel_of(*near, index); }
  std::shared_ptr<braid::channel> channel_at_server(std::size_t index) { return channel_of(*far, index); }
  call& new_call() { return calls.emplace_back(); }

  void step() { run_one_step(sim, {&*near, &*far, &*elsewhere}); }
  bool ended() {
    for (call& each : calls) {
      if (each.look) each.look();
      if (each.completions == 0) return false;
    }
    return true;
  }
  void tear_down_servers() {
    for (auto& each : servers) each.reset();
    kept.clear();
    far.reset();
    elsewhere.reset();
  }

  braid::testing::simulation sim;
  std::optional<braid::runtime> near;
  std::optional<braid::runtime> far;
  std::optional<braid::runtime> elsewhere;
  std::vector<std::unique_ptr<braid::server>> servers;
  std::vector<std::shared_ptr<void>> kept;  // what handlers use
  std::deque<call> calls;

 private:
  braid::runtime_options options() {
    auto made = sim.node_options();
    made.log = [](braid::log_level, std::string_view, std::span<const braid::log_field>) {};
    return made;
  }
  std::shared_ptr<braid::channel> channel_of(braid::runtime& on, std::size_t index) {
    auto made = std::make_shared<braid::channel>(on);
    made->init("10.0.0.1:" + std::to_string(servers.at(index)->port()));
    return made;
  }
};

/// What a scenario builds and starts. Every call of it that succeeds answers with "hello" and a hundred dots.
struct scenario {
  const char* name;
  void (*begin)(scene&);
};

/// Those that show what the demos show, one part each.
std::span<const scenario> scenarios();

}  // namespace abandonment
