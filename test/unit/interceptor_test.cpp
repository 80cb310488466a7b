// Functions around calls, on both sides.

#include <braid/channel.hpp>
#include <braid/server.hpp>
#include <braid/spawn.hpp>
#include <braid/testing/simulation.hpp>

#include "core/loop.hpp"
#include "core/runtime_core.hpp"
#include "unit/server_fixture.hpp"

#include <boost/asio/any_completion_handler.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/error.hpp>
#include <catch2/catch.hpp>

#include <chrono>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using namespace std::chrono_literals;
namespace asio = boost::asio;
using braid::call_done;
using braid::cancel_cause;
using braid::client_interceptor;
using braid::client_next;
using braid::controller;
using braid::errc;
using braid::error_code;
using braid::placement;
using braid::server_call;
using braid::server_interceptor;
using braid::server_next;
using braid::yield_context;
using golden::EchoRequest;
using golden::EchoResponse;
using golden::EchoService;
using server_test::log_lines;

using notes = std::vector<std::string>;
const auto& echo = *EchoService::descriptor() -> FindMethodByName("Echo");

std::string text_of(const google::protobuf::Message& response) {
  return static_cast<const EchoResponse&>(response).message();
}
void set_text(google::protobuf::Message& response, const std::string& text) {
  static_cast<EchoResponse&>(response).set_message(text);
}

// A client and a server of two loops, in virtual time.
struct world {
  ~world() { server.reset(); }

  braid::runtime_options node(std::size_t loops) {
    auto options = sim.node_options();
    options.loops = loops;
    options.log = log.sink();
    options.log_at_least = braid::log_level::debug;
    return options;
  }
  void make_server(std::vector<server_interceptor> around = {}) {
    server.emplace(process, braid::server_options{.interceptors = std::move(around)});
  }
  void serve(braid::method_options options = {}) {
    server->handle(
        &EchoService::Echo,
        [this](server_call& call, const EchoRequest& q, EchoResponse& r, yield_context yield) {
          log_order.emplace_back("handler");
          if (q.has_sleep_ms()) braid::sleep_for(std::chrono::milliseconds(q.sleep_ms()), yield);
          if (q.has_fail_code()) call.set_failed(q.fail_code(), "as asked");
          r.set_message(q.message());
          call.mutable_response_metadata().user_fields = call.request_metadata().user_fields;
        },
        options);
    start();
  }
  void start(std::vector<client_interceptor> around = {}) {
    server->start("10.0.0.1:80");
    connect(std::move(around));
  }
  void connect(std::vector<client_interceptor> around = {}) {
    up.emplace(client);
    up->init("10.0.0.1:80", {.timeout = -1ns, .interceptors = std::move(around)});
  }

  error_code call(const std::string& message = "hello", std::chrono::nanoseconds timeout = -1ns) {
    begin(message, timeout);
    REQUIRE(sim.run_until([&] { return ended; }, 100s));
    return ec;
  }
  void begin(const std::string& message = "hello", std::chrono::nanoseconds timeout = -1ns) {
    request.set_message(message);
    control.set_timeout(timeout);
    ended = false;
    client.core()->at(0).post([this] {
      up->async_call(echo, control, request, response, [this](error_code result) {
        ++completions;
        ended = true;
        ec = result;
        ended_at = sim.elapsed();
      });
    });
    sim.run_for(0ms);
  }

  braid::testing::simulation sim{5};
  log_lines log;
  notes log_order;
  braid::runtime client{node(1)};
  std::optional<braid::channel> up;
  braid::runtime process{node(2)};
  std::optional<braid::server> server{std::in_place, process};

  controller control;
  EchoRequest request;
  EchoResponse response;
  bool ended = false;
  int completions = 0;
  error_code ec;
  std::chrono::nanoseconds ended_at{};
};

server_interceptor note_around(notes& into, const std::string& name) {
  return [&into, name](server_call&, server_next& next, yield_context yield) {
    into.push_back(name + " before");
    next(yield);
    into.push_back(name + " after");
  };
}
client_interceptor note_client(notes& into, const std::string& name) {
  return [&into, name](controller&, client_next& next, yield_context yield) {
    into.push_back(name + " before");
    next(yield);
    into.push_back(name + " after");
  };
}

