#include "call_fixture.hpp"
#include "core/call_scope.hpp"
#include "integration/no_descriptors.hpp"
#include "integration/raw_peer.hpp"
#include "unit/server_fixture.hpp"

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <catch2/catch.hpp>

#include <cstring>
#include <future>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

namespace {

namespace asio = boost::asio;
using namespace call_over_tcp;
using braid::errc;

struct told_call {
  void start(braid::channel& channel, const EchoRequest& wanted = request()) {
    control.set_timeout(60s);
    channel.async_call(echo(), control, wanted, response, [this](error_code result) {
      ec = result;
      ++times;  // last: another thread reads the rest when it has seen this
    });
  }
  std::atomic<int> times{0};
  error_code ec;
  controller control;
  EchoResponse response;
};

/// A thread that runs a context until it has no work.
class runner {
 public:
  explicit runner(asio::io_context& ioc) : thread_([&ioc] { ioc.run(); }) {}
  ~runner() { join(); }
  void join() {
    if (thread_.joinable()) thread_.join();
  }

 private:
  std::thread thread_;
};

void serve(braid::server& server) {
  server.handle(&golden::EchoService::Echo, [](braid::server_call&, const EchoRequest& wanted,
                                               EchoResponse& response, braid::yield_context yield) {
    if (wanted.has_sleep_ms()) braid::sleep_for(std::chrono::milliseconds(wanted.sleep_ms()), yield);
    response.set_message(wanted.message());
  });
  server.start("127.0.0.1:0");
}
std::string address_of(const braid::server& server) { return server.endpoints().front().to_string(); }

/// A connection that the kernel has accepted, and the server has not yet.
server_test::raw_peer connect_unaccepted(int made, std::uint16_t port) {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  server_test::require(::connect(made, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0);
  return server_test::raw_peer(made);
}

/// The answer to the request in a frame.
std::string answer_to(const std::string& frame) {
  braid::wire::frame_reader reader;
  std::memcpy(reader.prepare().data(), frame.data(), frame.size());
  reader.commit(frame.size());
  braid::wire::inbound_frame got;
  reader.next(got);
  braid::wire::rpc_meta meta;
  meta.has_response = true;
  meta.response.error_code = 0;
  meta.correlation_id = got.meta.correlation_id;
  EchoResponse response;
  response.set_message("answered");
  return server_test::frame(meta, response.SerializeAsString());
}

/// What a synchronous call ended with, whose objects are gone when this returns.
braid::outcome call_and_leave(braid::channel& channel, const EchoRequest& wanted,
                              std::chrono::nanoseconds timeout) {
  auto control = std::make_unique<controller>();
  auto response = std::make_unique<EchoResponse>();
  auto sent = std::make_unique<EchoRequest>(wanted);
  response->set_message("as it was");
  control->set_timeout(timeout);
  error_code ec;
  const auto started = std::chrono::steady_clock::now();
  channel.call(echo(), *control, *sent, *response, ec);
  CHECK(std::chrono::steady_clock::now() - started >= timeout);
  CHECK(response->message() == "as it was");
  CHECK(control->latency() >= timeout);
  control->StartCancel();  // of no effect
  return control->result();
}
void check_timed_out(const braid::outcome& result) {
  CHECK(result.code == errc::timed_out);
  CHECK(result.cause == braid::cancel_cause::deadline);
  CHECK(result.origin == braid::outcome_origin::local);
}

}  // namespace

TEST_CASE(
    "lent tcp: run() returns after the calls although their connection stays, and the next run uses it") {
  echo_server server;
  asio::io_context ioc(GENERATE(BOOST_ASIO_CONCURRENCY_HINT_DEFAULT, 1));
  braid::runtime rt(ioc);
  braid::channel channel(rt);
  channel.init(server.address(), {.timeout = 60s, .connect_timeout = 60s});
  for (int round = 0; round < 3; ++round) {
    std::vector<told_call> calls(10);
    for (auto& call : calls) call.start(channel, request("hello", 5));
    bool user_handler = false;
    asio::steady_timer timer(ioc, 1ms);
    timer.async_wait([&](error_code) { user_handler = true; });
    ioc.run();
    ioc.restart();
    CHECK(user_handler);
    for (auto& call : calls) {
      CHECK(call.times == 1);
      CHECK(call.ec == error_code());
    }
  }
  CHECK(server.peers() == 1);
}

TEST_CASE(
    "lent tcp: run() goes on while a server listens, until it is stopped, from another thread or in a "
    "handler") {
  asio::io_context ioc(GENERATE(BOOST_ASIO_CONCURRENCY_HINT_DEFAULT, 1));
  const bool in_handler = GENERATE(false, true);
  braid::runtime rt(ioc);
  braid::server server(rt);
  serve(server);
  runner running(ioc);
  braid::runtime elsewhere({.loops = 1});
  braid::channel channel(elsewhere);
  channel.init(address_of(server), {.timeout = 60s, .connect_timeout = 60s});
  EchoResponse response;
  for (int i = 0; i < 20; ++i) channel.call(echo(), request("m" + std::to_string(i)), response);
  CHECK(response.message() == "m19");
  if (in_handler) {
    asio::post(ioc, [&] { server.async_stop({}, [](error_code, const std::vector<std::string>&) {}); });
  } else {
    CHECK(server.stop().empty());
  }
  running.join();
}

TEST_CASE(
    "lent tcp: run() goes on while a listening server has no descriptors to accept with, and returns after "
    "its stop") {
  asio::io_context ioc(GENERATE(BOOST_ASIO_CONCURRENCY_HINT_DEFAULT, 1));
  const bool stopped_meanwhile = GENERATE(false, true);
  server_test::log_lines log;
  braid::runtime rt(ioc, {.log = log.sink()});
  braid::server server(rt);
  serve(server);
  const int made = ::socket(AF_INET, SOCK_STREAM, 0);
  std::optional<server_test::raw_peer> client;
  {
    const server_test::no_descriptors meanwhile;
    client.emplace(connect_unaccepted(made, server.port()));
    const auto limit = std::chrono::steady_clock::now() + 60s;
    while (log.count("accepting a connection failed") == 0 && std::chrono::steady_clock::now() < limit)
      ioc.run_one_for(1ms);
  }
  REQUIRE(log.count("accepting a connection failed") == 1);
  ioc.poll();
  REQUIRE_FALSE(ioc.stopped());
  const auto stop = [&] { server.async_stop({}, [](error_code, const std::vector<std::string>&) {}); };
  if (stopped_meanwhile) {
    stop();
    ioc.run_for(60s);
    CHECK(ioc.stopped());
    return;
  }
  runner running(ioc);
  client->send(server_test::echo(1, "accepted"));
  CHECK(server_test::answers_in(client->next_frame()).at(0).message() == "accepted");
  asio::post(ioc, stop);
  running.join();
}

TEST_CASE("lent tcp: what a handler posts still runs where the last call and its connection end together") {
  asio::io_context ioc(GENERATE(BOOST_ASIO_CONCURRENCY_HINT_DEFAULT, 1, BOOST_ASIO_CONCURRENCY_HINT_UNSAFE));
  braid::runtime rt(ioc);
  braid::channel channel(rt);
  server_test::raw_listener listening;
  channel.init("127.0.0.1:" + std::to_string(listening.port()), {.timeout = 60s, .connect_timeout = 60s});
  bool next = false;
  EchoResponse response;
  channel.async_call(echo(), request(), response, [&](error_code) { asio::post(ioc, [&] { next = true; }); });
  auto requested = std::async(std::launch::async, [&] {
    auto accepted = listening.accept();
    const std::string frame = accepted.next_frame();
    return std::pair(std::move(accepted), frame);
  });
  while (requested.wait_for(0s) != std::future_status::ready) ioc.run_one_for(1ms);
  // Nobody runs the context now, so that it will find the answer and the end at once.
  auto [server, frame] = requested.get();
  server.send(answer_to(frame));
  server.end_sending();
  wait_until([&server = server] { return server.all_arrived(); });
  ioc.run_for(60s);
  CHECK(ioc.stopped());
  CHECK(response.message() == "answered");
  CHECK(next);
}

TEST_CASE("lent tcp: run() returns after a call whose request could not be written whole") {
  asio::io_context ioc;
  braid::runtime rt(ioc);
  braid::channel channel(rt);
  server_test::raw_listener listening;
  channel.init("127.0.0.1:" + std::to_string(listening.port()),
               {.connect_timeout = 60s, .tcp_user_timeout = 0ms});
  told_call call;
  call.start(channel, request(std::string(std::size_t{32} << 20, 'x')));
  auto begun = std::async(std::launch::async, [&] {
    auto accepted = listening.accept();
    accepted.receive();
    return accepted;
  });
  while (begun.wait_for(0s) != std::future_status::ready) ioc.run_one_for(1ms);
  const auto reads_no_more = begun.get();
  call.control.StartCancel();
  ioc.run_for(20s);
  CHECK(ioc.stopped());
  CHECK(call.times == 1);
  CHECK(call.ec == aborted);
}

TEST_CASE("lent tcp: a stop returns in time from a handler that holds the loop, and names the loop") {
  const bool destroy = GENERATE(false, true);
  asio::io_context ioc;
  braid::runtime rt(ioc);
  std::optional<braid::server> server(std::in_place, rt);
  std::promise<void> begun;
  std::promise<void> go_on;
  server->handle(&golden::EchoService::Echo,
                 [&](braid::server_call&, const EchoRequest&, EchoResponse& response) {
                   response.set_message("at last");
                   begun.set_value();
                   go_on.get_future().wait();
                 });
  server->start("127.0.0.1:0");
  braid::runtime callers({.loops = 1});
  braid::channel channel(callers);
  channel.init(address_of(*server), {.timeout = 60s});
  runner thread(ioc);
  told_call call;
  call.start(channel);
  begun.get_future().wait();
  auto stopped = std::async(std::launch::async, [&] {
    if (!destroy) return server->stop({.grace = 1ms, .kill = 1ms});
    server.reset();
    return std::vector<std::string>{"what holds up loop 0"};
  });
  const bool in_time = stopped.wait_for(30s) == std::future_status::ready;
  go_on.set_value();
  CHECK(in_time);
  CHECK(stopped.get() == std::vector<std::string>{"what holds up loop 0"});
  server.reset();
  thread.join();
  while (call.times == 0) std::this_thread::yield();
}

TEST_CASE("lent tcp: synchronous calls and stops from outside work while a thread runs the context") {
  asio::io_context ioc;
  braid::runtime rt(ioc);
  braid::server server(rt);
  serve(server);
  runner running(ioc);
  braid::channel channel(rt);
  channel.init(address_of(server), {.timeout = 60s, .connect_timeout = 60s});
  std::vector<std::thread> callers;
  std::atomic<int> answered{0};
  for (int i = 0; i < 4; ++i) {
    callers.emplace_back([&, i] {
      for (int j = 0; j < 25; ++j) {
        EchoResponse response;
        controller control;
        error_code ec;
        channel.call(echo(), control, request(std::to_string(i)), response, ec);
        if (!ec && response.message() == std::to_string(i) && control.attempts() == 1) ++answered;
      }
    });
  }
  for (auto& caller : callers) caller.join();
  CHECK(answered == 100);
  std::optional<told_call> left(std::in_place);
  left->start(channel, request("slow", 60'000));
  CHECK(server.stop({.grace = 0ms}).empty());
  running.join();
  CHECK(left->times == 1);
}

TEST_CASE(
    "lent tcp: a synchronous call from outside ends at its own deadline though nobody runs the context") {
  echo_server server;
  asio::io_context ioc;
  braid::runtime rt(ioc);
  braid::channel channel(rt);
  channel.init(server.address(), {.timeout = 30ms});
  check_timed_out(call_and_leave(channel, request(), 30ms));
  controller control;
  EchoResponse response;
  error_code ec;
  channel.call(echo(), control, request(), response, ec);  // the channel's timeout
  CHECK(ec == errc::timed_out);
  // What was left behind does no harm, and sends nothing.
  ioc.run();
  CHECK(server.calls() == 0);
  ioc.restart();
  const auto work = asio::make_work_guard(ioc);
  runner running(ioc);
  // The controller can be used for the next call, which has a name of its own.
  control.set_timeout(60s);
  channel.call(echo(), control, request("next"), response, ec);
  INFO(control.ErrorText() << " after " << control.latency().count() << " ns");
  CHECK(ec == error_code());
  CHECK(response.message() == "next");
  ioc.stop();
}

TEST_CASE("lent tcp: a synchronous call from outside can be cancelled though nobody runs the context") {
  echo_server server;
  asio::io_context ioc;
  braid::runtime rt(ioc);
  braid::channel channel(rt);
  channel.init(server.address(), {.timeout = -1ns});
  const bool before = GENERATE(false, true);
  controller control;
  const braid::call_id id = control.call_id();
  std::promise<void> starting;
  if (before) id.cancel();
  auto ended = std::async(std::launch::async, [&] {
    EchoResponse response;
    error_code ec;
    starting.set_value();
    channel.call(echo(), control, request(), response, ec);
    return ec;
  });
  starting.get_future().wait();
  if (!before) id.cancel();
  REQUIRE(ended.wait_for(60s) == std::future_status::ready);
  CHECK(ended.get() == aborted);
  CHECK(control.result().cause == braid::cancel_cause::user);
  ioc.run();
  CHECK(server.calls() == 0);
}

TEST_CASE(
    "lent tcp: a synchronous call for a server call ends at that one's deadline though nobody runs the "
    "context") {
  asio::io_context ioc;
  braid::runtime rt(ioc);
  braid::channel channel(rt);
  channel.init("127.0.0.1:1", {.timeout = -1ns});
  const auto handler = std::make_shared<braid::core::call_scope>(braid::core::clock::now() + 30ms, nullptr);
  const braid::core::call_scope::entered inside(handler.get());
  controller control;
  EchoResponse response;
  error_code ec;
  channel.call(echo(), control, request(), response, ec);
  CHECK(ec == errc::timed_out);
  CHECK(control.result().cause == braid::cancel_cause::deadline);
}

TEST_CASE(
    "call: a synchronous call from outside ends at its deadline though its loop is held up by the program") {
  echo_server server;
  braid::runtime rt({.loops = 1});
  braid::channel channel(rt);
  channel.init(server.address(), {.timeout = 60s, .connect_timeout = 60s});
  EchoResponse response;
  channel.call(echo(), request(), response);
  const bool in_flight = GENERATE(false, true);
  std::promise<void> release;
  std::promise<void> held;
  const auto hold = [&] {
    asio::post(rt.get_executor(), [&] {
      held.set_value();
      get(release.get_future());
    });
  };
  if (in_flight) {
    std::thread caller([&] { check_timed_out(call_and_leave(channel, request("late", 300), 200ms)); });
    wait_until([&] { return server.calls() == 2; });
    hold();
    caller.join();
  } else {
    hold();
    get(held.get_future());
    check_timed_out(call_and_leave(channel, request(), 30ms));
  }
  release.set_value();
  channel.call(echo(), request("after"), response);
  CHECK(response.message() == "after");
}

TEST_CASE(
    "lent tcp: the context's end closes connections and listeners and completes calls, before the runtime's "
    "or after") {
  const bool runtime_first = GENERATE(false, true);
  std::optional<asio::io_context> ioc(std::in_place);
  std::optional<braid::runtime> rt(std::in_place, *ioc);
  braid::server server(*rt);
  serve(server);
  braid::channel channel(*rt);
  channel.init(address_of(server), {.timeout = 60s, .connect_timeout = 60s});
  told_call answered;
  answered.start(channel);
  while (answered.times == 0) ioc->run_one();
  told_call held;
  held.start(channel, request("held", 60'000));
  ioc->run_for(5ms);
  // A connection from elsewhere, too.
  braid::runtime elsewhere({.loops = 1});
  braid::channel far(elsewhere);
  far.init(address_of(server), {.timeout = 60s, .connect_timeout = 60s});
  told_call from_far;
  from_far.start(far, request("far", 60'000));
  ioc->run_for(5ms);
  if (runtime_first) rt.reset();
  ioc.reset();
  CHECK(held.times == 1);
  CHECK(held.ec == aborted);
  wait_until([&] { return from_far.times == 1; });
  CHECK(from_far.ec);
  CHECK(answered.ec == error_code());
}

TEST_CASE("lent tcp: a runtime is destroyed while another thread runs its context under load") {
  echo_server server;
  for (int round = 0; round < 10; ++round) {
    asio::io_context ioc;
    std::vector<told_call> calls(20);
    std::optional<asio::executor_work_guard<asio::io_context::executor_type>> work(ioc.get_executor());
    runner running(ioc);
    {
      braid::runtime rt(ioc);
      braid::channel channel(rt);
      channel.init(server.address(), {.timeout = 60s, .connect_timeout = 60s});
      for (auto& call : calls) call.start(channel, request("m", round % 2 == 0 ? 0 : 60'000));
      if (round % 3 != 0) wait_until([&] { return server.calls() > round * 10; });
    }
    work.reset();
    running.join();
    for (auto& call : calls) {
      CHECK(call.times == 1);
      CHECK((!call.ec || call.ec == aborted));
    }
  }
}
