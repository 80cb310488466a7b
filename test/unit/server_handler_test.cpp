// Handlers of each style on the loops of their server, and what the calls that they make inherit.

#include <braid/channel.hpp>
#include <braid/server.hpp>
#include <braid/spawn.hpp>
#include <braid/testing/simulation.hpp>

#include "core/loop.hpp"
#include "core/runtime_core.hpp"
#include "unit/server_fixture.hpp"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <catch2/catch.hpp>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

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

const auto& echo = *EchoService::descriptor() -> FindMethodByName("Echo");

// A call of the client's, with a callback.
struct client_call {
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

// A client, a server of two loops whose handler is the test's, and a server behind that one.
struct world {
  world() {
    behind.handle(&EchoService::Echo,
                  [](server_call& call, const EchoRequest& q, EchoResponse& r, yield_context yield) {
                    if (q.has_sleep_ms()) braid::sleep_for(std::chrono::milliseconds(q.sleep_ms()), yield);
                    if (q.has_fail_code()) call.set_failed(q.fail_code(), "as asked");
                    r.set_message("behind: " + q.message());
                  });
    behind.start("10.0.0.2:80");
    down.init("10.0.0.2:80", {.timeout = -1ns});
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

void take_answer(server_call& call, const downstream_call& from, EchoResponse& response) {
  if (from.control.Failed()) {
    call.set_failed(from.control.error(), from.control.ErrorText());
  } else {
    response.set_message("via " + from.response.message());
  }
}

asio::awaitable<void> pass_on(world& w, server_call& call, const EchoRequest& q, EchoResponse& r) {
  auto& made = w.prepare(q);
  try {
    co_await w.down.async_call(echo, made.control, made.request, made.response, asio::use_awaitable);
  } catch (const boost::system::system_error&) {
  }
  w.note_end(made);
  take_answer(call, made, r);
}

// Handlers that call the server behind and pass its answer on, one in each style.
enum class style { stackful, plain, awaitable, callback, generated, generated_later };
const auto all_styles = {style::stackful, style::plain,     style::awaitable,
                         style::callback, style::generated, style::generated_later};

void pass_on_later(world& w, server_call& call, const EchoRequest& q, EchoResponse& r,
                   std::function<void()> done) {
  auto& made = w.prepare(q);
  w.down.async_call(echo, made.control, made.request, made.response, [&, done](error_code) {
    w.note_end(made);
    take_answer(call, made, r);
    done();
  });
}

void serve(world& w, style written, const placement& where) {
  const braid::method_options options{.run_on = where};
  const auto synchronous = [&w](server_call& call, const EchoRequest& q, EchoResponse& r) {
    auto& made = w.prepare(q);
    error_code ec;
    w.down.call(echo, made.control, made.request, made.response, ec);
    w.note_end(made);
    take_answer(call, made, r);
  };
  switch (written) {
    case style::stackful:
      w.server->handle(
          &EchoService::Echo,
          [&w](server_call& call, const EchoRequest& q, EchoResponse& r, yield_context yield) {
            auto& made = w.prepare(q);
            error_code ec;
            w.down.async_call(echo, made.control, made.request, made.response, yield[ec]);
            w.note_end(made);
            take_answer(call, made, r);
          },
          options);
      break;
    case style::plain:
      w.server->handle(&EchoService::Echo, synchronous, options);
      break;
    case style::awaitable:
      w.server->handle(
          &EchoService::Echo,
          [&w](server_call& call, const EchoRequest& q, EchoResponse& r) { return pass_on(w, call, q, r); },
          options);
      break;
    case style::callback:
      w.server->handle(
          &EchoService::Echo,
          [&w](server_call& call, const EchoRequest& q, EchoResponse& r, call_done done) {
            pass_on_later(w, call, q, r, done);
          },
          options);
      break;
    case style::generated:
      w.service.run = [synchronous](server_call& call, const EchoRequest& q, EchoResponse& r,
                                    google::protobuf::Closure* done) {
        synchronous(call, q, r);
        done->Run();
      };
      w.server->add_service(w.service, options);
      break;
    case style::generated_later:
      w.service.run = [&w](server_call& call, const EchoRequest& q, EchoResponse& r,
                           google::protobuf::Closure* done) {
        pass_on_later(w, call, q, r, [done] { done->Run(); });
      };
      w.server->add_service(w.service, options);
      break;
  }
  w.start();
}

placement on_a_loop() {
  return GENERATE(placement::reading_loop(), placement::loop(0), placement::loop(1), placement::spread());
}

// A trait of handler shapes, as handle() sees it.
template <typename Handler>
using shape = braid::detail::handler_shape<Handler, EchoRequest, EchoResponse>;

}  // namespace

TEST_CASE("handler: its signature chooses its style") {
  const auto stackful = [](server_call&, const EchoRequest&, EchoResponse&, yield_context) {};
  const auto plain = [](server_call&, const EchoRequest&, EchoResponse&) {};
  const auto awaitable = [](server_call&, const EchoRequest&, EchoResponse&) -> asio::awaitable<void> {
    co_return;
  };
  const auto callback = [](server_call&, const EchoRequest&, EchoResponse&, call_done) {};
  const auto other_response = [](server_call&, const EchoRequest&, EchoRequest&) {};
  const auto changes_request = [](server_call&, EchoRequest&, EchoResponse&) {};
  const auto any_last = [](server_call&, const EchoRequest&, EchoResponse&, auto) {};
  const auto returns_value = [](server_call&, const EchoRequest&, EchoResponse&) { return 1; };
  STATIC_REQUIRE(shape<decltype(stackful)>::stackful);
  STATIC_REQUIRE(shape<decltype(plain)>::plain);
  STATIC_REQUIRE(shape<decltype(awaitable)>::awaitable);
  STATIC_REQUIRE(shape<decltype(callback)>::callback);
  STATIC_REQUIRE_FALSE(shape<decltype(other_response)>::three);
  STATIC_REQUIRE_FALSE(shape<decltype(changes_request)>::three);
  STATIC_REQUIRE(shape<decltype(any_last)>::yields);  // ambiguous, which is refused
  STATIC_REQUIRE(shape<decltype(any_last)>::calls_back);
  STATIC_REQUIRE_FALSE(shape<decltype(returns_value)>::plain);
  STATIC_REQUIRE_FALSE(shape<decltype(returns_value)>::awaitable);
}

TEST_CASE("handler: each style answers, on each loop") {
  const style written = GENERATE(values(all_styles));
  const placement where = on_a_loop();
  world w;
  serve(w, written, where);
  for (int round = 0; round < 3; ++round) {
    client_call made;
    made.request.set_message("hello");
    w.call(made);
    w.finish(made);
    CHECK_FALSE(made.ec);
    CHECK(made.response.message() == "via behind: hello");
  }
  client_call failing;
  failing.request.set_message("x");
  failing.request.set_fail_code(4711);
  w.call(failing);
  w.finish(failing);
  CHECK(failing.ec.value() == 4711);
}

TEST_CASE("handler: calls downstream end at the deadline of the server call, in each style") {
  const style written = GENERATE(values(all_styles));
  const placement where = on_a_loop();
  world w;
  serve(w, written, where);
  client_call made;
  made.request.set_message("slow");
  made.request.set_sleep_ms(60'000);
  w.call(made, 50ms);
  w.finish(made);
  CHECK(made.ec == errc::timed_out);
  REQUIRE(w.sim.run_until([&] { return w.made().ended(); }, 1s));
  CHECK(w.made().control.error() == errc::timed_out);
  CHECK(w.made().control.result().cause == cancel_cause::deadline);
  CHECK(w.made().ended_at <= 52ms);
}

TEST_CASE("handler: calls downstream are cancelled when the client is gone, in each style") {
  const style written = GENERATE(values(all_styles));
  const placement where = on_a_loop();
  world w;
  serve(w, written, where);
  client_call made;
  made.request.set_message("slow");
  made.request.set_sleep_ms(60'000);
  w.call(made);
  w.sim.run_for(20ms);
  REQUIRE(w.made_count() == 1);
  CHECK_FALSE(w.made().ended());
  w.lose_clients();
  w.sim.run_for(5ms);
  CHECK(w.made().ended());
  CHECK(w.made().control.error() == asio::error::operation_aborted);
  CHECK(w.made().control.result().cause == cancel_cause::peer_gone);
}

TEST_CASE("handler: calls downstream are cancelled when the server stops, in each style") {
  const style written = GENERATE(values(all_styles));
  const placement where = on_a_loop();
  world w;
  serve(w, written, where);
  client_call made;
  made.request.set_message("slow");
  made.request.set_sleep_ms(60'000);
  w.call(made);
  w.sim.run_for(20ms);
  CHECK(w.server->stop({.grace = 10ms, .kill = 1000ms}).empty());
  w.finish(made);
  CHECK(made.ec == errc::logoff);
  CHECK(w.made().control.error() == asio::error::operation_aborted);
  CHECK(w.made().control.result().cause == cancel_cause::shutdown);
}

TEST_CASE("handler: a detached call inherits nothing, in a coroutine, an awaitable and a callback") {
  const style written = GENERATE(style::stackful, style::awaitable, style::callback);
  world w;
  const auto start = [&w](const EchoRequest& q) {
    auto& made = w.prepare(q);
    made.control.set_detached(true);
    w.down.async_call(echo, made.control, made.request, made.response, [&](error_code) { w.note_end(made); });
  };
  if (written == style::stackful) {
    w.server->handle(&EchoService::Echo,
                     [&](server_call&, const EchoRequest& q, EchoResponse&, yield_context yield) {
                       start(q);
                       braid::sleep_for(60s, yield);
                     });
  } else if (written == style::awaitable) {
    w.server->handle(&EchoService::Echo,
                     [&](server_call&, const EchoRequest& q, EchoResponse&) -> asio::awaitable<void> {
                       start(q);
                       asio::steady_timer forever(co_await asio::this_coro::executor, 10h);
                       co_await forever.async_wait(asio::use_awaitable);
                     });
  } else {
    w.server->handle(&EchoService::Echo,
                     [&, held = std::vector<call_done>()](server_call&, const EchoRequest& q, EchoResponse&,
                                                          call_done) mutable { start(q); });
  }
  w.start();
  client_call made;
  made.request.set_message("detached");
  made.request.set_sleep_ms(500);
  w.call(made, 50ms);
  w.finish(made);
  CHECK(made.ec == errc::timed_out);
  REQUIRE(w.sim.run_until([&] { return w.made().ended(); }, 2s));
  CHECK_FALSE(w.made().control.Failed());
}

TEST_CASE("handler: calls that it leaves running go on after its answer, in each style") {
  const style written =
      GENERATE(style::stackful, style::plain, style::awaitable, style::callback, style::generated);
  const placement where = on_a_loop();
  world w;
  const auto leave = [&w](const EchoRequest& q) {
    auto& made = w.prepare(q);
    w.down.async_call(echo, made.control, made.request, made.response, [&](error_code) { w.note_end(made); });
  };
  const braid::method_options options{.run_on = where};
  switch (written) {
    case style::stackful:
      w.server->handle(
          &EchoService::Echo,
          [&](server_call&, const EchoRequest& q, EchoResponse& r, yield_context) {
            leave(q);
            r.set_message("left");
          },
          options);
      break;
    case style::plain:
      w.server->handle(
          &EchoService::Echo,
          [&](server_call&, const EchoRequest& q, EchoResponse& r) {
            leave(q);
            r.set_message("left");
          },
          options);
      break;
    case style::awaitable:
      w.server->handle(
          &EchoService::Echo,
          [&](server_call&, const EchoRequest& q, EchoResponse& r) -> asio::awaitable<void> {
            leave(q);
            r.set_message("left");
            co_return;
          },
          options);
      break;
    case style::callback:
      w.server->handle(
          &EchoService::Echo,
          [&](server_call&, const EchoRequest& q, EchoResponse& r, call_done done) {
            leave(q);
            r.set_message("left");
            done();
          },
          options);
      break;
    default:
      w.service.run = [&](server_call&, const EchoRequest& q, EchoResponse& r,
                          google::protobuf::Closure* done) {
        leave(q);
        r.set_message("left");
        done->Run();
      };
      w.server->add_service(w.service, options);
  }
  w.start();
  client_call made;
  made.request.set_message("x");
  made.request.set_sleep_ms(200);
  w.call(made, 1000ms);
  w.finish(made);
  CHECK(made.response.message() == "left");
  CHECK_FALSE(w.made().ended());
  w.lose_clients();
  REQUIRE(w.sim.run_until([&] { return w.made().ended(); }, 2s));
  CHECK_FALSE(w.made().control.Failed());
}

TEST_CASE("handler: one that throws fails its call with 2001, in each style") {
  const style written = GENERATE(style::stackful, style::plain, style::awaitable, style::callback);
  const placement where = on_a_loop();
  world w;
  const braid::method_options options{.run_on = where};
  std::optional<call_done> kept;
  if (written == style::stackful) {
    w.server->handle(
        &EchoService::Echo,
        [](server_call&, const EchoRequest&, EchoResponse&, yield_context) {
          throw std::runtime_error("secret");
        },
        options);
  } else if (written == style::plain) {
    w.server->handle(
        &EchoService::Echo,
        [](server_call&, const EchoRequest&, EchoResponse&) { throw std::runtime_error("secret"); }, options);
  } else if (written == style::awaitable) {
    w.server->handle(
        &EchoService::Echo,
        [](server_call&, const EchoRequest&, EchoResponse&) -> asio::awaitable<void> {
          co_await asio::post(asio::use_awaitable);
          throw std::runtime_error("secret");
        },
        options);
  } else {
    w.server->handle(
        &EchoService::Echo,
        [&](server_call&, const EchoRequest&, EchoResponse&, call_done done) {
          kept = done;
          throw std::runtime_error("secret");
        },
        options);
  }
  w.start();
  client_call made;
  made.request.set_message("x");
  w.call(made);
  w.finish(made);
  CHECK(made.ec == errc::internal);
  CHECK(made.control.ErrorText().find("secret") == std::string::npos);
  CHECK(w.log.count("secret") == 1);
  if (kept) (*kept)();  // must harm nothing
  w.sim.run_for(1ms);
}

TEST_CASE("handler: awaitable and callback handlers take no stack from the pool") {
  world w;
  auto options = w.two_loops();
  options.loops = 1;
  options.max_coroutines = 1;
  braid::runtime small{options};
  {
    braid::server server{small};
    braid::channel onward{small};
    onward.init("10.0.0.2:80");
    std::vector<call_done> held;
    const auto kind = GENERATE(style::awaitable, style::callback, style::stackful);
    if (kind == style::awaitable) {
      server.handle(&EchoService::Echo,
                    [&](server_call&, const EchoRequest& q, EchoResponse& r) -> asio::awaitable<void> {
                      controller control;
                      co_await onward.async_call(echo, control, q, r, asio::use_awaitable);
                    });
    } else if (kind == style::callback) {
      server.handle(&EchoService::Echo,
                    [&](server_call&, const EchoRequest& q, EchoResponse& r, call_done done) {
                      r.set_message(q.message());
                      held.push_back(done);
                      if (held.size() == 50)
                        for (const auto& each : held) each();
                    });
    } else {
      server.handle(&EchoService::Echo,
                    [](server_call&, const EchoRequest& q, EchoResponse& r, yield_context yield) {
                      braid::sleep_for(100ms, yield);
                      r.set_message(q.message());
                    });
    }
    server.start("10.0.0.9:80");
    w.up.init("10.0.0.9:80", {.timeout = -1ns});
    std::vector<std::unique_ptr<client_call>> calls;
    for (int i = 0; i < 50; ++i) {
      calls.push_back(std::make_unique<client_call>());
      calls.back()->request.set_message(std::to_string(i));
      calls.back()->request.set_sleep_ms(100);
      w.call(*calls.back());
    }
    int answered = 0;
    int refused = 0;
    for (auto& each : calls) {
      w.finish(*each);
      answered += each->ec ? 0 : 1;
      refused += each->ec.value() == ENOMEM ? 1 : 0;
    }
    CHECK(answered == (kind == style::stackful ? 1 : 50));
    CHECK(refused == (kind == style::stackful ? 49 : 0));
    held.clear();
  }
}

TEST_CASE("handler: a second done is ignored and logged, also after the call") {
  const placement where = on_a_loop();
  world w;
  std::optional<call_done> kept;
  w.server->handle(&EchoService::Echo,
                   [&](server_call&, const EchoRequest&, EchoResponse& r, call_done done) {
                     r.set_message("once");
                     kept = done;
                     done();
                     done();
                   },
                   {.run_on = where});
  w.start();
  client_call made;
  made.request.set_message("x");
  w.call(made);
  w.finish(made);
  CHECK(made.response.message() == "once");
  CHECK(w.log.count("was called again: ignored") == 1);
  (*kept)();
  CHECK(w.log.count("was called again: ignored") == 2);
  w.sim.run_for(1ms);
}

TEST_CASE("handler: a done that is dropped without a call is logged, and the call ends at its deadline") {
  const placement where = on_a_loop();
  world w;
  w.server->handle(&EchoService::Echo, [](server_call&, const EchoRequest&, EchoResponse&, call_done) {},
                   {.run_on = where});
  w.start();
  client_call made;
  made.request.set_message("x");
  w.call(made, 30ms);
  w.sim.run_for(1ms);
  CHECK(w.log.count("has dropped its done") == 1);
  CHECK_FALSE(made.ended);
  w.finish(made);
  CHECK(made.ec == errc::timed_out);
  CHECK(w.server->stop({.grace = 0ms, .kill = 0ms}).empty());  // the call is over
}

TEST_CASE("handler: a done that is dropped without a call ends with its connection") {
  world w;
  w.server->handle(&EchoService::Echo, [](server_call&, const EchoRequest&, EchoResponse&, call_done) {});
  w.start();
  client_call made;
  made.request.set_message("x");
  w.call(made);
  w.lose_clients();
  w.sim.run_for(1ms);
  CHECK(made.ended);
  CHECK(w.server->stop({.grace = 0ms, .kill = 0ms}).empty());
}

TEST_CASE("handler: a call that a callback makes is part of the server call by set_parent") {
  const bool related = GENERATE(true, false);
  const bool by_deadline = GENERATE(true, false);
  const std::size_t loop = GENERATE(0U, 1U);  // of the later call
  world w;
  std::optional<call_done> kept;
  server_call* serving = nullptr;
  w.server->handle(&EchoService::Echo,
                   [&](server_call& call, const EchoRequest&, EchoResponse&, call_done done) {
                     serving = &call;
                     kept = done;
                   });
  w.start();
  client_call made;
  made.request.set_message("x");
  w.call(made, by_deadline ? 50ms : -1ms);
  w.sim.run_for(1ms);
  REQUIRE(serving);
  EchoRequest slow;
  slow.set_message("slow");
  slow.set_sleep_ms(300);
  auto& below = w.prepare(slow);
  if (related) below.control.set_parent(*serving);
  w.process.core()->at(loop).post([&] {
    w.down.async_call(echo, below.control, below.request, below.response,
                      [&](error_code) { w.note_end(below); });
  });
  w.sim.run_for(10ms);
  if (!by_deadline) w.lose_clients();
  w.sim.run_for(60ms);
  CHECK(below.ended() == related);
  (*kept)();
  kept.reset();
  REQUIRE(w.sim.run_until([&] { return below.ended(); }, 1s));
  CHECK(below.control.result().cause == (!related      ? cancel_cause::none
                                         : by_deadline ? cancel_cause::deadline
                                                       : cancel_cause::peer_gone));
}

TEST_CASE("handler: a call with a parent goes on after the server call was answered") {
  const std::size_t loop = GENERATE(0U, 1U);
  world w;
  std::optional<call_done> kept;
  server_call* serving = nullptr;
  w.server->handle(&EchoService::Echo,
                   [&](server_call& call, const EchoRequest&, EchoResponse&, call_done done) {
                     serving = &call;
                     kept = done;
                   });
  w.start();
  client_call made;
  made.request.set_message("x");
  w.call(made);
  w.sim.run_for(1ms);
  EchoRequest slow;
  slow.set_message("slow");
  slow.set_sleep_ms(100);
  auto& below = w.prepare(slow);
  below.control.set_parent(*serving);
  w.process.core()->at(loop).post([&] {
    w.down.async_call(echo, below.control, below.request, below.response,
                      [&](error_code) { w.note_end(below); });
  });
  w.sim.run_for(1ms);
  (*kept)();
  w.finish(made);
  w.lose_clients();
  REQUIRE(w.sim.run_until([&] { return below.ended(); }, 1s));
  CHECK_FALSE(below.control.Failed());
}

TEST_CASE("handler: what runs on a server call's executor is part of it") {
  const placement where = on_a_loop();
  const bool as_coroutine = GENERATE(true, false);
  world w;
  std::optional<call_done> kept;
  w.server->handle(&EchoService::Echo,
                   [&](server_call& call, const EchoRequest& q, EchoResponse& r, call_done done) {
                     kept = done;
                     if (as_coroutine) {
                       asio::co_spawn(call.get_executor(), pass_on(w, call, q, r), asio::detached);
                       return;
                     }
                     asio::post(call.get_executor(), [&] {
                       auto& made = w.prepare(q);
                       w.down.async_call(echo, made.control, made.request, made.response,
                                         [&](error_code) { w.note_end(made); });
                     });
                   },
                   {.run_on = where});
  w.start();
  client_call made;
  made.request.set_message("slow");
  made.request.set_sleep_ms(60'000);
  w.call(made);
  w.sim.run_for(20ms);
  REQUIRE(w.made_count() == 1);
  w.lose_clients();
  w.sim.run_for(5ms);
  CHECK(w.made().ended());
  CHECK(w.made().control.result().cause == cancel_cause::peer_gone);
  (*kept)();
  w.sim.run_for(1ms);
}

TEST_CASE("handler: NotifyOnCancel works in each style and on each loop") {
  const style written = GENERATE(style::plain, style::awaitable, style::callback);
  const placement where = on_a_loop();
  const bool cancelled = GENERATE(true, false);
  world w;
  int notified = 0;
  struct counter : google::protobuf::Closure {
    explicit counter(int& of) : count(of) {}
    void Run() override { ++count; }
    int& count;
  } closure{notified};
  const auto wait = [&](server_call& call) { call.NotifyOnCancel(&closure); };
  std::optional<call_done> kept;
  const braid::method_options options{.run_on = where};
  if (written == style::plain) {
    w.server->handle(
        &EchoService::Echo,
        [&](server_call& call, const EchoRequest& q, EchoResponse&) {
          wait(call);
          auto& made = w.prepare(q);
          error_code ec;
          w.down.call(echo, made.control, made.request, made.response, ec);
        },
        options);
  } else if (written == style::awaitable) {
    w.server->handle(
        &EchoService::Echo,
        [&](server_call& call, const EchoRequest& q, EchoResponse& r) {
          wait(call);
          return pass_on(w, call, q, r);
        },
        options);
  } else {
    w.server->handle(
        &EchoService::Echo,
        [&](server_call& call, const EchoRequest& q, EchoResponse& r, call_done done) {
          wait(call);
          pass_on_later(w, call, q, r, done);
        },
        options);
  }
  w.start();
  client_call made;
  made.request.set_message("x");
  made.request.set_sleep_ms(100);
  w.call(made);
  w.sim.run_for(20ms);
  CHECK(notified == 0);
  if (cancelled) w.lose_clients();
  w.sim.run_for(5ms);
  CHECK(notified == (cancelled ? 1 : 0));
  w.sim.run_for(200ms);
  CHECK(notified == 1);
}

TEST_CASE("handler: one that ignores its cancellation is named when the server stops") {
  const style written = GENERATE(style::stackful, style::callback);
  const placement where = on_a_loop();
  world w;
  std::optional<call_done> kept;
  if (written == style::stackful) {
    w.server->handle(&EchoService::Echo,
                     [](server_call&, const EchoRequest&, EchoResponse&, yield_context yield) {
                       braid::shield stubborn{yield, 10s};
                       braid::sleep_for(5s, yield);
                     },
                     {.run_on = where});
  } else {
    w.server->handle(&EchoService::Echo,
                     [&](server_call&, const EchoRequest&, EchoResponse&, call_done done) { kept = done; },
                     {.run_on = where});
  }
  w.start();
  client_call made;
  made.request.set_message("x");
  w.call(made);
  w.sim.run_for(1ms);
  const auto names = w.server->stop({.grace = 10ms, .kill = 20ms});
  REQUIRE(names.size() == 1);
  CHECK(names.front().find("golden.EchoService.Echo") != std::string::npos);
  w.finish(made);
  CHECK(made.ec == errc::logoff);
  if (kept) (*kept)();
  w.sim.run_for(10s);
}

TEST_CASE("handler: calls are spread over the loops, or run on the loop that is named") {
  world w;
  std::vector<std::size_t> ran;
  const bool spread = GENERATE(true, false);
  w.server->handle(&EchoService::Echo,
                   [&](server_call&, const EchoRequest&, EchoResponse& r) {
                     ran.push_back(braid::core::loop::current()->index());
                     r.set_message("x");
                   },
                   {.run_on = spread ? placement::spread() : placement::loop(1)});
  w.start();
  for (int i = 0; i < 4; ++i) {
    client_call made;
    made.request.set_message("x");
    w.call(made);
    w.finish(made);
  }
  if (spread) {
    CHECK((ran == std::vector<std::size_t>{0, 1, 0, 1} || ran == std::vector<std::size_t>{1, 0, 1, 0}));
  } else {
    CHECK(ran == std::vector<std::size_t>{1, 1, 1, 1});
  }
}

TEST_CASE("handler: options are set for one method of a service") {
  world w;
  std::size_t ran = 7;
  w.service.run = [&](server_call& call, const EchoRequest& q, EchoResponse& r,
                      google::protobuf::Closure* done) {
    ran = braid::core::loop::current()->index();
    echo_service::answer_at_once(call, q, r, done);
  };
  w.server->add_service(w.service, {.run_on = placement::loop(0)});
  w.server->set_options(&EchoService::Echo, {.run_on = placement::loop(1)});
  w.start();
  client_call made;
  made.request.set_message("x");
  w.call(made);
  w.finish(made);
  CHECK(made.response.message() == "x");
  CHECK(ran == 1);
}

TEST_CASE("handler: a placement that does not fit is refused when the handler is added") {
  world w;
  asio::io_context other;
  const auto stackful = [](server_call&, const EchoRequest&, EchoResponse&, yield_context) {};
  const auto says = [](const auto& function, const std::string& part) {
    try {
      function();
    } catch (const boost::system::system_error& e) {
      CHECK(e.code() == boost::system::errc::invalid_argument);
      return std::string(e.what()).find(part) != std::string::npos;
    }
    return false;
  };
  CHECK(says([&] { w.server->handle(&EchoService::Echo, stackful, {.run_on = other}); },
             "a yield_context needs a loop"));
  CHECK(says([&] { w.server->handle(&EchoService::Echo, stackful, {.run_on = placement::loop(2)}); },
             "placed on loop 2, and the runtime has 2"));
  CHECK(says([&] { w.server->add_service(w.service, {.run_on = placement::on({})}); },
             "executor that is empty"));
  CHECK(says([&] { w.server->set_options(&EchoService::Echo, {}); }, "was not added"));
  w.server->handle(&EchoService::Echo, stackful);
  CHECK(says([&] { w.server->set_options(&EchoService::Echo, {.run_on = other}); },
             "a yield_context needs a loop"));
  w.start();
  CHECK(says([&] { w.server->set_options(&EchoService::Echo, {}); }, "after the start"));
}
