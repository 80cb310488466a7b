// A call is cancelled at each point of its way, by whatever may cancel it.

#include "call_fixture.hpp"

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <catch2/catch.hpp>

#include <string>

using namespace call_fixture;
using boost::asio::cancellation_signal;
using boost::asio::cancellation_type;
using braid::cancel_cause;
using braid::errc;

TEST_CASE("call: cancelled before its start it sends nothing and ends with 125", "[call]") {
  simulation sim(1);
  scripted_server server(sim);
  client_node client(sim);
  started_call call;
  call.control.call_id().cancel();
  client.start(call);
  client.finish(call);
  check_cancelled(call);
  CHECK(attempts(sim) == 0);
  call.control.Reset();
  call.control.StartCancel();
  client.start(call);
  client.finish(call);
  check_cancelled(call);
  CHECK(attempts(sim) == 0);
}

TEST_CASE("call: cancelled while connecting, after writing, and after half an answer", "[call]") {
  simulation sim(1);
  const int when = GENERATE(0, 1, 2);
  scripted_server* at = nullptr;
  scripted_server server(sim, [&](const seen_request& seen) {
    if (when == 2) at->send(answer(seen.id, echoed()).substr(0, 20));
  });
  at = &server;
  if (when == 0) black_hole(sim);
  client_node client(sim);
  started_call call;
  call.response.set_message("as it was");
  client.start(call);
  sim.run_for(10ms);
  CHECK(server.requests().size() == (when == 0 ? 0 : 1));
  CHECK_FALSE(call.done());
  const bool by_id = GENERATE(false, true);
  if (by_id) {
    call.control.call_id().cancel();
  } else {
    call.control.StartCancel();
  }
  sim.run_for(0ms);
  check_cancelled(call);
  CHECK(call.ended_at == 10ms);
  if (when == 0) return;
  const std::string late = answer(server.requests()[0].id, echoed());
  server.send(when == 1 ? late : late.substr(20));
  sim.run_for(10ms);
  CHECK(call.completions == 1);
  CHECK(call.response.message() == "as it was");
  CHECK(client.late_answers() == 1);
  // The connection goes on.
  started_call next;
  client.start(next);
  sim.run_for(1ms);
  REQUIRE(server.requests().size() == 2);
  if (when == 1) server.send(answer(server.requests()[1].id, echoed()));
  if (when == 2) server.send(answer(server.requests()[1].id, echoed()).substr(20));
  client.finish(next);
  CHECK_FALSE(next.ec);
  CHECK(server.connections() == 1);
}

TEST_CASE("call: cancelled when it has been settled, or after its end, it is as it was", "[call]") {
  simulation sim(1);
  scripted_server server(sim);
  client_node client(sim);
  started_call first, second;
  client.start(first);
  braid::call_id id;
  // The answers to both come in one read, and the first one's handler cancels the second.
  client.on_loop([&] {
    client.channel.async_call(echo(), second.control, second.message, second.response,
                              client.completion(second));
    id = second.control.call_id();
  });
  server.send(answer(server.requests().at(1).id, echoed("two")) +
              answer(server.requests()[0].id, echoed("one")));
  client.finish(second);
  CHECK_FALSE(first.ec);
  CHECK_FALSE(second.ec);
  id.cancel();
  second.control.StartCancel();
  sim.run_for(10ms);
  CHECK(second.completions == 1);
  CHECK(second.response.message() == "two");
  CHECK_FALSE(second.control.IsCanceled());
}

TEST_CASE("call: a handler that runs in the turn of another call's answer cannot cancel it any more",
          "[call]") {
  simulation sim(1);
  scripted_server server(sim);
  client_node client(sim);
  started_call second;
  EchoResponse response;
  error_code first = errc::internal;
  client.on_loop([&] {
    client.channel.async_call(echo(), request(), response, [&](error_code ec) {
      first = ec;
      second.control.StartCancel();
    });
    client.start_here(second);
  });
  sim.run_for(1ms);
  server.send(answer(server.requests().at(0).id, echoed()) + answer(server.requests().at(1).id, echoed()));
  client.finish(second);
  CHECK_FALSE(first);
  CHECK_FALSE(second.ec);
}

TEST_CASE("call: a call_id outlives the controller, and cancelling is idempotent", "[call]") {
  simulation sim(1);
  scripted_server silent(sim);
  client_node client(sim);
  braid::call_id id;
  {
    started_call call;
    client.start(call);
    id = call.control.call_id();
    for (int i = 0; i < 3; ++i) id.cancel();
    const braid::call_id copy = id;
    copy.cancel();
    client.finish(call);
    check_cancelled(call);
  }
  id.cancel();
  sim.run_for(1s);
  braid::call_id().cancel();
}

