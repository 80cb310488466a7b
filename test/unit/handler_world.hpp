// A client, a server of two loops whose handler is the test's, and a server behind that one, which the
// handler calls: in virtual time, with handlers of each style.

#pragma once

#include <braid/channel.hpp>
#include <braid/server.hpp>
#include <braid/spawn.hpp>
#include <braid/testing/simulation.hpp>

#include "core/loop.hpp"
#include "core/runtime_core.hpp"
#include "unit/server_fixture.hpp"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <catch2/catch.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace handler_test {

using namespace std::chrono_literals;
namespace asio = boost::asio;
using braid::call_done;
using braid::cancel_cause;
using braid::controller;
using braid::errc;
using braid::error_code;
using braid::placement;
using braid::server_call;
using braid::yield_context;
using golden::EchoRequest;
using golden::EchoResponse;
using golden::EchoService;
using server_test::echo_service;
using server_test::log_lines;

inline const auto& echo = *EchoService::descriptor() -> FindMethodByName("Echo");

// A call of the client's, with a callback.
struct client_call {
  explicit client_call(const std::string& message, std::chrono::milliseconds sleep = 0ms) {
    request.set_message(message);
    if (sleep > 0ms) request.set_sleep_ms(static_cast<std::int32_t>(sleep.count()));
  }
  controller control;
  EchoRequest request;
  EchoResponse response;
  bool ended = false;
  error_code ec;
  std::chrono::nanoseconds ended_at{};
};

// A call that a handler made.
struct downstream_call {
  controller control;
  EchoRequest request;
  EchoResponse response;
  std::chrono::nanoseconds ended_at{-1};
  bool ended() const { return ended_at.count() >= 0; }
};

// A call in a callback handler that leaves its answer to the test.
struct kept_call {
  server_call* call = nullptr;
  std::optional<call_done> done;
};

// A client, a server of two loops whose handler is the test's, and a server behind that one.
struct world {
  /// The handler's calls have this timeout of their own.
  explicit world(std::chrono::nanoseconds down_timeout = -1ns) {
    behind.handle(&EchoService::Echo,
                  [](server_call& call, const EchoRequest& q, EchoResponse& r, yield_context yield) {
                    if (q.has_sleep_ms()) braid::sleep_for(std::chrono::milliseconds(q.sleep_ms()), yield);
                    if (q.has_fail_code()) call.set_failed(q.fail_code(), "as asked");
                    r.set_message("behind: " + q.message());
                  });
    behind.start("10.0.0.2:80");
    down.init("10.0.0.2:80", {.timeout = down_timeout});
  }
  ~world() { server.reset(); }

  braid::runtime_options two_loops() {
    auto options = sim.node_options();
    options.loops = 2;
    options.log = log.sink();
    options.log_at_least = braid::log_level::debug;
    return options;
  }
  void start() {
    server->start("10.0.0.1:80");
    up.init("10.0.0.1:80", {.timeout = -1ns});
  }

  /// Starts the server with a handler that keeps its call in `kept`.
  void serve_and_keep(kept_call& kept) {
    server->handle(&EchoService::Echo,
                   [&kept](server_call& call, const EchoRequest&, EchoResponse&, call_done done) {
                     kept.call = &call;
                     kept.done = done;
                   });
    start();
  }

  void call(client_call& made, std::chrono::milliseconds timeout = -1ms) {
    made.control.set_timeout(timeout);
    client.core()->at(0).post([this, &made] {
      up.async_call(echo, made.control, made.request, made.response, [this, &made](error_code ec) {
        made.ended = true;
        made.ec = ec;
        made.ended_at = sim.elapsed();
      });
    });
    sim.run_for(0ms);
  }
  void finish(client_call& made) {
    REQUIRE(sim.run_until([&] { return made.ended; }, 100s));
  }
  void lose_clients() { sim.network().break_connections(braid::endpoint::parse("10.0.0.1:80").value()); }

  // The call of a handler: that of its request, one server further.
  downstream_call& prepare(const EchoRequest& wanted) {
    downstream_call& made = *made_.emplace_back(std::make_unique<downstream_call>());
    made.request = wanted;
    return made;
  }
  // Makes it without waiting, on the caller's thread.
  void begin(downstream_call& made) {
    down.async_call(echo, made.control, made.request, made.response,
                    [this, &made](error_code) { note_end(made); });
  }
  void note_end(downstream_call& made) { made.ended_at = sim.elapsed(); }
  downstream_call& made(std::size_t index = 0) { return *made_.at(index); }
  std::size_t made_count() const { return made_.size(); }

  braid::testing::simulation sim{11};
  log_lines log;
  braid::runtime behind_process{sim.node_options()};
  braid::server behind{behind_process};
  braid::runtime client{sim.node_options()};
  braid::channel up{client};
  std::vector<std::unique_ptr<downstream_call>> made_;
  echo_service service;
  braid::runtime process{two_loops()};
  braid::channel down{process};
  std::optional<braid::server> server{std::in_place, process};
};

inline void take_answer(server_call& call, const downstream_call& from, EchoResponse& response) {
  if (from.control.Failed()) {
    call.set_failed(from.control.error(), from.control.ErrorText());
  } else {
    response.set_message("via " + from.response.message());
  }
}

inline asio::awaitable<void> pass_on(world& w, server_call& call, const EchoRequest& q, EchoResponse& r) {
  auto& made = w.prepare(q);
  try {
    co_await w.down.async_call(echo, made.control, made.request, made.response, asio::use_awaitable);
  } catch (const boost::system::system_error&) {
  }
  w.note_end(made);
  take_answer(call, made, r);
}

enum class style { stackful, plain, awaitable, callback, generated, generated_later };
inline const auto all_styles = {style::stackful, style::plain,     style::awaitable,
                                style::callback, style::generated, style::generated_later};

inline void pass_on_later(world& w, server_call& call, const EchoRequest& q, EchoResponse& r,
                          std::function<void()> done) {
  auto& made = w.prepare(q);
  w.down.async_call(echo, made.control, made.request, made.response, [&, done](error_code) {
    w.note_end(made);
    take_answer(call, made, r);
    done();
  });
}

/// Adds a handler that calls the server behind and passes its answer on, and starts the server. `first` is
/// run in the handler, before that call.
void serve(
    world& w, style written, const placement& where,
    std::function<void(server_call&)> first = [](server_call&) {});

/// Adds a handler that runs `body` and answers, and starts the server. What `body` throws, the handler
/// throws; in the styles stackful, plain, awaitable and generated.
using handler_body = std::function<void(server_call&, const EchoRequest&, EchoResponse&)>;
void serve_at_once(world& w, style written, const placement& where, handler_body body);

inline placement on_a_loop() {
  return GENERATE(placement::reading_loop(), placement::loop(0), placement::loop(1), placement::spread());
}

}  // namespace handler_test
