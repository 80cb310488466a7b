#include "lent_fixture.hpp"

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <catch2/catch.hpp>

#include <optional>
#include <set>
#include <thread>
#include <vector>

namespace {

using namespace lent_fixture;

/// A server and a client as two runtimes on one context.
struct both_on_one {
  explicit both_on_one(asio::io_context& ioc)
      : server_side(ioc, all.options()), client_side(ioc, all.options()) {
    serve(server);
    channel.init(server_address, {.timeout = 1h, .connect_timeout = 1h});
  }
  world all;
  braid::runtime server_side;
  braid::runtime client_side;
  braid::server server{server_side};
  braid::channel channel{client_side};
};

}  // namespace

TEST_CASE("lent: calls and coroutines run in the program's run(), which returns when they have ended") {
  asio::io_context ioc(GENERATE(BOOST_ASIO_CONCURRENCY_HINT_DEFAULT, 1));
  both_on_one pair(ioc);
  for (int round = 0; round < 3; ++round) {
    std::string order;
    told_call call;
    call.start(pair.channel);
    asio::post(ioc, [&] { order += 'u'; });
    braid::spawn(pair.client_side, [&](yield_context self) {
      EchoRequest request;
      EchoResponse response;
      request.set_message("in a coroutine");
      pair.channel.async_call(echo(), request, response, self);
      asio::post(self.get_executor(), self);
      asio::steady_timer(self.get_executor(), 1ms).async_wait(self);
      braid::sleep_for(1ms, self);
      // The synchronous form suspends.
      pair.channel.call(echo(), request, response);
      order += response.message() == "in a coroutine" ? 'c' : 'x';
    });
    ioc.run();
    ioc.restart();
    CHECK(order == "uc");
    CHECK(call.times == 1);
    CHECK(call.ec == error_code());
    CHECK(call.response.message() == "hello");
  }
  CHECK(pair.all.log.all().empty());
}

TEST_CASE("lent: the context may be driven by poll, run_one and run_for, and by one thread after the other") {
  asio::io_context ioc;
  both_on_one pair(ioc);
  std::vector<std::thread::id> ran_on;
  const auto work = [&](yield_context self) {
    for (int i = 0; i < 4; ++i) {
      ran_on.push_back(std::this_thread::get_id());
      EchoRequest request;
      EchoResponse response;
      request.set_message("hello");
      pair.channel.async_call(echo(), request, response, self);
      braid::sleep_for(1ms, self);
    }
  };
  bool done = false;
  for (int way = 0; way < 4; ++way) {
    done = false;
    braid::spawn(pair.client_side, work, [&](error_code ec) { done = !ec; });
    const auto step = [&] {
      if (ioc.stopped()) ioc.restart();
      if (way == 0) ioc.poll();
      if (way == 1) ioc.poll_one();
      if (way == 2) ioc.run_one();
      if (way == 3) ioc.run_for(1ms);
    };
    while (!done) {
      if (way % 2 == 0) step();  // by this thread and another in turn, or always by another
      if (!done) std::thread(step).join();
    }
  }
  CHECK(done);
  std::set<std::thread::id> threads(ran_on.begin(), ran_on.end());
  CHECK(threads.size() > 1);
  CHECK(pair.all.log.all().empty());
}

TEST_CASE(
    "lent: run() does not return while a call is in flight or a server stops, and does when they are over") {
  asio::io_context ioc;
  both_on_one pair(ioc);
  told_call call;
  call.start(pair.channel, "never");
  while (ioc.poll() != 0)
    ;
  CHECK_FALSE(ioc.stopped());
  CHECK(call.times == 0);
  bool stopped = false;
  pair.server.async_stop({.grace = 24h},
                         [&](error_code, const std::vector<std::string>&) { stopped = true; });
  while (ioc.poll() != 0)
    ;
  CHECK_FALSE(ioc.stopped());
  call.control.StartCancel();
  ioc.run();
  CHECK(call.ec == aborted);
  CHECK(stopped);
  CHECK(ioc.stopped());
}

TEST_CASE("lent: a context that was stopped goes on after its restart") {
  asio::io_context ioc;
  both_on_one pair(ioc);
  told_call call;
  call.start(pair.channel);
  ioc.stop();
  ioc.run();
  CHECK(call.times == 0);
  ioc.restart();
  ioc.run_one();
  ioc.stop();
  ioc.run();
  ioc.restart();
  ioc.run();
  CHECK(call.times == 1);
  CHECK(call.ec == error_code());
}

