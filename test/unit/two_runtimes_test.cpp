// Several runtimes in one program: simulated processes in one thread, and sub channels of another runtime.
#include <braid/channel.hpp>
#include <braid/server.hpp>

#include "combo/combo_run.hpp"
#include "parallel_fixture.hpp"

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/use_future.hpp>

#include <future>

using namespace parallel_fixture;

namespace {

/// A server process and a client process that makes parallel calls, all of which is recorded.
braid::testing::trace run_processes(std::uint64_t seed) {
  braid::testing::simulation sim(seed);
  sim.network().set_default({.latency = 1ms, .jitter = 9ms, .max_delivery = 64});
  braid::runtime far(sim.node_options());
  braid::server server(far);
  server.handle(&golden::EchoService::Echo, [&](braid::server_call& call, const golden::EchoRequest& request,
                                                golden::EchoResponse& response, braid::yield_context yield) {
    sim.record("server " + request.message(), 0);
    braid::sleep_for(5ms, yield);
    call.response_attachment() = call.request_attachment();
    response.set_message(request.message());
  });
  server.start("10.0.0.1:0");
  braid::runtime near(sim.node_options());
  braid::channel plain(near);
  plain.init("10.0.0.1:" + std::to_string(server.port()));
  braid::parallel_channel channel(near, {.timeout = 40ms, .success_limit = 2});
  for (int i = 0; i < 3; ++i) channel.add_channel(&plain, nullptr, joining());
  bool over = false;
  braid::spawn(near, [&](braid::yield_context yield) {
    for (int round = 0; round < 40; ++round) {
      const std::string name = "call " + std::to_string(round);
      golden::EchoResponse response;
      braid::controller control;
      control.request_attachment() = braid::buffer(name);
      error_code ec;
      channel.async_call(echo_method(), control, request_of(name), response, yield[ec]);
      sim.record(name, braid::to_wire(ec));
      for (std::size_t i = 0; i < control.sub_count(); ++i) {
        const braid::controller* sub = control.sub(i);
        sim.record(name + " #" + std::to_string(i), sub ? braid::to_wire(sub->error()) : -1);
        if (sub && !sub->Failed()) CHECK(sub->response_attachment().to_string() == name);
      }
      CHECK(control.response_attachment().empty());  // they stay with the sub calls
    }
    over = true;
  });
  CHECK(sim.run_until([&] { return over; }));
  return sim.trace();
}

}  // namespace

TEST_CASE("two runtimes, a server and parallel calls in one thread: the same seed gives the same run",
          "[parallel][simulation]") {
  const auto first = run_processes(3);
  CHECK(first.entries().size() >= 200);
  CHECK(run_processes(3).hash() == first.hash());
  CHECK(run_processes(3).entries() == first.entries());
  CHECK(run_processes(4).hash() != first.hash());
}

namespace {

/// A process whose parallel channel has a channel of another runtime.
class two_of_them : public world {
 public:
  leaf far(reply answer) { return leaf(other, std::move(answer)); }
  braid::runtime other{sim.node_options()};
};

}  // namespace

TEST_CASE("bridge: a sub channel of another runtime answers on its own loop", "[parallel][bridge]") {
  two_of_them in;
  leaf near = in.make({.after = 3ms});
  leaf far = in.far({.after = 5ms});
  braid::parallel_channel channel(in.rt, {.timeout = 50ms});
  channel.add_channel(near.channel(), nullptr, joining());
  channel.add_channel(far.channel(), nullptr, joining());
  test_call call;
  call.control.mutable_request_metadata().request_id = "r";
  call.control.request_attachment() = braid::buffer("bytes");
  const auto from = in.sim.now();
  CHECK(in.call(channel, call) == 0);
  CHECK(in.took == 5ms);
  CHECK(call.response.message() == "questionquestion");
  REQUIRE(far.times() == 1);
  CHECK(far.asked()[0].data.request_id == "r");
  CHECK(far.asked()[0].data.attachment.to_string() == "bytes");
  CHECK(far.asked()[0].deadline == from + 50ms);
}