// A handler in each style, placed anywhere.
enum class style { stackful, plain, awaitable, callback, generated, generated_later };
struct any_style {
  server_test::echo_service service;

  void add(braid::server& server, style written, const braid::method_options& options) {
    const auto answer = [](server_call& call, const EchoRequest& q, EchoResponse& r) {
      if (q.has_fail_code()) call.set_failed(q.fail_code(), "as asked");
      r.set_message("from " + q.message());
    };
    switch (written) {
      case style::stackful:
        server.handle(
            &EchoService::Echo,
            [answer](server_call& call, const EchoRequest& q, EchoResponse& r, yield_context yield) {
              braid::sleep_for(1ms, yield);
              answer(call, q, r);
            },
            options);
        break;
      case style::plain:
        server.handle(&EchoService::Echo, answer, options);
        break;
      case style::awaitable:
        server.handle(
            &EchoService::Echo,
            [answer](server_call& call, const EchoRequest& q, EchoResponse& r) -> asio::awaitable<void> {
              answer(call, q, r);
              co_return;
            },
            options);
        break;
      case style::callback:
        server.handle(
            &EchoService::Echo,
            [answer](server_call& call, const EchoRequest& q, EchoResponse& r, call_done done) {
              answer(call, q, r);
              done();
            },
            options);
        break;
      case style::generated:
        service.run = [answer](server_call& call, const EchoRequest& q, EchoResponse& r,
                               google::protobuf::Closure* done) {
          answer(call, q, r);
          done->Run();
        };
        server.add_service(service, options);
        break;
      case style::generated_later:
        service.run = [answer](server_call& call, const EchoRequest& q, EchoResponse& r,
                               google::protobuf::Closure* done) {
          asio::post(braid::core::loop::current()->executor(), [=, &call, &q, &r] {
            answer(call, q, r);
            done->Run();
          });
        };
        server.add_service(service, options);
        break;
    }
  }
};

}  // namespace

// The server's side

TEST_CASE("server interceptors: in order around the handler, the server's outside of the method's") {
  world w;
  w.make_server({note_around(w.log_order, "a"), note_around(w.log_order, "b")});
  w.serve({.interceptors = {note_around(w.log_order, "c")}});
  CHECK_FALSE(w.call());
  CHECK(w.response.message() == "hello");
  CHECK(w.log_order == notes{"a before", "b before", "c before", "handler", "c after", "b after", "a after"});
}

TEST_CASE("server interceptors: around handlers of each style and place, of which they see the outcome") {
  const style written = GENERATE(style::stackful, style::plain, style::awaitable, style::callback,
                                 style::generated, style::generated_later);
  const placement where = GENERATE(placement::reading_loop(), placement::loop(0), placement::loop(1));
  const int fail_code = GENERATE(0, 4711);
  notes seen;
  any_style handler;
  world w;
  w.make_server({[&](server_call& call, server_next& next, yield_context yield) {
    next(yield);
    seen.push_back(call.Failed() ? std::to_string(call.error().value()) : text_of(next.response()));
    if (!call.Failed()) set_text(next.response(), "changed: " + text_of(next.response()));
  }});
  handler.add(*w.server, written, {.run_on = where});
  w.start();
  if (fail_code != 0) w.request.set_fail_code(fail_code);
  for (int i = 1; i <= 3; ++i) {
    w.call("x");
    CHECK(w.ec.value() == fail_code);
    if (fail_code == 0) {
      CHECK(w.response.message() == "changed: from x");
      CHECK(seen.back() == "from x");
    } else {
      CHECK(seen.back() == "4711");
    }
    CHECK(seen.size() == static_cast<std::size_t>(i));
  }
}

TEST_CASE("server interceptors: one may answer itself, well or badly, and the handler does not run") {
  world w;
  bool refuse = false;
  w.make_server({[&](server_call& call, server_next& next, yield_context yield) {
                   braid::sleep_for(5ms, yield);  // asks somebody
                   if (refuse) {
                     call.set_failed(errc::auth_failed, "who are you?");
                   } else {
                     set_text(next.response(), "cached");
                     call.mutable_response_metadata().set_user_field("from", "cache");
                   }
                 },
                 note_around(w.log_order, "inner")});
  w.serve();
  CHECK_FALSE(w.call());
  CHECK(w.response.message() == "cached");
  CHECK(w.control.response_metadata().user_field("from") == "cache");
  refuse = true;
  CHECK(w.call() == errc::auth_failed);
  CHECK(w.control.ErrorText() == "who are you?");
  CHECK(w.log_order.empty());
}