TEST_CASE("lent: runtime::stop() ends what runs, so that run() returns") {
  asio::io_context ioc;
  both_on_one pair(ioc);
  told_call call;
  call.start(pair.channel, "never");
  braid::cancel_cause cause{};
  braid::spawn(pair.client_side, [&](yield_context self) {
    error_code ec;
    braid::sleep_for(24h, self[ec]);
    cause = self.cancelled();
  });
  while (ioc.poll() != 0)
    ;
  pair.client_side.stop();
  pair.server_side.stop();
  ioc.run();
  CHECK(call.ec == aborted);
  CHECK(cause == braid::cancel_cause::shutdown);
  told_call late;
  late.start(pair.channel);
  ioc.restart();
  ioc.run();
  CHECK(late.ec == aborted);
}

TEST_CASE("lent: two threads that run the context at once are reported, and wait for one another") {
  asio::io_context ioc;
  both_on_one pair(ioc);
  std::promise<void> blocks;
  bool alone = true;
  bool inside = false;
  auto& log = pair.all.log;
  braid::spawn(pair.client_side, [&](yield_context) {
    inside = true;
    blocks.set_value();
    log.wait_for("two threads run the io_context", 1);
    inside = false;
  });
  std::thread first([&] { ioc.run(); });
  get(blocks.get_future());
  pair.client_side.core()->at(0).post([&] { alone = !inside; });
  std::thread second([&] { ioc.run(); });
  first.join();
  second.join();
  CHECK(alone);
  CHECK(log.count("error: two threads run the io_context") == 1);
}

TEST_CASE(
    "lent: running the context inside a coroutine or a completion handler is refused, and nothing is lost") {
  std::optional<asio::io_context> own;
  own.emplace();
  both_on_one pair(*own);
  int ran = 0;
  std::string refusal;
  const auto poll = [&] {
    pair.client_side.core()->at(0).post([&] { ++ran; });
    try {
      own->poll();
    } catch (const std::logic_error& e) {
      refusal = e.what();
    }
    CHECK(ran == 0);
  };
  SECTION("a coroutine") {
    braid::spawn(pair.client_side, [&](yield_context) { poll(); });
  }
  SECTION("a completion handler") {
    braid::spawn(
        pair.client_side, [](yield_context) {}, [&](error_code) { poll(); });
  }
  own->run();
  CHECK(refusal.find("was run inside a coroutine") != std::string::npos);
  CHECK(ran == 1);
}

TEST_CASE("lent: a handler of the program's own may run the context inside it") {
  asio::io_context ioc;
  both_on_one pair(ioc);
  told_call call;
  asio::post(ioc, [&] {
    call.start(pair.channel);
    while (call.times == 0) ioc.run_one();
  });
  ioc.run();
  CHECK(call.ec == error_code());
}

TEST_CASE("loop: a coroutine that polls its own loop is refused") {
  log_lines lines;
  braid::runtime rt({.loops = 1, .log = lines.sink()});
  bool ran = false;
  const bool refused = get(braid::spawn(
      rt,
      [&](yield_context self) {
        rt.core()->at(0).post([&] { ran = true; });
        try {
          self.get_executor().context().poll();
        } catch (const std::logic_error&) {
          return !ran;
        }
        return false;
      },
      asio::use_future));
  CHECK(refused);
  get(braid::spawn(
      rt, [](yield_context self) { asio::post(self.get_executor(), self); }, asio::use_future));
  CHECK(ran);
}

TEST_CASE("lent: what the program's handlers throw leaves run(), and the runtime goes on") {
  asio::io_context ioc;
  both_on_one pair(ioc);
  EchoRequest request;
  EchoResponse response;
  request.set_message("hello");
  const auto start = [&](int kind) {
    if (kind == 0) asio::post(ioc, [] { throw std::runtime_error("mine"); });
    if (kind == 1)
      pair.channel.async_call(echo(), request, response,
                              [](error_code) { throw std::runtime_error("mine"); });
    if (kind == 2)
      braid::spawn(
          pair.client_side, [](yield_context) {}, [](error_code) { throw std::runtime_error("mine"); });
  };
  for (int kind = 0; kind < 3; ++kind) {
    start(kind);
    told_call call;
    call.start(pair.channel);
    int caught = 0;
    for (bool over = false; !over;) {
      try {
        ioc.run();
        over = true;
      } catch (const std::runtime_error& e) {
        caught += e.what() == std::string("mine") ? 1 : 0;
      }
    }
    CHECK(caught == 1);
    CHECK(call.times == 1);
    CHECK(call.ec == error_code());
    ioc.restart();
  }
}

