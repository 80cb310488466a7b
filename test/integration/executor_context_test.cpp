// What a server call hands to the calls that its handler makes on a pool of threads.

#include "integration/executor_world.hpp"
#include "integration/raw_peer.hpp"

#include <catch2/catch.hpp>

#include <functional>
#include <future>
#include <memory>

using namespace executor_test;

namespace {

/// What the downstream call of a handler ended with.
struct downstream_end {
  std::promise<void> ended;
  error_code code;
  cancel_cause cause = cancel_cause::none;
};

void note(downstream_end& into, const controller& control) {
  into.code = control.error();
  into.cause = control.result().cause;
  into.ended.set_value();
}

asio::awaitable<void> call_down(world& w, downstream_end& end, const EchoRequest& q, EchoResponse& r) {
  controller control;
  try {
    co_await w.down.async_call(echo(), control, q, r, asio::use_awaitable);
  } catch (const boost::system::system_error&) {
  }
  note(end, control);
  if (control.Failed()) r.set_message("failed");
}

// Handlers on the pool that pass their request on to the server behind.
void serve(world& w, style written, downstream_end& end) {
  const braid::method_options options{.run_on = w.pool};
  const auto synchronous = [&](server_call&, const EchoRequest& q, EchoResponse& r) {
    controller control;
    error_code ec;
    w.down.call(echo(), control, q, r, ec);
    note(end, control);
    if (ec) r.set_message("failed");
  };
  switch (written) {
    case style::plain:
      w.server->handle(&EchoService::Echo, synchronous, options);
      break;
    case style::awaitable:
      w.server->handle(
          &EchoService::Echo,
          [&](server_call&, const EchoRequest& q, EchoResponse& r) { return call_down(w, end, q, r); },
          options);
      break;
    case style::callback:
      w.server->handle(
          &EchoService::Echo,
          [&](server_call&, const EchoRequest& q, EchoResponse& r, call_done done) {
            auto control = std::make_shared<controller>();
            w.down.async_call(echo(), *control, q, r, [&, control, done](error_code ec) {
              note(end, *control);
              if (ec) r.set_message("failed");
              done();
            });
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
  }
  w.start();
}

// Handlers on the pool that run `body`, answer, and end.
void serve_at_once(world& w, style written,
                   std::function<void(server_call&, const EchoRequest&, EchoResponse&)> body) {
  const braid::method_options options{.run_on = w.pool};
  switch (written) {
    case style::plain:
      w.server->handle(&EchoService::Echo, body, options);
      break;
    case style::awaitable:
      w.server->handle(
          &EchoService::Echo,
          [body](server_call& call, const EchoRequest& q, EchoResponse& r) -> asio::awaitable<void> {
            body(call, q, r);
            co_return;
          },
          options);
      break;
    case style::callback:
      w.server->handle(
          &EchoService::Echo,
          [body](server_call& call, const EchoRequest& q, EchoResponse& r, call_done done) {
            body(call, q, r);
            done();
          },
          options);
      break;
    case style::generated:
      w.service.run = [body](server_call& call, const EchoRequest& q, EchoResponse& r,
                             google::protobuf::Closure* done) {
        body(call, q, r);
        done->Run();
      };
      w.server->add_service(w.service, options);
      break;
  }
  w.start();
}

// Starts a call to the server behind that nobody waits for.
void start_down(world& w, downstream_end& end, const EchoRequest& q, bool detached = false) {
  auto control = std::make_shared<controller>();
  auto response = std::make_shared<EchoResponse>();
  control->set_detached(detached);
  w.down.async_call(echo(), *control, q, *response,
                    [&end, control, response](error_code) { note(end, *control); });
}

}  // namespace

TEST_CASE("executor: a call downstream ends at the server call's deadline, in each style") {
  const style written = GENERATE(values(all_styles));
  world w;
  downstream_end end;
  w.limit_calls(100ms);
  serve(w, written, end);
  auto made = w.start_call(request("slow", 100'000));
  made->wait();
  get(end.ended.get_future());
  CHECK(end.code ==
        errc::timed_out);  // by its own clock, or said by the server behind, whose deadline it is too
  CHECK(end.cause != cancel_cause::user);
}

TEST_CASE("executor: a call downstream is cancelled when the client is gone, in each style") {
  const style written = GENERATE(values(all_styles));
  world w;
  downstream_end end;
  serve(w, written, end);
  auto client = server_test::raw_peer::connect(w.server->port());
  auto meta = server_test::echo_meta(1);
  client.send(server_test::frame(meta, request("slow", 100'000).SerializeAsString()));
  wait_until([&] { return w.behind.calls() == 1; });
  client.reset();
  get(end.ended.get_future());
  CHECK(end.code == aborted);
  CHECK(end.cause == cancel_cause::peer_gone);
}

TEST_CASE("executor: a call downstream is cancelled when the server stops, in each style") {
  const style written = GENERATE(values(all_styles));
  world w;
  downstream_end end;
  serve(w, written, end);
  auto made = w.start_call(request("slow", 100'000));
  wait_until([&] { return w.behind.calls() == 1; });
  CHECK(w.server->stop({.grace = 1ms, .kill = 100s}).empty());
  get(end.ended.get_future());
  CHECK(end.code == aborted);
  CHECK(end.cause == cancel_cause::shutdown);
  made->wait();
  CHECK(made->control.error() == errc::logoff);
}

TEST_CASE("executor: a detached call inherits nothing, in each style") {
  const style written = GENERATE(values(all_styles));
  gate gate;  // outlives the pool's threads
  downstream_end end;
  world w;
  w.limit_calls(50ms);
  serve_at_once(w, written, [&](server_call&, const EchoRequest& q, EchoResponse&) {
    start_down(w, end, q, true);
    gate.wait();
  });
  auto made = w.start_call(request("detached", 300));
  made->wait();
  CHECK(made->control.error() == errc::timed_out);
  get(end.ended.get_future());
  CHECK_FALSE(end.code);
  gate.open();
}

TEST_CASE("executor: calls that a handler leaves running go on after its answer, in each style") {
  const style written = GENERATE(values(all_styles));
  downstream_end end;
  world w;
  serve_at_once(w, written, [&](server_call&, const EchoRequest& q, EchoResponse& r) {
    start_down(w, end, q);
    r.set_message("left");
  });
  auto client = server_test::raw_peer::connect(w.server->port());
  auto meta = server_test::echo_meta(1);
  client.send(server_test::frame(meta, request("x", 300).SerializeAsString()));
  const auto answers = server_test::answers_in(client.next_frame());
  REQUIRE(answers.size() == 1);
  CHECK(answers[0].message() == "left");
  client.reset();
  get(end.ended.get_future());
  CHECK_FALSE(end.code);
}