TEST_CASE("call: a controller's next call is not cancelled by what was said to an earlier one", "[call]") {
  simulation sim(1);
  server_node server(sim);
  client_node client(sim);
  const bool reset = GENERATE(false, true);
  const bool name_late = GENERATE(false, true);
  started_call call;
  call.message.set_sleep_ms(100);
  braid::call_id old;
  if (!name_late) old = call.control.call_id();
  client.start(call);
  if (!name_late) old.cancel();
  client.finish(call);
  CHECK(call.ec == (name_late ? error_code() : aborted));
  old = call.control.call_id();
  old.cancel();
  call.control.StartCancel();
  if (reset) call.control.Reset();
  client.start(call);
  old.cancel();
  client.finish(call);
  CHECK_FALSE(call.ec);
  CHECK_FALSE(call.control.Failed());
  CHECK(call.control.attempts() == 1);
  client.start(call);
  call.control.StartCancel();
  client.finish(call);
  CHECK(call.ec == aborted);
}

TEST_CASE("call: a call that was refused is the one that a name taken before it names", "[call]") {
  simulation sim(1);
  server_node server(sim);
  client_node client(sim);
  const bool in_coroutine = GENERATE(false, true);  // a cancelled one
  started_call call;
  braid::call_id old = call.control.call_id();
  const auto refused = [&] {
    client.channel.call(echo(), call.control, call.message, call.response, call.ec);
    old.cancel();
  };
  if (in_coroutine) {
    cancellation_signal stop;
    braid::spawn(
        *client.process,
        [&](braid::yield_context yield) {
          error_code ignored;
          braid::sleep_for(1h, yield[ignored]);
          refused();
        },
        boost::asio::bind_cancellation_slot(stop.slot(), [](error_code) {}));
    sim.run_for(1ms);
    stop.emit(cancellation_type::terminal);
    sim.run_for(1ms);
  } else {
    client.on_loop(refused);
  }
  CHECK(call.ec.value() == (in_coroutine ? 125 : 1));
  client.start(call);
  REQUIRE(client.finish(call));
  CHECK_FALSE(call.ec);
}

TEST_CASE("call: the token's slot cancels, terminal and partial always, total while nothing was sent",
          "[call]") {
  simulation sim(1);
  scripted_server silent(sim);
  const bool connecting = GENERATE(false, true);
  if (connecting) black_hole(sim);
  client_node client(sim);
  for (const auto type :
       {cancellation_type::terminal, cancellation_type::partial, cancellation_type::total}) {
    started_call call;
    cancellation_signal signal;
    bool inside_emit = false, ended_inside = false;
    const auto begin = sim.elapsed();
    client.on_loop([&] {
      client.channel.async_call(echo(), call.control, call.message, call.response,
                                boost::asio::bind_cancellation_slot(signal.slot(), [&](error_code ec) {
                                  ended_inside = inside_emit;
                                  CHECK_FALSE(signal.slot().has_handler());
                                  client.completion(call)(ec);
                                }));
    });
    sim.run_for(5ms);
    const auto emit = [&](cancellation_type which) {
      client.on_loop([&] {
        inside_emit = true;
        signal.emit(which);
        inside_emit = false;
      });
    };
    emit(cancellation_type::none);
    CHECK_FALSE(call.done());
    emit(type);
    if (type == cancellation_type::total && !connecting) {
      CHECK_FALSE(call.done());
      emit(cancellation_type::terminal);
    }
    check_cancelled(call);
    CHECK_FALSE(ended_inside);
    CHECK(call.ended_at == begin + 5ms);
  }
}

