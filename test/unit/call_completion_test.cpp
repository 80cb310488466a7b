// How a call completes, what may go while it runs, and what travels with it.

#include "call_fixture.hpp"

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/strand.hpp>
#include <catch2/catch.hpp>

#include <array>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

using namespace call_fixture;
using boost::asio::cancellation_signal;
using boost::asio::cancellation_type;
using braid::cancel_cause;
using braid::errc;

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