TEST_CASE("server interceptors: one may change metadata both ways, and hide a failure") {
  world w;
  w.make_server({[](server_call& call, server_next& next, yield_context yield) {
    call.mutable_request_metadata().set_user_field("user", "u1");
    next(yield);
    call.mutable_response_metadata().set_user_field("served", "by me");
    if (call.error().value() == 77) {
      set_text(next.response(), "instead");
      next.succeed();
    }
  }});
  w.serve();
  CHECK_FALSE(w.call());
  CHECK(w.control.response_metadata().user_field("user") == "u1");
  CHECK(w.control.response_metadata().user_field("served") == "by me");
  w.request.set_fail_code(77);
  CHECK_FALSE(w.call());
  CHECK(w.response.message() == "instead");
}

TEST_CASE("server interceptors: one that throws fails the call with 2001, and those around it see that") {
  const bool before = GENERATE(true, false);
  int seen = 0;
  world w;
  w.make_server({[&](server_call& call, server_next& next, yield_context yield) {
                   next(yield);
                   seen = call.error().value();
                 },
                 [&](server_call&, server_next& next, yield_context yield) {
                   if (before) throw std::runtime_error("secret");
                   next(yield);
                   throw std::runtime_error("secret");
                 }});
  w.serve();
  CHECK(w.call() == errc::internal);
  CHECK(w.control.ErrorText().find("secret") == std::string::npos);
  CHECK(w.log.count("an interceptor of golden.EchoService.Echo was ended by an exception: secret") == 1);
  CHECK(seen == 2001);
  CHECK(w.log_order.size() == (before ? 0 : 1));
}

TEST_CASE("server interceptors: a handler that throws is an outcome to them, in each style") {
  const bool stackful = GENERATE(true, false);
  int seen = 0;
  world w;
  w.make_server({[&](server_call& call, server_next& next, yield_context yield) {
    next(yield);
    seen = call.error().value();
  }});
  if (stackful) {
    w.server->handle(&EchoService::Echo, [](server_call&, const EchoRequest&, EchoResponse&, yield_context) {
      throw std::runtime_error("secret");
    });
  } else {
    w.server->handle(&EchoService::Echo,
                     [](server_call&, const EchoRequest&, EchoResponse&) -> asio::awaitable<void> {
                       throw std::runtime_error("secret");
                       co_return;
                     });
  }
  w.start();
  CHECK(w.call() == errc::internal);
  CHECK(seen == 2001);
  CHECK(w.log.count("secret") == 1);
}

TEST_CASE("server interceptors: calling next twice throws into the interceptor") {
  bool thrown = false;
  world w;
  w.make_server({[&](server_call&, server_next& next, yield_context yield) {
    next(yield);
    try {
      next(yield);
    } catch (const std::logic_error&) {
      thrown = true;
    }
  }});
  w.serve();
  CHECK_FALSE(w.call());
  CHECK(thrown);
  CHECK(w.log_order == notes{"handler"});
}