TEST_CASE("lent: waiting on the thread that runs the context is refused, outside of a coroutine") {
  asio::io_context ioc;
  both_on_one pair(ioc);
  EchoRequest request;
  EchoResponse response;
  request.set_message("hello");
  error_code in_handler;
  error_code in_completion;
  int stop_code = 0;
  const auto call = [&](error_code& ec) {
    braid::controller control;
    pair.channel.call(echo(), control, request, response, ec);
  };
  asio::post(ioc, [&] {
    call(in_handler);
    try {
      pair.server.stop();
    } catch (const boost::system::system_error& e) {
      stop_code = e.code().value();
    }
  });
  pair.channel.async_call(echo(), request, response, [&](error_code) { call(in_completion); });
  ioc.run();
  CHECK(in_handler.value() == EPERM);
  CHECK(in_completion.value() == EPERM);
  CHECK(stop_code == EDEADLK);
}

TEST_CASE("lent: Asio's awaitables call on the context as on any other") {
  asio::io_context ioc;
  both_on_one pair(ioc);
  std::string said;
  asio::co_spawn(
      ioc,
      [&]() -> asio::awaitable<void> {
        EchoRequest request;
        EchoResponse response;
        request.set_message("awaited");
        for (int i = 0; i < 3; ++i)
          co_await pair.channel.async_call(echo(), request, response, asio::use_awaitable);
        said = response.message();
      },
      asio::detached);
  ioc.run();
  CHECK(said == "awaited");
}

namespace {

enum class end_of_call { deadline, cancellation, shutdown };

}  // namespace

TEST_CASE(
    "lent: a call that a coroutine elsewhere waits for ends all the same though nobody runs the context") {
  const auto how = GENERATE(end_of_call::deadline, end_of_call::cancellation, end_of_call::shutdown);
  world all;
  asio::io_context ioc;
  braid::runtime there(ioc, all.options());
  braid::channel channel(there);
  channel.init(server_address, {.timeout = -1ns});
  braid::testing::simulation sim(1);
  std::optional<braid::runtime> here(std::in_place, sim.node_options());
  asio::cancellation_signal stop;
  braid::outcome ended;
  std::chrono::nanoseconds ended_at{-1};
  braid::spawn(
      *here,
      [&](braid::yield_context) {
        braid::controller control;
        EchoResponse response;
        error_code ec;
        if (how == end_of_call::deadline) control.set_timeout(100ms);
        channel.call(echo(), control, EchoRequest(), response, ec);
        ended = control.result();
        ended_at = sim.elapsed();
      },
      asio::bind_cancellation_slot(stop.slot(), [](error_code) {}));
  sim.run_for(50ms);
  CHECK(ended_at < 0ns);
  if (how == end_of_call::cancellation) stop.emit(asio::cancellation_type::terminal);
  if (how == end_of_call::shutdown) {
    here.reset();
  } else {
    sim.run_until([&] { return ended_at >= 0ns; }, 1s);
  }
  REQUIRE(ended_at >= 0ns);
  CHECK(ended_at <= (how == end_of_call::deadline ? 130ms : 80ms));
  CHECK(ended.code.value() == (how == end_of_call::deadline ? 1008 : 125));
  CHECK(ended.cause == (how == end_of_call::deadline       ? braid::cancel_cause::deadline
                        : how == end_of_call::cancellation ? braid::cancel_cause::user
                                                           : braid::cancel_cause::shutdown));
  ioc.run();  // what was left behind does no harm, and sends nothing
  CHECK(all.network().attempts(braid::endpoint::parse(server_address).value()) == 0);
}

TEST_CASE("lent: options that do not suit are refused by name") {
  asio::io_context ioc;
  CHECK_THROWS_WITH((braid::runtime{ioc, {.loops = 2}}), Catch::Contains("one loop, options.loops is 2"));
  braid::testing::simulation sim(1);
  CHECK_THROWS_WITH((braid::runtime{ioc, sim.node_options()}), Catch::Contains("simulation"));
  braid::runtime one(ioc, {.loops = 1});
  CHECK(one.loop_count() == 1);
  CHECK(one.get_executor() == ioc.get_executor());
}