TEST_CASE("call: total cancels a call whose bytes still wait behind another's", "[call]") {
  simulation sim(1);
  scripted_server server(sim);
  client_node client(sim);
  REQUIRE(client.home().owner().loop_count() == 1);
  started_call warm;
  client.start(warm);
  sim.run_for(1ms);
  sim.network().set_default({.stalled = true, .window = 1024});
  started_call large, queued;
  large.message.set_message(std::string(100'000, 'x'));
  cancellation_signal of_large, of_queued;
  client.on_loop([&] {
    client.channel.async_call(echo(), large.control, large.message, large.response,
                              boost::asio::bind_cancellation_slot(of_large.slot(), client.completion(large)));
  });
  client.on_loop([&] {
    client.channel.async_call(
        echo(), queued.control, queued.message, queued.response,
        boost::asio::bind_cancellation_slot(of_queued.slot(), client.completion(queued)));
  });
  client.on_loop([&] {
    of_large.emit(cancellation_type::total);
    of_queued.emit(cancellation_type::total);
  });
  CHECK_FALSE(large.done());
  check_cancelled(queued);
  client.finish(large);
  CHECK(large.ec == errc::timed_out);
}

TEST_CASE("call: the coroutine's own cancellation ends the call that it waits for", "[call]") {
  simulation sim(1);
  scripted_server silent(sim);
  client_node client(sim);
  const bool detached = GENERATE(false, true);
  cancellation_signal signal;
  controller control;
  error_code seen;
  bool over = false;
  control.set_detached(detached);
  braid::spawn(
      *client.process,
      [&](braid::yield_context yield) {
        EchoResponse response;
        client.channel.async_call(echo(), control, request(), response, yield[seen]);
      },
      boost::asio::bind_cancellation_slot(signal.slot(), [&](error_code) { over = true; }));
  sim.run_for(10ms);
  client.on_loop([&] { signal.emit(cancellation_type::terminal); });
  CHECK(over == !detached);
  CHECK(sim.run_until([&] { return over; }));
  CHECK(seen == (detached ? error_code(errc::timed_out) : aborted));
  CHECK(control.result().cause == (detached ? cancel_cause::deadline : cancel_cause::user));
}

TEST_CASE("call: a cancelled coroutine that goes on calling sends nothing and does not spin", "[call]") {
  simulation sim(1);
  scripted_server server(sim);
  client_node client(sim);
  const bool elsewhere = GENERATE(false, true);
  braid::runtime other(sim.node_options());
  cancellation_signal signal;
  int calls = 0;
  error_code ended;
  bool over = false;
  braid::spawn(
      elsewhere ? other : *client.process,
      [&](braid::yield_context) {
        error_code ignored;
        EchoResponse response;
        controller control;
        for (;; ++calls) {
          client.channel.call(echo(), control, request(), response, ignored);
          if (calls == 1) CHECK(control.result().cause == cancel_cause::user);
        }
      },
      boost::asio::bind_cancellation_slot(signal.slot(), [&](error_code ec) {
        ended = ec;
        over = true;
      }));
  sim.run_for(10ms);
  other.core()->at(0).post([&] { signal.emit(cancellation_type::terminal); });
  CHECK(sim.run_until([&] { return over; }));
  CHECK(ended == aborted);
  CHECK(calls >= 2);
  CHECK(calls < 100);
  CHECK(server.requests().size() == 1);
}

TEST_CASE(
    "call: from a coroutine of another runtime, cancellation and deadline are inherited with their cause",
    "[call]") {
  simulation sim(1);
  scripted_server silent(sim, nullptr, "10.0.0.9:80");
  client_node downstream(sim, {.timeout = 10s}, "10.0.0.9:80");
  const bool by_deadline = GENERATE(false, true);
  const bool detached = GENERATE(false, true);
  error_code inner;
  controller control;
  control.set_detached(detached);
  bool over = false;
  std::chrono::nanoseconds at{};
  server_node middle(sim, [&](braid::server_call&, const EchoRequest&, EchoResponse&, braid::yield_context) {
    EchoResponse response;
    downstream.channel.call(echo(), control, request(), response, inner);
    at = sim.elapsed();
    over = true;
  });
  client_node client(sim, {.timeout = by_deadline ? 100ms : 5s});
  started_call call;
  client.start(call);
  sim.run_for(50ms);
  REQUIRE(silent.requests().size() == 1);
  const auto timeout = silent.requests()[0].timeout_ms.value_or(-1);
  CHECK(timeout <= (detached ? 10'000 : by_deadline ? 100 : 5'000));
  CHECK(timeout >= (detached ? 9'990 : by_deadline ? 90 : 4'990));
  if (!by_deadline) sim.network().break_connections(braid::endpoint::parse(address).value());
  CHECK(sim.run_until([&] { return over; }));
  if (detached) {
    CHECK(inner == errc::timed_out);
    CHECK(at >= 10s);
  } else {
    CHECK(inner == (by_deadline ? error_code(errc::timed_out) : aborted));
    CHECK(control.result().cause == (by_deadline ? cancel_cause::deadline : cancel_cause::peer_gone));
    CHECK(at <= (by_deadline ? 102ms : 52ms));
  }
}
