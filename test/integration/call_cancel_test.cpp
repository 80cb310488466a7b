#include "call_fixture.hpp"

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_future.hpp>
#include <catch2/catch.hpp>

#include <memory>
#include <vector>

namespace {

using namespace call_over_tcp;
namespace asio = boost::asio;
constexpr int for_ever = 1'000'000;

struct fixture {
  fixture() { channel.init(server.address(), {.timeout = 100s, .connect_timeout = 100s}); }

  echo_server server;
  braid::runtime rt{{.loops = 2}};
  braid::channel channel{rt};
};

}  // namespace

TEST_CASE_METHOD(fixture, "call cancel: by call_id from any thread, also before the start and after the end",
                 "[call]") {
  auto control = std::make_unique<controller>();
  const braid::call_id id = control->call_id();
  std::thread([copy = id] { copy.cancel(); }).join();
  EchoResponse response;
  error_code ec;
  channel.call(echo(), *control, request(), response, ec);
  CHECK(ec == aborted);
  CHECK(server.calls() == 0);

  control->Reset();
  const braid::call_id running = control->call_id();
  std::thread canceller([&] {
    wait_until([&] { return server.calls() == 1; });
    for (int i = 0; i < 3; ++i) running.cancel();
  });
  channel.call(echo(), *control, request("x", for_ever), response, ec);
  canceller.join();
  CHECK(ec == aborted);
  CHECK(control->result().cause == braid::cancel_cause::user);
  control.reset();
  std::thread([&] { running.cancel(); }).join();
}

TEST_CASE_METHOD(fixture, "call cancel: StartCancel from another thread, without a call_id taken before",
                 "[call]") {
  controller control;
  EchoResponse response;
  error_code ec;
  std::thread canceller([&] {
    wait_until([&] { return server.calls() == 1; });
    control.StartCancel();
  });
  channel.call(echo(), control, request("x", for_ever), response, ec);
  canceller.join();
  CHECK(ec == aborted);
}

TEST_CASE_METHOD(fixture, "call cancel: by the token's slot on the thread of its executor", "[call]") {
  asio::io_context context;
  asio::cancellation_signal signal;
  EchoResponse response;
  error_code seen;
  bool emitting = false;
  channel.async_call(
      echo(), request("x", for_ever), response,
      asio::bind_cancellation_slot(signal.slot(), asio::bind_executor(context, [&](error_code ec) {
                                     CHECK_FALSE(emitting);
                                     CHECK_FALSE(signal.slot().has_handler());
                                     seen = ec;
                                   })));
  wait_until([&] { return server.calls() == 1; });
  asio::post(context, [&] {
    emitting = true;
    signal.emit(asio::cancellation_type::total);  // too late: it was sent
    signal.emit(asio::cancellation_type::partial);
    signal.emit(asio::cancellation_type::terminal);
    emitting = false;
  });
  context.run();
  CHECK(seen == aborted);
}

TEST_CASE_METHOD(fixture, "call cancel: cancels that race with the answer leave one completion and one code",
                 "[call]") {
  int cancelled = 0, answered = 0;
  for (int i = 0; i < 300; ++i) {
    auto control = std::make_unique<controller>();
    EchoResponse response;
    std::atomic<int> completions{0};
    std::promise<error_code> ended;
    const braid::call_id id = control->call_id();
    std::thread canceller([id, i] {
      for (volatile int spin = 0; spin < i * 100;) spin = spin + 1;
      id.cancel();
    });
    channel.async_call(echo(), *control, request(), response, [&](error_code ec) {
      ++completions;
      ended.set_value(ec);
    });
    const error_code ec = get(ended.get_future());
    if (ec) {
      CHECK(ec == aborted);
      ++cancelled;
    } else {
      CHECK(response.message() == "hello");
      ++answered;
    }
    control.reset();
    canceller.join();
    CHECK(completions == 1);
  }
  CHECK(cancelled + answered == 300);
}

TEST_CASE_METHOD(fixture, "call cancel: names asked for while calls start and end are of one call each",
                 "[call]") {
  controller control;
  EchoResponse response;
  std::atomic<bool> stop{false};
  std::vector<braid::call_id> names;
  std::thread asking([&] {
    while (!stop)
      if (names.size() < 100'000) names.push_back(control.call_id());
  });
  error_code ec;
  int failed = 0;
  for (int i = 0; i < 500; ++i) {
    channel.call(echo(), control, request(), response, ec);
    if (ec) ++failed;
  }
  stop = true;
  asking.join();
  CHECK(failed == 0);
  control.Reset();
  for (const auto& old : names) old.cancel();
  channel.call(echo(), control, request(), response, ec);
  CHECK_FALSE(ec);

  // Whoever asks while a call runs, or before its start, can end it; after the end the name is that call's.
  control.Reset();
  for (int i = 0; i < 50; ++i) {
    std::thread cancelling([&] {
      for (int spins = 0; spins < i * 20; ++spins) std::this_thread::yield();
      control.call_id().cancel();
    });
    channel.call(echo(), control, request("x", for_ever), response, ec);
    cancelling.join();
    CHECK(ec == aborted);
    control.Reset();
  }
}

TEST_CASE_METHOD(fixture,
                 "call cancel: a runtime's end completes its calls with 125 first, from any executor",
                 "[call]") {
  auto doomed = std::make_unique<braid::runtime>(braid::runtime_options{.loops = 2});
  braid::channel orphan(*doomed);
  orphan.init(server.address(), {.timeout = -1s, .connect_timeout = 100s});
  constexpr std::size_t count = 20;
  std::vector<EchoResponse> responses(count);
  std::vector<std::future<void>> ended;
  for (auto& response : responses)
    ended.push_back(orphan.async_call(echo(), request("x", for_ever), response, asio::use_future));
  error_code blocked;
  std::thread blocking([&] {
    EchoResponse response;
    controller control;
    orphan.call(echo(), control, request("x", for_ever), response, blocked);
  });
  wait_until([&] { return server.calls() == static_cast<int>(count) + 1; });
  doomed.reset();
  blocking.join();
  CHECK(blocked == aborted);
  for (auto& each : ended) {
    REQUIRE(each.wait_for(0s) == std::future_status::ready);
    CHECK_THROWS_AS(each.get(), boost::system::system_error);
  }
}
