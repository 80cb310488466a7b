// Handlers of each style on the loops of their server, and what the calls that they make inherit.

#include "unit/handler_world.hpp"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <catch2/catch.hpp>

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

using namespace handler_test;

namespace {

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
    client_call made("hello");
    w.call(made);
    w.finish(made);
    CHECK_FALSE(made.ec);
    CHECK(made.response.message() == "via behind: hello");
  }
  client_call failing("x");
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
  client_call made("slow", 60'000ms);
  w.call(made, 50ms);
  w.finish(made);
  CHECK(made.ec == errc::timed_out);
  REQUIRE(w.sim.run_until([&] { return w.made().ended(); }, 1s));
  CHECK(w.made().control.error() == errc::timed_out);
  CHECK(w.made().control.result().cause == cancel_cause::deadline);
  CHECK(w.made().ended_at <= 52ms);
}

TEST_CASE(
    "handler: calls downstream end at their channel's own timeout where that is earlier, in each style") {
  const style written = GENERATE(values(all_styles));
  const placement where = on_a_loop();
  world w(50ms);
  serve(w, written, where);
  client_call made("slow", 60'000ms);
  w.call(made, 5000ms);
  w.finish(made);
  CHECK(made.ec == errc::timed_out);
  CHECK(made.control.result().origin ==
        braid::outcome_origin::peer);  // the handler's answer, long before 5 s
  CHECK(made.ended_at >= 50ms);
  CHECK(made.ended_at <= 52ms);
  CHECK(w.made().control.result().cause == cancel_cause::deadline);
  CHECK(w.made().ended_at >= 50ms);
  CHECK(w.made().ended_at <= 52ms);
}

TEST_CASE("handler: calls downstream are cancelled when the client is gone, in each style") {
  const style written = GENERATE(values(all_styles));
  const placement where = on_a_loop();
  world w;
  serve(w, written, where);
  client_call made("slow", 60'000ms);
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
  client_call made("slow", 60'000ms);
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
    w.begin(made);
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
  client_call made("detached", 500ms);
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
  serve_at_once(w, written, where, [&w](server_call&, const EchoRequest& q, EchoResponse& r) {
    auto& made = w.prepare(q);
    w.begin(made);
    r.set_message("left");
  });
  client_call made("x", 200ms);
  w.call(made, 1000ms);
  w.finish(made);
  CHECK(made.response.message() == "left");
  CHECK_FALSE(w.made().ended());
  w.lose_clients();
  REQUIRE(w.sim.run_until([&] { return w.made().ended(); }, 2s));
  CHECK_FALSE(w.made().control.Failed());
}

TEST_CASE("handler: one that throws fails its call with 2001, in each style") {
  const style written = GENERATE(style::stackful, style::plain, style::awaitable);
  const placement where = on_a_loop();
  world w;
  serve_at_once(w, written, where,
                [](server_call&, const EchoRequest&, EchoResponse&) { throw std::runtime_error("secret"); });
  client_call made("x");
  w.call(made);
  w.finish(made);
  CHECK(made.ec == errc::internal);
  CHECK(made.control.ErrorText().find("secret") == std::string::npos);
  CHECK(w.log.count("secret") == 1);
}

TEST_CASE("handler: NotifyOnCancel of a cancelled call on another thread may meet the call's end") {
  world w;
  kept_call kept;
  w.serve_and_keep(kept);
  client_call made("x");
  w.call(made);
  w.lose_clients();
  w.sim.run_for(1ms);
  REQUIRE(kept.call->cancelled() == cancel_cause::peer_gone);
  struct counter {
    int told = 0;
    void run() { ++told; }
  } counted;
  // The loop comes to the answer before it comes to the callback.
  w.process.core()->at(1).post([&] {
    w.process.core()->at(0).post([&] {
      (*kept.done)();
      kept.done.reset();
    });
    kept.call->NotifyOnCancel(google::protobuf::NewCallback(&counted, &counter::run));
  });
  w.sim.run_for(1ms);
  CHECK(counted.told == 1);
  CHECK(w.server->stop({.grace = 0ms, .kill = 0ms}).empty());  // the call is over
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
  serve(w, written, where, [&](server_call& call) { call.NotifyOnCancel(&closure); });
  client_call made("x", 100ms);
  w.call(made);
  w.sim.run_for(20ms);
  CHECK(notified == 0);
  if (cancelled) w.lose_clients();
  w.sim.run_for(5ms);
  CHECK(notified == (cancelled ? 1 : 0));
  w.sim.run_for(200ms);
  CHECK(notified == 1);
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
      calls.push_back(std::make_unique<client_call>(std::to_string(i), 100ms));
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