TEST_CASE("server interceptors: the deadline answers at once; they end with its code") {
  const bool in_handler = GENERATE(true, false);
  int seen = 0;
  std::chrono::nanoseconds ended{};
  world w;
  w.make_server({[&](server_call& call, server_next& next, yield_context yield) {
    error_code ec;
    if (!in_handler) braid::sleep_for(10s, yield[ec]);
    next(yield);
    seen = call.error().value();
    ended = w.sim.elapsed();
  }});
  w.serve();
  w.request.set_sleep_ms(10'000);
  CHECK(w.call("x", 50ms) == errc::timed_out);
  CHECK(w.ended_at <= 51ms);
  w.sim.run_for(5ms);
  CHECK(seen == 1008);
  CHECK(ended <= 52ms);
}

TEST_CASE("server interceptors: a client that goes and a server that stops cancel them") {
  const bool stop = GENERATE(true, false);
  cancel_cause cause = cancel_cause::none;
  int seen = 0;
  world w;
  w.make_server({[&](server_call& call, server_next& next, yield_context yield) {
    next(yield);
    seen = call.error().value();
    cause = call.cancelled();
  }});
  w.serve();
  w.request.set_sleep_ms(10'000);
  w.begin();
  w.sim.run_for(10ms);
  if (stop) {
    CHECK(w.server->stop({.grace = 0ms, .kill = 100ms}).empty());
  } else {
    w.sim.network().break_connections(braid::endpoint::parse("10.0.0.1:80").value());
  }
  w.sim.run_for(5ms);
  CHECK(seen == (stop ? 2003 : 125));
  CHECK(cause == (stop ? cancel_cause::shutdown : cancel_cause::peer_gone));
  CHECK(w.ended);
}

TEST_CASE("server interceptors: a handler that nobody ends does not hold them when the server stops") {
  std::optional<call_done> kept;
  cancel_cause seen = cancel_cause::none;
  error_code touched;
  server_call* serving = nullptr;
  world w;
  w.make_server({[&](server_call&, server_next& next, yield_context yield) {
                   next(yield);
                   next.succeed();
                 },
                 [&](server_call& call, server_next& next, yield_context yield) {
                   next(yield);
                   seen = call.cancelled();
                   touched = call.error();
                   throw std::runtime_error("as it was left");
                 }});
  w.server->handle(&EchoService::Echo,
                   [&](server_call& call, const EchoRequest&, EchoResponse& r, call_done done) {
                     r.set_message("late");
                     serving = &call;
                     kept = done;
                   });
  w.start();
  w.begin();
  w.sim.run_for(10ms);
  serving->set_failed(errc::rejected, "the handler's own");
  const auto names = w.server->stop({.grace = 1ms, .kill = 5ms});
  CHECK(names.size() == 1);
  CHECK(seen == cancel_cause::shutdown);
  // The call's error is the handler's, which may write it on another thread.
  CHECK(touched == errc::rejected);
  CHECK(serving->ErrorText() == "the handler's own");
  CHECK(w.log.count("as it was left") == 1);
  (*kept)();  // what it uses is still there
  kept.reset();
  w.sim.run_for(1ms);
}

TEST_CASE("server interceptors: a stop ends them behind a handler that nobody ends, whatever came before") {
  enum class before { deadline, client_gone, next, generated };
  const before which = GENERATE(before::deadline, before::client_gone, before::next, before::generated);
  std::function<void()> late;
  int returned = 0;
  world w;
  w.make_server({[&](server_call&, server_next& next, yield_context yield) {
    error_code ec;
    if (which == before::next) braid::sleep_for(1h, yield[ec]);  // ends as the server stops
    next(yield);
    ++returned;
  }});
  server_test::echo_service service;
  service.run = [&](server_call&, const EchoRequest&, EchoResponse&, google::protobuf::Closure* done) {
    late = [done] { done->Run(); };
  };
  if (which == before::generated) {
    w.server->add_service(service);
  } else {
    w.server->handle(&EchoService::Echo,
                     [&](server_call&, const EchoRequest&, EchoResponse&, call_done done) { late = done; });
  }
  w.start();
  w.begin("x", which == before::deadline ? 5ms : -1ms);
  w.sim.run_for(10ms);
  if (which == before::client_gone)
    w.sim.network().break_connections(braid::endpoint::parse("10.0.0.1:80").value());
  w.sim.run_for(10ms);
  CHECK(returned == 0);
  CHECK(w.server->stop({.grace = 1ms, .kill = 5ms}).size() == 1);
  w.sim.run_for(1ms);
  CHECK(returned == 1);
  late();
  late = nullptr;
  w.sim.run_for(1ms);
}

TEST_CASE("server interceptors: one that answers itself while the server stops ends its call") {
  world w;
  w.make_server({[&](server_call& call, server_next&, yield_context yield) {
    error_code ec;
    braid::sleep_for(1h, yield[ec]);
    call.set_failed(errc::internal, "not today");
  }});
  w.serve();
  w.begin();
  w.sim.run_for(10ms);
  CHECK(w.server->stop({.grace = 1ms, .kill = 5ms}).empty());
  w.sim.run_for(1ms);
  CHECK(w.ec == errc::logoff);
}

TEST_CASE("server interceptors: calls that they make inherit deadline and cancellation") {
  world w;
  controller below;
  w.make_server({[&](server_call&, server_next& next, yield_context yield) {
    braid::channel down{w.process};
    down.init("10.0.0.1:80", {.timeout = -1ns});
    EchoRequest q;
    EchoResponse r;
    q.set_message("check");
    q.set_sleep_ms(10'000);
    error_code ec;
    if (static_cast<const EchoRequest&>(next.request()).message() != "check")
      down.async_call(echo, below, q, r, yield[ec]);
    next(yield);
  }});
  w.serve();
  CHECK(w.call("x", 40ms) == errc::timed_out);
  w.sim.run_for(5ms);
  CHECK(below.error() == errc::timed_out);
  CHECK(below.result().cause == cancel_cause::deadline);
}

// The client's side

TEST_CASE("client interceptors: in order around the call, however it is started") {
  world w;
  w.serve();
  w.connect({note_client(w.log_order, "a"), note_client(w.log_order, "b")});
  const notes expected{"a before", "b before", "handler", "b after", "a after"};
  SECTION("with a callback") {
    CHECK_FALSE(w.call());
    CHECK(w.response.message() == "hello");
  }
  SECTION("in a coroutine") {
    bool done = false;
    w.request.set_message("hello");
    braid::spawn(w.client, [&](yield_context yield) {
      w.up->async_call(echo, w.control, w.request, w.response, yield);
      done = true;
    });
    REQUIRE(w.sim.run_until([&] { return done; }, 1s));
    CHECK(w.response.message() == "hello");
  }
  SECTION("from outside, synchronously") {
    w.request.set_message("hello");
    w.up->call(echo, w.control, w.request, w.response);
    CHECK(w.response.message() == "hello");
  }
  CHECK(w.log_order == expected);
  CHECK(w.control.attempts() == 1);
  CHECK(w.control.remote_side().to_string() == "10.0.0.1:80");
  CHECK(w.control.sub_count() == 0);
}

TEST_CASE("client interceptors: metadata, response and outcome are theirs to see and change") {
  world w;
  w.serve();
  int seen = -1;
  w.connect({[&](controller& control, client_next& next, yield_context yield) {
    CHECK(next.method().full_name() == "golden.EchoService.Echo");
    CHECK(static_cast<const EchoRequest&>(next.request()).message() == "hello");
    CHECK(control.request_metadata().user_field("mine") == "yes");
    control.mutable_request_metadata().set_user_field("token", "t");
    next(yield);
    seen = control.error().value();
    if (!control.Failed()) set_text(next.response(), "changed: " + text_of(next.response()));
  }});
  w.control.mutable_request_metadata().set_user_field("mine", "yes");
  CHECK_FALSE(w.call());
  CHECK(seen == 0);
  CHECK(w.response.message() == "changed: hello");
  CHECK(w.control.response_metadata().user_field("token") == "t");
  CHECK_FALSE(w.control.request_metadata().user_field("token"));  // the caller's is its own
  w.request.set_fail_code(99);
  CHECK(w.call().value() == 99);
  CHECK(seen == 99);
  CHECK(w.control.ErrorText() == "as asked");
  CHECK(w.control.result().origin == braid::outcome_origin::peer);
}

TEST_CASE("client interceptors: one may answer itself, and replace the outcome either way") {
  world w;
  w.serve();
  std::string what = "cache";
  w.connect({[&](controller& control, client_next& next, yield_context yield) {
    if (what == "cache") {
      set_text(next.response(), "cached");
    } else if (what == "refuse") {
      control.set_failed(errc::rejected, "not today");
    } else {
      next(yield);
      if (what == "spoil") control.set_failed(4242, "spoiled");
      if (what == "hide") {
        set_text(next.response(), "instead");
        next.succeed();
      }
    }
  }});
  CHECK_FALSE(w.call());
  CHECK(w.response.message() == "cached");
  CHECK(w.control.attempts() == 0);
  what = "refuse";
  CHECK(w.call() == errc::rejected);
  CHECK(w.control.ErrorText() == "not today");
  CHECK(w.log_order.empty());
  what = "spoil";
  CHECK(w.call().value() == 4242);
  CHECK(w.control.ErrorText() == "spoiled");
  what = "hide";
  w.request.set_fail_code(5);
  CHECK_FALSE(w.call());
  CHECK(w.response.message() == "instead");
}

TEST_CASE("client interceptors: one that throws fails the call with 2001, and those around it see that") {
  int seen = 0;
  world w;
  w.serve();
  w.connect({[&](controller& control, client_next& next, yield_context yield) {
               next(yield);
               seen = control.error().value();
             },
             [&](controller&, client_next& next, yield_context yield) {
               next(yield);
               throw std::runtime_error("oops");
             }});
  CHECK(w.call() == errc::internal);
  CHECK(seen == 2001);
  CHECK(w.log.count("an interceptor of golden.EchoService.Echo was ended by an exception: oops") == 1);
}

TEST_CASE("client interceptors: the deadline covers them and the call behind them") {
  const bool waits_itself = GENERATE(true, false);
  const bool stubborn = GENERATE(true, false);
  int seen = 0;
  world w;
  w.serve();
  w.connect({[&](controller& control, client_next& next, yield_context yield) {
    error_code ec;
    if (waits_itself) braid::sleep_for(10s, yield[ec]);
    next(yield);
    seen = control.error().value();
    if (stubborn) {
      braid::shield going_on{yield, 1h};
      braid::sleep_for(1s, yield[ec]);
      control.set_failed(1, "nobody listens");
    }
  }});
  w.request.set_sleep_ms(10'000);
  CHECK(w.call("x", 50ms) == errc::timed_out);
  CHECK(w.control.result().cause == cancel_cause::deadline);
  CHECK(w.ended_at <= 51ms);
  CHECK(seen == 1008);
  w.sim.run_for(2s);
  CHECK(w.completions == 1);
}

TEST_CASE("client interceptors: the deadline in a wait of theirs before the call is told as its cause") {
  world w;
  w.serve();
  w.connect({[&](controller&, client_next& next, yield_context yield) {
    braid::sleep_for(10s, yield);
    next(yield);
  }});
  CHECK(w.call("x", 50ms) == errc::timed_out);
  CHECK(w.control.result().cause == cancel_cause::deadline);
  CHECK(w.control.result().origin == braid::outcome_origin::local);
  CHECK(w.control.IsCanceled());
  CHECK(w.log_order.empty());
}

TEST_CASE(
    "client interceptors: what they end at the deadline's instant is late, also before the timer says so") {
  world w;
  w.serve();
  std::optional<asio::any_completion_handler<void()>> go_on;
  w.connect({[&](controller&, client_next& next, yield_context yield) {
    next(yield);
    asio::async_initiate<yield_context, void()>([&](auto handler) { go_on.emplace(std::move(handler)); },
                                                yield);
  }});
  w.response.set_message("as it was");
  w.begin("x", 9200us);
  w.sim.run_for(9500us);  // timers have ticks of 1 ms
  REQUIRE_FALSE(w.ended);
  REQUIRE(go_on);
  w.client.core()->at(0).post([&] { std::move (*go_on)(); });
  w.sim.run_for(0ms);
  CHECK(w.ended);
  CHECK(w.ended_at == 9500us);
  CHECK(w.ec == errc::timed_out);
  CHECK(w.control.result().cause == cancel_cause::deadline);
  CHECK(w.response.message() == "as it was");
}

TEST_CASE("client interceptors: a cancelled call ends with 125, whatever they say") {
  int seen = 0;
  world w;
  w.serve();
  w.connect({[&](controller& control, client_next& next, yield_context yield) {
    next(yield);
    seen = control.error().value();
    next.succeed();
  }});
  w.request.set_sleep_ms(10'000);
  w.begin();
  w.sim.run_for(10ms);
  w.control.call_id().cancel();
  w.sim.run_for(1ms);
  CHECK(w.ended);
  CHECK(w.ec == asio::error::operation_aborted);
  CHECK(w.control.result().cause == cancel_cause::user);
  CHECK(seen == 125);
}

TEST_CASE("client interceptors: the channel may be destroyed after the start") {
  world w;
  w.serve();
  std::optional<braid::channel> other(std::in_place, w.client);
  other->init("10.0.0.1:80", {.interceptors = {note_client(w.log_order, "a")}});
  w.request.set_message("x");
  bool ended = false;
  error_code result;
  w.client.core()->at(0).post([&] {
    other->async_call(echo, w.control, w.request, w.response, [&](error_code ec) {
      ended = true;
      result = ec;
    });
    other.reset();
  });
  REQUIRE(w.sim.run_until([&] { return ended; }, 1s));
  CHECK_FALSE(result);
  CHECK(w.log_order == notes{"a before", "handler", "a after"});
}