TEST_CASE("bridge: errors, texts and sub calls come over", "[parallel][bridge]") {
  two_of_them in;
  auto inner = std::make_shared<braid::parallel_channel>(in.other);
  inner->add_channel(in.far({.code = 5001, .message = "disk full"}).channel());
  braid::parallel_channel channel(in.rt);
  channel.add_channel(in.far({.code = 5001, .message = "disk full"}).channel());
  channel.add_channel(inner);
  test_call call;
  CHECK(in.call(channel, call) == 5001);
  CHECK(call.control.sub(0)->ErrorText() == "disk full");
  CHECK(call.control.sub(0)->result().origin == braid::outcome_origin::peer);
  REQUIRE(call.control.sub(1)->sub_count() == 1);
  CHECK(braid::to_wire(call.control.sub(1)->sub(0)->error()) == 5001);
}

TEST_CASE("bridge: a sub call that is cancelled ends at once, and the other side is told",
          "[parallel][bridge]") {
  two_of_them in;
  cancel_cause told = cancel_cause::none;
  auto far = std::make_shared<braid::combo_channel>(in.other,
                                                    [&](braid::combo_call& call, braid::yield_context yield) {
                                                      error_code ignored;
                                                      braid::sleep_for(1h, yield[ignored]);
                                                      told = call.state().cause();
                                                      call.succeed();
                                                    });
  braid::parallel_channel channel(in.rt, {.timeout = 50ms, .success_limit = 1});
  channel.add_channel(far);
  SECTION("by a limit") {
    channel.add_channel(in.make({.after = 7ms}).channel());
    test_call call;
    CHECK(in.call(channel, call) == 0);
    CHECK(in.took == 7ms);
    CHECK(call.sub_code(0) == 1006);
    CHECK(told == cancel_cause::success_limit);
  }
  SECTION("by the deadline") {
    test_call call;
    CHECK(in.call(channel, call) == 1008);
    CHECK(in.took == 50ms);
    CHECK(call.control.result().cause == cancel_cause::deadline);
    CHECK(told == cancel_cause::deadline);
  }
  SECTION("by the user") {
    test_call call;
    in.start(channel, call);
    in.sim.run_for(9ms);
    call.control.StartCancel();
    REQUIRE(in.sim.run_until([&] { return call.ended(); }));
    CHECK(in.sim.elapsed() == 9ms);
    CHECK(call.code() == 125);
    CHECK(in.sim.run_until([&] { return told != cancel_cause::none; }, 1ms));
    CHECK(told == cancel_cause::user);
  }
}

TEST_CASE("bridge: the other runtime's end is 125, and the caller's leaves nothing behind",
          "[parallel][bridge]") {
  braid::testing::simulation sim(1);
  auto near = std::make_unique<braid::runtime>(sim.node_options());
  auto far = std::make_unique<braid::runtime>(sim.node_options());
  braid::parallel_channel channel(*near);
  channel.add_channel(leaf(*far, {.after = 100ms}).channel());
  test_call call;
  channel.async_call(echo_method(), call.control, call.request, call.response, [&](error_code ec) {
    call.ec = ec;
    ++call.completions;
  });
  const int which = GENERATE(0, 1, 2);  // the other, the caller, the other before the start
  CAPTURE(which);
  if (which != 2) sim.run_for(5ms);
  (which == 1 ? near : far).reset();
  REQUIRE(sim.run_until([&] { return call.ended(); }));
  CHECK(call.code() == 125);
  CHECK(call.control.result().cause == (which == 1 ? cancel_cause::shutdown : cancel_cause::none));
  CHECK(call.sub_cause(0) == cancel_cause::shutdown);
  near.reset();
  far.reset();
  CHECK(call.completions == 1);
}

