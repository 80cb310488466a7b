#include "call_fixture.hpp"
#include "watched_network.hpp"

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/strand.hpp>
#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace {

using namespace call_fixture;
using boost::asio::cancellation_signal;
using boost::asio::cancellation_type;
using braid::cancel_cause;
using braid::errc;
using braid::outcome_origin;

void black_hole(simulation& sim) {
  sim.network().set(braid::endpoint::parse(address).value(), {.black_hole = true});
}
std::size_t attempts(simulation& sim) {
  return sim.network().attempts(braid::endpoint::parse(address).value());
}

// The deadline came on time: not before, and within the tolerance of the timers.
void check_deadline(const started_call& call, std::chrono::nanoseconds at) {
  CHECK(call.completions == 1);
  CHECK(call.ec == errc::timed_out);
  CHECK(call.control.result().cause == cancel_cause::deadline);
  CHECK(call.control.result().origin == outcome_origin::local);
  CHECK(call.ended_at >= at);
  CHECK(call.ended_at <= at + 2ms);
}

void check_cancelled(const started_call& call) {
  CHECK(call.completions == 1);
  CHECK(call.ec == boost::asio::error::operation_aborted);
  CHECK(call.control.result().cause == cancel_cause::user);
  CHECK(call.control.error() == call.ec);
}

}  // namespace

// One deadline.

TEST_CASE("call: the default timeout is 500 ms, and the deadline ends a call that is never answered",
          "[call]") {
  simulation sim(1);
  scripted_server silent(sim);
  client_node client(sim);
  started_call call;
  client.start(call);
  client.finish(call);
  check_deadline(call, 500ms);
  CHECK(silent.requests().size() == 1);
  sim.run_for(5s);
  CHECK(call.completions == 1);
}

TEST_CASE("call: the channel's timeout, and the controller's before it", "[call]") {
  simulation sim(1);
  scripted_server silent(sim);
  client_node client(sim, {.timeout = 70ms});
  started_call by_channel, by_controller, longer;
  by_controller.control.set_timeout(30ms);
  longer.control.set_timeout(2s);
  for (auto* each : {&by_channel, &by_controller, &longer}) client.start(*each);
  client.finish(longer);
  check_deadline(by_channel, 70ms);
  check_deadline(by_controller, 30ms);
  check_deadline(longer, 2s);
}

