// The done of callback handlers, and calls that are made part of a server call outside its handler.

#include "unit/handler_world.hpp"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <catch2/catch.hpp>

#include <optional>
#include <stdexcept>
#include <string>

using namespace handler_test;

TEST_CASE("handler: a callback one that throws fails its call with 2001, and its done comes too late") {
  const placement where = on_a_loop();
  world w;
  std::optional<call_done> kept;
  w.server->handle(&EchoService::Echo,
                   [&](server_call&, const EchoRequest&, EchoResponse&, call_done done) {
                     kept = done;
                     throw std::runtime_error("secret");
                   },
                   {.run_on = where});
  w.start();
  client_call made("x");
  w.call(made);
  w.finish(made);
  CHECK(made.ec == errc::internal);
  CHECK(made.control.ErrorText().find("secret") == std::string::npos);
  CHECK(w.log.count("secret") == 1);
  (*kept)();  // must harm nothing
  w.sim.run_for(1ms);
}

TEST_CASE("handler: a callback one that throws has not dropped its done, and one it has called counts") {
  const placement where = on_a_loop();
  const bool answers = GENERATE(false, true);
  world w;
  w.server->handle(&EchoService::Echo,
                   [&](server_call&, const EchoRequest&, EchoResponse& r, call_done done) {
                     r.set_message("in time");
                     if (answers) done();
                     throw std::runtime_error("secret");
                   },
                   {.run_on = where});
  w.start();
  client_call made("x");
  w.call(made);
  w.finish(made);
  CHECK(made.ec == (answers ? error_code() : error_code(errc::internal)));
  CHECK(w.log.count("secret") == 1);
  CHECK(w.log.count("has dropped its done") == 0);
  CHECK(w.server->stop({.grace = 0ms, .kill = 0ms}).empty());
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
  client_call made("x");
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
  client_call made("x");
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
  client_call made("x");
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
  kept_call kept;
  w.serve_and_keep(kept);
  client_call made("x");
  w.call(made, by_deadline ? 50ms : -1ms);
  w.sim.run_for(1ms);
  REQUIRE(kept.call);
  auto& below = w.prepare(client_call("slow", 300ms).request);
  if (related) below.control.set_parent(*kept.call);
  w.process.core()->at(loop).post([&] { w.begin(below); });
  w.sim.run_for(10ms);
  if (!by_deadline) w.lose_clients();
  w.sim.run_for(60ms);
  CHECK(below.ended() == related);
  (*kept.done)();
  kept.done.reset();
  REQUIRE(w.sim.run_until([&] { return below.ended(); }, 1s));
  CHECK(below.control.result().cause == (!related      ? cancel_cause::none
                                         : by_deadline ? cancel_cause::deadline
                                                       : cancel_cause::peer_gone));
}

TEST_CASE("handler: a call with a parent goes on after the server call was answered") {
  const std::size_t loop = GENERATE(0U, 1U);
  world w;
  kept_call kept;
  w.serve_and_keep(kept);
  client_call made("x");
  w.call(made);
  w.sim.run_for(1ms);
  auto& below = w.prepare(client_call("slow", 100ms).request);
  below.control.set_parent(*kept.call);
  w.process.core()->at(loop).post([&] { w.begin(below); });
  w.sim.run_for(1ms);
  (*kept.done)();
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
                       w.begin(made);
                     });
                   },
                   {.run_on = where});
  w.start();
  client_call made("slow", 60'000ms);
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
