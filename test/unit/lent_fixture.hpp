#pragma once

// A server and a client on contexts of the test's own, over a network in memory.

#include <braid/channel.hpp>
#include <braid/server.hpp>
#include <braid/spawn.hpp>
#include <braid/testing/simulation.hpp>

#include "core/environment.hpp"
#include "core/loop.hpp"
#include "core/runtime_core.hpp"
#include "coroutine_fixture.hpp"
#include "net/memory_network.hpp"

#include <boost/asio/io_context.hpp>

#include <golden.pb.h>

#include <atomic>
#include <memory>
#include <string>

namespace lent_fixture {

using namespace std::chrono_literals;
using namespace coroutine_fixture;
using golden::EchoRequest;
using golden::EchoResponse;

inline const google::protobuf::MethodDescriptor& echo() {
  return *golden::EchoService::descriptor()->FindMethodByName("Echo");
}

/// The network and the log that the runtimes of a test share.
class world {
 public:
  braid::runtime_options options() {
    braid::runtime_options made;
    made.log = log.sink();
    made.seed = 1;
    made.environment = environment_;
    return made;
  }
  braid::net::memory_network& network() { return *network_; }

  log_lines log;

 private:
  static std::shared_ptr<braid::core::environment> make(std::shared_ptr<braid::net::memory_network> network) {
    auto made = std::make_shared<braid::core::environment>();
    made->network = std::move(network);
    return made;
  }
  std::shared_ptr<braid::net::memory_network> network_ = std::make_shared<braid::net::memory_network>(1);
  std::shared_ptr<braid::core::environment> environment_ = make(network_);
};

constexpr const char* server_address = "10.0.0.1:80";

/// Echoes; "never" is answered when the call is cancelled.
inline void serve(braid::server& server) {
  server.handle(&golden::EchoService::Echo, [](braid::server_call&, const EchoRequest& wanted,
                                               EchoResponse& response, yield_context yield) {
    if (wanted.message() == "never") braid::sleep_for(24h, yield);
    response.set_message(wanted.message());
  });
  server.start(server_address);
}

/// A call started with a callback, and what it was told.
struct told_call {
  void start(braid::channel& channel, const std::string& message = "hello",
             std::chrono::nanoseconds timeout = 1h) {
    EchoRequest request;
    request.set_message(message);
    control.set_timeout(timeout);
    channel.async_call(echo(), control, request, response, [this](error_code result) {
      ec = result;
      ++times;  // last: another thread reads the rest when it has seen this
    });
  }
  std::atomic<int> times{0};
  error_code ec;
  braid::controller control;
  EchoResponse response;
};

}  // namespace lent_fixture