TEST_CASE("bridge: a lent context that goes before it got to the sub call ends that with 125",
          "[parallel][bridge]") {
  braid::testing::simulation sim(1);
  auto context = std::make_unique<boost::asio::io_context>();
  auto far = std::make_unique<braid::runtime>(*context);
  const std::weak_ptr<braid::core::runtime_core> core = far->core();
  braid::runtime near(sim.node_options());
  test_call call;
  {
    braid::parallel_channel channel(near, {.timeout = -1ns});
    channel.add_channel(leaf(*far, {}).channel());
    channel.async_call(echo_method(), call.control, call.request, call.response, [&](error_code ec) {
      call.ec = ec;
      ++call.completions;
    });
  }
  sim.run_for(1ms);
  CHECK_FALSE(call.ended());
  if (GENERATE(false, true)) far.reset();
  context.reset();
  REQUIRE(sim.run_until([&] { return call.ended(); }, 1s));
  CHECK(call.code() == 125);
  CHECK(call.sub_cause(0) == cancel_cause::shutdown);
  far.reset();
  CHECK(core.expired());
}

TEST_CASE("bridge: runtimes with threads of their own", "[parallel][bridge]") {
  braid::runtime near({.loops = 2});
  braid::runtime far({.loops = 2});
  const auto answering = [](const braid::runtime& rt, bool for_ever) {
    return std::make_shared<braid::combo_channel>(
        rt, [=](braid::combo_call& call, braid::yield_context yield) {
          if (for_ever) braid::sleep_for(1h, yield);
          static_cast<golden::EchoResponse&>(call.response())
              .set_message(static_cast<const golden::EchoRequest&>(call.request()).message());
          call.succeed();
        });
  };
  braid::parallel_channel channel(near, {.timeout = 100s, .success_limit = 2});
  channel.add_channel(answering(far, false), nullptr, joining());
  channel.add_channel(answering(near, false), nullptr, joining());
  channel.add_channel(answering(far, true), nullptr, joining());
  constexpr std::size_t calls = 100;
  std::vector<std::unique_ptr<test_call>> started;
  std::vector<std::future<void>> ended;
  for (std::size_t i = 0; i < calls; ++i) {
    auto& call = *started.emplace_back(std::make_unique<test_call>());
    call.control.mutable_request_metadata().request_id = std::to_string(i);
    ended.push_back(channel.async_call(echo_method(), call.control, call.request, call.response,
                                       boost::asio::use_future));
    if (i % 3 == 2) call.control.StartCancel();
  }
  std::size_t good = 0;
  for (std::size_t i = 0; i < calls; ++i) {
    try {
      ended[i].get();
      ++good;
      CHECK(started[i]->response.message() == "questionquestion");
      CHECK(started[i]->sub_code(2) == 1006);
    } catch (const boost::system::system_error& e) {
      CHECK(i % 3 == 2);
      CHECK(braid::to_wire(e.code()) == 125);
    }
  }
  CHECK(good >= calls - calls / 3);
}

TEST_CASE("two runtimes: a call that a coroutine starts on another one ends with it, whether it waits or not",
          "[bridge]") {
  two_of_them in;
  const bool detached = GENERATE(false, true);
  const bool over = GENERATE(false, true);  // the coroutine goes on when its call has ended
  cancel_cause told = cancel_cause::none;
  braid::combo_channel far(
      in.other,
      [&](braid::combo_call& call, braid::yield_context yield) {
        error_code ignored;
        braid::sleep_for(over ? 5ms : 60ms, yield[ignored]);
        told = call.state().cause();
        call.succeed();
      },
      1h);
  test_call call;
  call.control.set_detached(detached);
  boost::asio::cancellation_signal stop;
  braid::spawn(
      in.rt,
      [&](braid::yield_context yield) {
        in.start(far, call);
        error_code ignored;
        braid::sleep_for(1h, yield[ignored]);
      },
      boost::asio::bind_cancellation_slot(stop.slot(), [](error_code) {}));
  in.sim.run_for(10ms);
  CHECK(call.ended() == over);
  stop.emit(boost::asio::cancellation_type::terminal);
  REQUIRE(in.sim.run_until([&] { return call.ended(); }, 1s));
  const bool cancelled = !detached && !over;
  CHECK(call.code() == (cancelled ? 125 : 0));
  in.sim.run_until_idle(1s);
  CHECK(told == (cancelled ? cancel_cause::user : cancel_cause::none));
}