TEST_CASE("call: a negative timeout is none", "[call]") {
  simulation sim(1);
  server_node server(sim);
  client_node client(sim, {.timeout = -1ms});
  started_call call;
  call.message.set_sleep_ms(3'600'000);
  client.start(call);
  client.finish(call);
  CHECK_FALSE(call.ec);
  CHECK(call.ended_at >= 1h);
  client_node limited(sim);
  started_call other;
  other.control.set_timeout(-1s);
  other.message.set_sleep_ms(10'000);
  limited.start(other);
  limited.finish(other);
  CHECK_FALSE(other.ec);
}

TEST_CASE("call: with a timeout of zero nothing is sent and the call ends with 1008", "[call]") {
  simulation sim(1);
  scripted_server server(sim);
  client_node client(sim, {.timeout = 0ms});
  started_call call;
  client.start(call);
  client.finish(call);
  check_deadline(call, 0ms);
  CHECK(attempts(sim) == 0);
}

TEST_CASE("call: the deadline ends a call that waits for a black-holed connection", "[call]") {
  simulation sim(1);
  black_hole(sim);
  client_node client(sim, {.timeout = 300ms, .connect_timeout = -1ms});
  started_call call;
  client.start(call);
  client.finish(call);
  check_deadline(call, 300ms);
}

TEST_CASE("call: no connection within the connect timeout is 110, unless the deadline has come", "[call]") {
  simulation sim(1);
  black_hole(sim);
  client_node client(sim, {.timeout = 300ms, .connect_timeout = 50ms});
  started_call call, earlier, same, second;
  earlier.control.set_timeout(20ms);
  same.control.set_timeout(50ms);
  for (auto* each : {&call, &earlier, &same}) client.start(*each);
  client.finish(call);
  CHECK(call.ec == errno_code(ETIMEDOUT));
  CHECK(call.ended_at >= 50ms);
  CHECK(call.ended_at <= 52ms);
  CHECK(call.control.result().cause == cancel_cause::none);
  CHECK(has(call.control.ErrorText(), address));
  check_deadline(earlier, 20ms);
  client.finish(same);
  check_deadline(same, 50ms);
  client.start(second);  // tried anew
  client.finish(second);
  CHECK(second.ec == errno_code(ETIMEDOUT));
  CHECK(attempts(sim) == 2);
}

TEST_CASE("call: the default connect timeout is 200 ms", "[call]") {
  simulation sim(1);
  black_hole(sim);
  client_node client(sim);
  started_call call;
  client.start(call);
  client.finish(call);
  CHECK(call.ec == errno_code(ETIMEDOUT));
  CHECK(call.ended_at >= 200ms);
  CHECK(call.ended_at <= 202ms);
}

TEST_CASE("call: the deadline ends a call whose name is never resolved", "[call]") {
  struct hanging final : braid::net::resolver {
    void start(request wanted) override { kept.push_back(std::move(wanted.state)); }
    std::vector<std::shared_ptr<braid::net::detail::lookup_state>> kept;
  };
  simulation sim(1);
  auto outside = std::make_shared<braid::core::environment>(*sim.environment());
  outside->resolver = std::make_shared<hanging>();
  auto options = sim.node_options();
  options.environment = outside;
  braid::runtime process(options);
  braid::channel channel(process);
  channel.init("slow.test:80", {.timeout = 100ms, .connect_timeout = -1ms});
  braid::channel impatient(process);
  impatient.init("slow.test:80", {.timeout = 100ms, .connect_timeout = 40ms});
  EchoResponse one, two;
  error_code first, second;
  std::chrono::nanoseconds ended{};
  process.core()->at(0).post([&] {
    channel.async_call(echo(), request(), one, [&](error_code ec) {
      first = ec;
      ended = sim.elapsed();
    });
    impatient.async_call(echo(), request(), two, [&](error_code ec) { second = ec; });
  });
  CHECK(sim.run_until([&] { return first && second; }));
  CHECK(first == errc::timed_out);
  CHECK(ended >= 100ms);
  CHECK(ended <= 102ms);
  CHECK(second == errno_code(ETIMEDOUT));
}

TEST_CASE("call: the deadline ends a call to a server that never reads, and the calls queued behind it",
          "[call]") {
  simulation sim(1);
  scripted_server server(sim);
  client_node client(sim, {.timeout = 100ms});
  sim.network().set_default({.stalled = true, .window = 1024});
  started_call large, queued;
  large.message.set_message(std::string(500'000, 'x'));
  client.start(large);
  client.start(queued);
  client.finish(queued);
  check_deadline(large, 100ms);
  check_deadline(queued, 100ms);
}

TEST_CASE("call: an answer processed at the deadline is late, one before it is not", "[call]") {
  simulation sim(1);
  server_node server(sim);
  client_node client(sim);
  sim.network().set_default({.latency = 50ms});
  started_call warm;
  client.start(warm);
  client.finish(warm);
  REQUIRE_FALSE(warm.ec);
  for (const auto& [timeout, in_time] :
       {std::pair(99ms, false), std::pair(100ms, false), std::pair(102ms, true)}) {
    started_call call;
    const auto begin = sim.elapsed();
    call.response.set_message("as it was");
    call.control.set_timeout(timeout);
    client.start(call);
    sim.run_for(1s);
    INFO(timeout.count());
    if (in_time) {
      CHECK_FALSE(call.ec);
      CHECK(call.response.message() == "hello");
    } else {
      check_deadline(call, begin + timeout);
      CHECK(call.response.message() == "as it was");
    }
  }
}

TEST_CASE("call: an answer processed at the deadline is late although the timer has not fired yet",
          "[call]") {
  simulation sim(1);
  scripted_server server(sim);
  client_node client(sim);
  started_call call;
  call.response.set_message("as it was");
  call.control.set_timeout(9200us);
  client.start(call);
  sim.run_for(9500us);
  REQUIRE_FALSE(call.done());  // timers have ticks of 1 ms
  server.send(answer(server.requests().at(0).id, echoed()));
  sim.run_for(0ms);
  check_deadline(call, 9500us);
  CHECK(call.ended_at == 9500us);
  CHECK(call.response.message() == "as it was");
  CHECK(client.late_answers() == 1);
}

TEST_CASE("call: a peer's own 1008 and 125 are answers, not the deadline or a cancellation", "[call]") {
  simulation sim(1);
  server_node server(sim);
  client_node client(sim);
  for (const int code : {1008, 125, 112, 2004, -5, 123456}) {
    started_call call;
    call.message.set_fail_code(code);
    client.start(call);
    client.finish(call);
    CHECK(call.ec == braid::from_wire(code));
    CHECK(call.control.result().cause == cancel_cause::none);
    CHECK(call.control.result().origin == outcome_origin::peer);
    CHECK(call.control.ErrorText() == "as asked");
  }
}

// Cancellation.

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

// Completions and lifetimes.

TEST_CASE("call: it never completes inside the initiating function, also when it fails at once", "[call]") {
  simulation sim(1);
  server_node server(sim);
  client_node client(sim);
  REQUIRE_FALSE(client.round());
  braid::channel uninitialised(*client.process);
  const auto check = [&](braid::channel& channel, const EchoRequest& message, error_code expected) {
    int completions = 0;
    bool inside = true;
    EchoResponse response;
    client.on_loop([&] {
      channel.async_call(echo(), message, response, [&](error_code ec) {
        CHECK_FALSE(inside);
        CHECK(ec == expected);
        ++completions;
      });
      inside = false;
      CHECK(completions == 0);
    });
    sim.run_for(1s);
    CHECK(completions == 1);
  };
  check(client.channel, request(), {});
  check(client.channel, EchoRequest(), errc::bad_request);
  check(uninitialised, request(), errno_code(EINVAL));
}

TEST_CASE("call: a coroutine that starts a call which fails at once, or cancels one, is left first",
          "[call]") {
  simulation sim(1);
  scripted_server silent(sim);
  client_node client(sim, {.timeout = -1s});
  braid::channel uninitialised(*client.process);
  struct outcome_of {
    controller control;
    EchoRequest message = request();
    EchoResponse response;
    int completions = 0;
    error_code ec;
  };
  std::array<outcome_of, 4> calls;
  cancellation_signal signal;
  bool inside = false;
  const auto handler = [&](outcome_of& call) {
    return [&](error_code ec) {
      CHECK_FALSE(inside);
      CHECK(client.home().running_coroutine() == nullptr);
      ++call.completions;
      call.ec = ec;
    };
  };
  auto& [unset, unreadable, by_slot, by_name] = calls;
  unreadable.message.Clear();  // a required field is missing
  braid::spawn(*client.process, [&](braid::yield_context yield) {
    const auto start = [&](braid::channel& on, outcome_of& call, auto completion) {
      on.async_call(echo(), call.control, call.message, call.response, std::move(completion));
    };
    inside = true;
    start(uninitialised, unset, handler(unset));
    start(client.channel, unreadable, handler(unreadable));
    start(client.channel, by_slot, boost::asio::bind_cancellation_slot(signal.slot(), handler(by_slot)));
    start(client.channel, by_name, handler(by_name));
    inside = false;
    braid::sleep_for(5ms, yield);
    CHECK(by_slot.completions + by_name.completions == 0);
    inside = true;
    signal.emit(cancellation_type::terminal);
    by_name.control.StartCancel();
    inside = false;
  });
  sim.run_for(10ms);
  for (const auto& each : calls) CHECK(each.completions == 1);
  CHECK(unset.ec == errno_code(EINVAL));
  CHECK(unreadable.ec == errc::bad_request);
  CHECK(by_slot.ec == aborted);
  CHECK(by_name.ec == aborted);
}

TEST_CASE("call: the handler of a call that its loop settles is dispatched, not posted", "[call]") {
  simulation sim(1);
  scripted_server server(sim);
  client_node client(sim);
  std::array<started_call, 3> calls;
  std::vector<int> order;
  const auto note = [&](int which) {
    return [&order, which](error_code ec) {
      CHECK_FALSE(ec);
      order.push_back(which);
    };
  };
  const auto executor = client.channel.get_executor();
  client.on_loop([&] {
    const auto start = [&](started_call& call, auto completion) {
      client.channel.async_call(echo(), call.control, call.message, call.response, std::move(completion));
    };
    start(calls[0], boost::asio::bind_executor(boost::asio::any_io_executor(executor), note(0)));
    start(calls[1], boost::asio::bind_executor(boost::asio::make_strand(executor), note(1)));
    start(calls[2], note(2));
  });
  sim.run_for(1ms);
  REQUIRE(server.requests().size() == 3);
  // All answers come in one read. A posted handler would run after those that the loop calls itself.
  std::string answers;
  for (const auto& each : server.requests()) answers += answer(each.id, echoed());
  server.send(answers);
  sim.run_for(1ms);
  CHECK(order == std::vector{0, 1, 2});
}

TEST_CASE("call: the runtime's end completes calls in flight with 125 first, whatever they wait for",
          "[call]") {
  simulation sim(1);
  scripted_server silent(sim);
  if (GENERATE(false, true)) black_hole(sim);
  client_node client(sim, {.timeout = -1s, .connect_timeout = -1s});
  std::array<started_call, 5> calls;
  for (auto& each : calls) client.start(each);
  sim.run_for(10ms);
  client.process.reset();
  for (auto& each : calls) {
    CHECK(each.completions == 1);
    CHECK(each.ec == aborted);
    CHECK(each.control.result().cause == cancel_cause::shutdown);
  }
  controller control;
  EchoResponse response;
  error_code ec;
  client.channel.call(echo(), control, request(), response, ec);
  CHECK(ec == aborted);
  CHECK(control.result().cause == cancel_cause::shutdown);
}

TEST_CASE("call: the request is free once the call was started, on the loop and elsewhere", "[call]") {
  simulation sim(1);
  server_node server(sim);
  client_node client(sim);
  const bool connected = GENERATE(false, true);
  const bool elsewhere = GENERATE(false, true);
  if (connected) REQUIRE_FALSE(client.round());
  started_call call;
  const std::string text(GENERATE(10, 100'000), 'a');
  EchoRequest message = request(text);
  const auto start = [&] {
    client.channel.async_call(echo(), call.control, message, call.response, client.completion(call));
    message.set_message("changed");
  };
  if (elsewhere) {
    start();
  } else {
    client.on_loop(start);
  }
  client.finish(call);
  CHECK_FALSE(call.ec);
  CHECK(call.response.message() == text);
}

TEST_CASE("call: the channel may be destroyed right after an asynchronous start", "[call]") {
  simulation sim(1);
  server_node server(sim);
  client_node client(sim);
  const bool elsewhere = GENERATE(false, true);
  const bool shared = GENERATE(false, true);  // whether another channel keeps the connection
  if (shared) REQUIRE_FALSE(client.round());
  started_call call;
  const auto start = [&] {
    auto channel = std::make_unique<braid::channel>(*client.process);
    channel->init(address, {.connection_group = shared ? "" : "own"});
    channel->async_call(echo(), call.control, call.message, call.response, client.completion(call));
    channel.reset();
  };
  if (elsewhere) {
    start();
  } else {
    client.on_loop(start);
  }
  client.finish(call);
  CHECK_FALSE(call.ec);
  CHECK(call.response.message() == "hello");
  sim.run_for(10ms);
  CHECK(sim.network().connections(braid::endpoint::parse(address).value()) == (shared ? 1 : 0));
}

TEST_CASE("call: a controller shows the last call only", "[call]") {
  simulation sim(1);
  server_node server(
      sim, [](braid::server_call& call, const EchoRequest& wanted, EchoResponse&, braid::yield_context) {
        if (wanted.message() == "one") call.mutable_response_metadata().set_user_field("key", "value");
      });
  client_node client(sim);
  started_call call;
  call.message.set_message("one");
  client.start(call);
  client.finish(call);
  CHECK(call.control.response_metadata().user_field("key") == "value");
  CHECK(call.control.remote_side().to_string() == address);
  call.message.set_message("two");
  call.message.set_fail_code(7);
  client.start(call);
  client.finish(call);
  CHECK(call.control.response_metadata().user_fields.empty());
  CHECK(call.control.error() == braid::from_wire(7));
  call.message.clear_fail_code();
  client.start(call);
  client.finish(call);
  CHECK_FALSE(call.control.Failed());
  CHECK(call.control.ErrorText().empty());
}

// What travels.

TEST_CASE("call: the remaining time travels, rounded down and at least 1", "[call]") {
  simulation sim(1);
  scripted_server server(sim);
  client_node client(sim);
  const auto sent = [&](std::chrono::nanoseconds timeout) {
    started_call call;
    call.control.set_timeout(timeout);
    client.start(call);
    sim.run_for(1ms);
    call.control.StartCancel();
    client.finish(call);
    return server.requests().back().timeout_ms;
  };
  CHECK(sent(250ms + 900us) == 250);
  CHECK(sent(2ms) == 2);
  CHECK(sent(1999us) == 1);
  CHECK(sent(900us) == 1);
  CHECK(sent(-1ms) == std::nullopt);
  CHECK(sent(std::chrono::hours(24 * 365)) == 0x7fffffff);
  // What connecting took has gone.
  sim.network().set_default({.latency = 30ms});
  client_node far(sim, {.timeout = 500ms, .connection_group = "far"});
  started_call call;
  far.start(call);
  sim.run_for(200ms);
  const auto rest = server.requests().back().timeout_ms.value_or(-1);
  CHECK(rest >= 400);
  CHECK(rest <= 470);
  call.control.StartCancel();
  far.finish(call);
}

TEST_CASE("call: metadata and attachments travel both ways", "[call]") {
  simulation sim(1);
  const std::size_t size = GENERATE(0, 5, 300'000);
  server_node server(
      sim, [](braid::server_call& call, const EchoRequest&, EchoResponse&, braid::yield_context) {
        const braid::metadata& got = call.request_metadata();
        call.mutable_response_metadata().set_user_field("log", std::to_string(got.log_id.value_or(-1)));
        call.mutable_response_metadata().set_user_field("id", got.request_id);
        call.mutable_response_metadata().set_user_field("colour", got.user_field("colour").value_or("none"));
        call.mutable_response_metadata().set_user_field("trace", std::to_string(got.trace_id.value_or(-1)));
        call.response_attachment() = got.attachment;
      });
  client_node client(sim);
  started_call call;
  call.control.mutable_request_metadata().log_id = 42;
  call.control.mutable_request_metadata().trace_id = 43;
  call.control.mutable_request_metadata().request_id = "r-1";
  call.control.mutable_request_metadata().set_user_field("colour", "blue");
  const std::string bytes(size, 'z');
  call.control.request_attachment() = braid::buffer(bytes);
  client.start(call);
  client.finish(call);
  REQUIRE_FALSE(call.ec);
  const braid::metadata& back = call.control.response_metadata();
  CHECK(back.user_field("log") == "42");
  CHECK(back.user_field("trace") == "43");
  CHECK(back.user_field("id") == "r-1");
  CHECK(back.user_field("colour") == "blue");
  CHECK(call.control.response_attachment().size() == size);
  CHECK(call.control.response_attachment() == braid::buffer(bytes));
}

// Connections and codes.

TEST_CASE("call: channels connect when a call needs it and share their connection, groups do not", "[call]") {
  simulation sim(1);
  server_node server(sim);
  client_node client(sim);
  braid::channel same(*client.process), other(*client.process);
  same.init(address);
  other.init(address, {.connection_group = "other"});
  sim.run_for(1s);
  CHECK(attempts(sim) == 0);
  std::array<EchoResponse, 3> responses;
  int ended = 0;
  client.on_loop([&] {
    int i = 0;
    for (auto* each : {&client.channel, &same, &other})
      each->async_call(echo(), request(), responses[static_cast<std::size_t>(i++)], [&](error_code ec) {
        CHECK_FALSE(ec);
        ++ended;
      });
  });
  CHECK(sim.run_until([&] { return ended == 3; }));
  CHECK(attempts(sim) == 2);
}

TEST_CASE("call: a refused connection is 111 at once, and the next call tries again", "[call]") {
  simulation sim(1);
  client_node client(sim);
  started_call call;
  client.start(call);
  client.finish(call);
  CHECK(call.ec == boost::asio::error::connection_refused);
  CHECK(call.ended_at <= 2ms);
  CHECK(call.control.result().retryable);
  CHECK(has(call.control.ErrorText(), address));
  server_node server(sim);
  CHECK_FALSE(client.round());
}

TEST_CASE("call: a name that cannot be resolved is 112, one that can is called", "[call]") {
  simulation sim(1);
  server_node server(sim);
  client_node client(sim, {}, "nowhere.test:80");
  started_call call;
  client.start(call);
  client.finish(call);
  CHECK(call.ec == errno_code(EHOSTDOWN));
  CHECK(has(call.control.ErrorText(), "nowhere.test"));
  // The first address refuses.
  sim.set_host("nowhere.test",
               {boost::asio::ip::make_address("10.0.0.77"), boost::asio::ip::make_address("10.0.0.1")});
  client.start(call);
  client.finish(call);
  CHECK_FALSE(call.ec);
  CHECK(call.control.remote_side().to_string() == address);
}

TEST_CASE(
    "call: all calls of a connection that ends fail at once, with 1014 or 104, and the next connects anew",
    "[call]") {
  simulation sim(1);
  scripted_server server(sim);
  client_node client(sim);
  const bool reset = GENERATE(false, true);
  std::array<started_call, 3> calls;
  for (auto& each : calls) client.start(each);
  sim.run_for(10ms);
  server.close(reset);
  sim.run_for(0ms);
  for (auto& each : calls) {
    CHECK(each.completions == 1);
    CHECK(each.ec == (reset ? errno_code(ECONNRESET) : error_code(errc::eof)));
    CHECK(each.ended_at == 10ms);
    CHECK(has(each.control.ErrorText(), address));
    CHECK(each.control.result().retryable);
  }
  started_call next;
  client.start(next);
  sim.run_for(1ms);
  REQUIRE(server.connections() == 2);
  server.send(answer(server.requests().back().id, echoed()), 1);
  client.finish(next);
  CHECK_FALSE(next.ec);
}

TEST_CASE("call: a connection that breaks for another reason tells it, by its errno where the code does not",
          "[call]") {
  simulation sim(1);
  scripted_server server(sim);
  client_node client(sim);
  started_call call;
  client.start(call);
  sim.run_for(10ms);
  const int why = GENERATE(EHOSTUNREACH, ENETDOWN, ETIMEDOUT);
  sim.network().break_connections(braid::endpoint::parse(address).value(), errno_code(why));
  sim.run_for(0ms);
  REQUIRE(call.done());
  const bool has_number = why == ETIMEDOUT;  // 110: keepalive, or the user timeout
  CHECK(call.ec == (has_number ? errno_code(why) : error_code(errc::socket_failed)));
  CHECK(call.control.result().retryable);
  CHECK(has(call.control.ErrorText(), address));
  CHECK(has(call.control.ErrorText(), errno_code(why).message()));
  CHECK(has(call.control.ErrorText(), "(errno " + std::to_string(why) + ")") == !has_number);
}

TEST_CASE("call: answers in any order find their calls by their correlation id", "[call]") {
  simulation sim(1);
  scripted_server server(sim);
  client_node client(sim);
  std::array<started_call, 4> calls;
  for (auto& each : calls) client.start(each);
  REQUIRE(server.requests().size() == calls.size());
  std::size_t answered = 0;
  for (const std::size_t which : {2, 0, 3, 1}) {
    server.send(answer(server.requests()[which].id, echoed(std::to_string(which))));
    sim.run_for(1ms);
    CHECK_FALSE(calls[which].ec);
    CHECK(calls[which].response.message() == std::to_string(which));
    ++answered;
    CHECK(std::count_if(calls.begin(), calls.end(), [](const auto& each) { return each.done(); }) ==
          static_cast<std::ptrdiff_t>(answered));
  }
}

TEST_CASE("call: bytes that are no answers fail all calls of the connection with 2002", "[call]") {
  simulation sim(1);
  scripted_server server(sim);
  client_node client(sim);
  const std::string junk = GENERATE(
      std::string("HTTP/1.1 200 OK\r\n\r\n"), std::string("PRPC\0\0\0\2\0\0\0\2\xff\xff", 14),
      std::string("PRPC\0\0\0\1\0\0\0\2", 12), std::string("PRPC\x7f\xff\xff\xff\x7f\xff\xff\xff", 12));
  std::array<started_call, 3> calls;
  for (auto& each : calls) client.start(each);
  sim.run_for(10ms);
  server.send(junk);
  sim.run_for(0ms);
  for (auto& each : calls) {
    CHECK(each.completions == 1);
    CHECK(each.ec == errc::bad_response);
    CHECK(each.ended_at == 10ms);
    CHECK(has(each.control.ErrorText(), "broken frame"));
  }
  started_call next;
  client.start(next);
  sim.run_for(1ms);
  REQUIRE(server.connections() == 2);
  server.send(answer(server.requests().back().id, echoed()), 1);
  client.finish(next);
  CHECK_FALSE(next.ec);
}

TEST_CASE("call: an answer that cannot be read fails its call alone with 2002", "[call]") {
  simulation sim(1);
  scripted_server server(sim);
  client_node client(sim, {.max_body_size = 4096});
  started_call bad, good;
  client.start(bad);
  client.start(good);
  const auto id = server.requests().at(0).id;
  const int which = GENERATE(0, 1, 2, 3, 4, 5, 6, 7);
  const std::array<std::string, 8> answers{
      answer(id, "\xff\xff\xff"),
      answer(id, ""),
      answer(id, std::string(5000, 'x')),
      answer(id, echoed(), [](braid::wire::rpc_meta& meta) { meta.attachment_size = 1000; }),
      answer(id, echoed(), [](braid::wire::rpc_meta& meta) { meta.attachment_size = -1; }),
      answer(id, echoed(), [](braid::wire::rpc_meta& meta) { meta.compress_type = 2; }),
      answer(id, echoed(), [](braid::wire::rpc_meta& meta) { meta.content_type = 4; }),
      answer(id, echoed() + "\xff")};
  const std::array<const char*, 8> texts{"no valid golden.EchoResponse",
                                         "message",
                                         "max_body_size 4096",
                                         "attachment_size",
                                         "attachment_size",
                                         "no valid gzip",
                                         "content_type 4",
                                         "no valid golden.EchoResponse"};
  server.send(answers[static_cast<std::size_t>(which)]);
  client.finish(bad);
  CHECK(bad.ec == errc::bad_response);
  CHECK(bad.control.result().origin == outcome_origin::local);
  CHECK(has(bad.control.ErrorText(), texts[static_cast<std::size_t>(which)]));
  CHECK_FALSE(bad.response.has_message());  // nothing of what could be read of it
  CHECK_FALSE(good.done());
  server.send(answer(server.requests().at(1).id, echoed()));
  client.finish(good);
  CHECK_FALSE(good.ec);
  CHECK(server.connections() == 1);
}

TEST_CASE("call: answers to nobody are dropped and counted", "[call]") {
  simulation sim(1);
  scripted_server server(sim);
  client_node client(sim);
  started_call call;
  client.start(call);
  const auto id = server.requests().at(0).id;
  for (const std::int64_t wrong : {std::int64_t{0}, std::int64_t{-1}, id + 1, id ^ (std::int64_t{1} << 40)})
    server.send(answer(wrong, echoed("wrong")));
  server.send(answer(id, echoed("right")) + answer(id, echoed("twice")));
  client.finish(call);
  CHECK_FALSE(call.ec);
  CHECK(call.response.message() == "right");
  sim.run_for(1ms);
  CHECK(client.late_answers() == 5);
}

TEST_CASE("call: a request that cannot be sent fails alone with 1003 and says why", "[call]") {
  simulation sim(1);
  server_node server(sim);
  client_node client(sim, {.max_body_size = 4096});
  const bool connected = GENERATE(false, true);
  if (connected) REQUIRE_FALSE(client.round());
  started_call good, too_large, attached, incomplete, heavy;
  good.message.set_sleep_ms(10);
  too_large.message.set_message(std::string(5000, 'x'));
  attached.control.request_attachment() = braid::buffer(std::string(5000, 'x'));
  incomplete.message.clear_message();
  client.start(good);
  for (auto* each : {&too_large, &attached, &incomplete}) {
    client.start(*each);
    client.finish(*each);
    CHECK(each->ec == errc::bad_request);
    CHECK(each->control.result().origin == outcome_origin::local);
  }
  CHECK(has(too_large.control.ErrorText(), "max_body_size 4096"));
  CHECK(has(attached.control.ErrorText(), "max_body_size 4096"));
  CHECK(has(incomplete.control.ErrorText(), "message"));
  client.finish(good);
  CHECK_FALSE(good.ec);
  CHECK(attempts(sim) == 1);
}

TEST_CASE("call: metadata over the limit of a meta fails its call alone with 1003", "[call]") {
  simulation sim(1);
  server_node server(sim);
  client_node client(sim);
  started_call good, heavy;
  good.message.set_sleep_ms(10);
  heavy.control.mutable_request_metadata().set_user_field("key", std::string(70'000, 'x'));
  client.start(good);
  client.start(heavy);
  client.finish(heavy);
  CHECK(heavy.ec == errc::bad_request);
  CHECK(has(heavy.control.ErrorText(), "metadata"));
  client.finish(good);
  CHECK_FALSE(good.ec);
}

TEST_CASE("call: over the limit of unsent bytes a call fails at once with 1011", "[call]") {
  started_call warm, first, over, small, again;
  simulation sim(1);
  scripted_server server(sim);
  client_node client(sim, {.max_unsent_bytes = 50'000});
  const bool connecting = GENERATE(false, true);
  if (connecting) {
    black_hole(sim);
  } else {
    client.start(warm);
    sim.run_for(1ms);
    sim.network().set_default({.stalled = true, .window = 1024});
  }
  first.message.set_message(std::string(40'000, 'x'));
  over.message.set_message(std::string(40'000, 'y'));
  const auto begin = sim.elapsed();
  for (auto* each : {&first, &over, &small}) client.start(*each);
  client.finish(over);
  CHECK(over.ec == errc::overcrowded);
  CHECK(over.ended_at == begin);
  CHECK(has(over.control.ErrorText(), "max_unsent_bytes is 50000"));
  CHECK_FALSE(first.done());
  CHECK_FALSE(small.done());
  if (!connecting) return;
  // What is cancelled makes room.
  first.control.StartCancel();
  client.finish(first);
  again.message.set_message(std::string(40'000, 'z'));
  client.start(again);
  CHECK_FALSE(again.done());
}

TEST_CASE("call: a channel that was not initialised fails its calls with 22", "[call]") {
  simulation sim(1);
  braid::runtime process(sim.node_options());
  braid::channel channel(process);
  controller control;
  EchoResponse response;
  error_code ec;
  channel.call(echo(), control, request(), response, ec);
  CHECK(ec == errno_code(EINVAL));
  CHECK(has(control.ErrorText(), "not initialised"));
  CHECK_FALSE(channel.usable());
  try {
    channel.call(echo(), request(), response);
    FAIL("nothing was thrown");
  } catch (const braid::call_error& e) {
    CHECK(e.peer().empty());
  }
}

TEST_CASE("call: a channel is initialised once", "[call]") {
  simulation sim(1);
  braid::runtime process(sim.node_options());
  braid::channel channel(process);
  error_code ec;
  channel.init("nonsense", {}, ec);
  CHECK(ec);
  channel.init(address, {}, ec);  // an attempt that failed does not count
  CHECK_FALSE(ec);
  channel.init("10.0.0.2:80", {}, ec);
  CHECK(ec == errno_code(EINVAL));
  CHECK_THROWS_WITH(channel.init("10.0.0.2:80"), Catch::Contains("initialised before"));
}

TEST_CASE("call: keepalive and user timeout are on unless they are switched off, on both sides", "[call]") {
  const bool on = GENERATE(true, false);
  simulation sim(1);
  const auto near = watched_network::of(sim);
  const auto far = watched_network::of(sim);
  braid::runtime server_side(far->watch(sim.node_options()));
  braid::runtime client_side(near->watch(sim.node_options()));
  braid::server server(server_side, on ? braid::server_options{}
                                       : braid::server_options{.keepalive = 0s, .tcp_user_timeout = 0ms});
  server.start(address);
  braid::channel channel(client_side);
  channel.init(address, on ? braid::channel_options{}
                           : braid::channel_options{.keepalive = 0s, .tcp_user_timeout = 0ms});
  started_call call;
  channel.async_call(echo(), call.control, call.message, call.response,
                     [&](error_code) { ++call.completions; });
  REQUIRE(sim.run_until([&] { return call.done(); }));
  for (const auto& each : {near, far}) {
    CHECK((each->asked.keepalive > 0s) == on);
    CHECK((each->asked.user_timeout > 0ms) == on);
  }
}

TEST_CASE("call: bad addresses and options are named by init", "[call]") {
  simulation sim(1);
  braid::runtime process(sim.node_options());
  const auto why = [&](std::string_view to, braid::channel_options options = {}) {
    braid::channel channel(process), other(process);
    error_code ec;
    other.init(to, options, ec);
    CHECK(ec);
    try {
      channel.init(to, options);
    } catch (const boost::system::system_error& e) {
      CHECK(e.code() == ec);
      CHECK(has(e.what(), to));
      return std::string(e.what());
    }
    return std::string("nothing thrown");
  };
  CHECK(has(why("10.0.0.1"), "port"));
  CHECK(has(why("10.0.0.1:0"), "port 0"));
  CHECK(has(why("10.0.0.1:70000"), "port"));
  CHECK(has(why("unix:"), "the path of the unix socket is empty"));
  for (const char* bad : {"", ":80", "[::1:80", "256.1.1.1:80", "a b:80", "list://10.0.0.1:80"})
    CHECK_FALSE(has(why(bad), "nothing thrown"));
  CHECK(has(why(address, {.max_body_size = 0}), "max_body_size"));
  CHECK(has(why(address, {.max_body_size = std::size_t{1} << 31}), "max_body_size"));
  CHECK(has(why(address, {.keepalive = std::chrono::seconds(-1)}), "keepalive"));
  CHECK(has(why(address, {.tcp_user_timeout = std::chrono::milliseconds(-1)}), "tcp_user_timeout"));
}
