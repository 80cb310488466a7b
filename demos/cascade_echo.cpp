// A client calls a server, which calls a second one, which calls a third, over tcp. Nothing in the handlers
// speaks of deadlines or of cancellation: both reach the far end by themselves, and are shown there.

#include <braid/channel.hpp>
#include <braid/controller.hpp>
#include <braid/runtime.hpp>
#include <braid/server.hpp>

#include "echo.pb.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/use_future.hpp>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <exception>
#include <future>
#include <mutex>
#include <string>

namespace {

using namespace std::chrono_literals;
namespace asio = boost::asio;

// A line on the standard output, whole, from any thread.
void say(const std::string& who, const std::string& what) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  fmt::print("  {:<6} {}\n", who, what);
  std::fflush(stdout);
}

std::string time_left(const braid::server_call& call) {
  if (call.deadline() == std::chrono::steady_clock::time_point::max()) return "no deadline";
  const auto left = call.deadline() - std::chrono::steady_clock::now();
  return fmt::format("{} ms left", std::chrono::duration_cast<std::chrono::milliseconds>(left).count());
}

// One process of the cascade: a server, and the channel to the next one.
struct hop {
  braid::runtime rt{{.loops = 1}};
  braid::channel next{rt};
  braid::server server{rt};  // stops first: its handlers use the channel

  std::string address() const { return "127.0.0.1:" + std::to_string(server.port()); }
};

const google::protobuf::MethodDescriptor& echo_method() {
  static const auto& method = braid::describe_method(&echo::EchoService::Echo);
  return method;
}

// What the far end saw of one slow call.
struct far_report {
  std::promise<void> reached;
  std::promise<braid::cancel_cause> ended;
};

// The last server: answers, or, to "slow", waits for a minute and reports what ended the wait.
void serve_far(hop& far, std::atomic<far_report*>& report) {
  far.server.handle(&echo::EchoService::Echo,
                    [&report](braid::server_call& call, const echo::EchoRequest& request,
                              echo::EchoResponse& response, braid::yield_context yield) {
                      say("far", fmt::format("got \"{}\", {}", request.message(), time_left(call)));
                      if (request.message() == "slow") {
                        far_report& told = *report;
                        told.reached.set_value();
                        braid::error_code ec;
                        braid::sleep_for(1min, yield[ec]);
                        say("far", fmt::format("stopped waiting: {}", to_string(call.cancelled())));
                        told.ended.set_value(call.cancelled());
                      }
                      response.set_message(request.message());
                    });
  far.server.start("127.0.0.1:0");
}

// In the middle, a stackful handler: the call suspends its coroutine.
void serve_middle(hop& middle) {
  middle.server.handle(
      &echo::EchoService::Echo, [&middle](braid::server_call& call, const echo::EchoRequest& request,
                                          echo::EchoResponse& response, braid::yield_context yield) {
        say("middle", fmt::format("passes \"{}\" on, {}", request.message(), time_left(call)));
        braid::error_code ec;
        middle.next.async_call(echo_method(), request, response, yield[ec]);
        if (ec) call.set_failed(ec, "the last server failed");  // what it throws would be 2001 to the client
      });
  middle.server.start("127.0.0.1:0");
}

// In front, an awaitable one.
asio::awaitable<void> pass_on(hop& front, braid::server_call& call, const echo::EchoRequest& request,
                              echo::EchoResponse& response) {
  const auto [ec] =
      co_await front.next.async_call(echo_method(), request, response, asio::as_tuple(asio::use_awaitable));
  if (ec) call.set_failed(ec, "the server in the middle failed");
}
void serve_front(hop& front) {
  front.server.handle(
      &echo::EchoService::Echo,
      [&front](braid::server_call& call, const echo::EchoRequest& request, echo::EchoResponse& response) {
        say("front", fmt::format("passes \"{}\" on, {}", request.message(), time_left(call)));
        return pass_on(front, call, request, response);
      });
  front.server.start("127.0.0.1:0");
}

// The client: one call, which may be cancelled once the far end has it.
braid::error_code call(hop& client, const std::string& message, std::chrono::milliseconds timeout,
                       std::future<void>* cancel_after) {
  echo::EchoRequest request;
  echo::EchoResponse response;
  request.set_message(message);
  braid::controller control;
  control.set_timeout(timeout);
  auto ended = client.next.async_call(echo_method(), control, request, response,
                                      asio::use_future([](braid::error_code ec) { return ec; }));
  if (cancel_after) {
    cancel_after->wait();
    say("client", "cancels");
    control.call_id().cancel();
  }
  const braid::error_code ec = ended.get();
  say("client", ec ? fmt::format("failed: {} ({})", control.ErrorText(), ec.value())
                   : fmt::format("got \"{}\" back", response.message()));
  return ec;
}

bool show() {
  std::atomic<far_report*> report{nullptr};
  hop far;
  hop middle;
  hop front;
  hop client;
  serve_far(far, report);
  serve_middle(middle);
  serve_front(front);
  // No limit of their own: the server call's holds. A busy machine is not a dead server.
  middle.next.init(far.address(), {.timeout = -1ns, .connect_timeout = 10s});
  front.next.init(middle.address(), {.timeout = -1ns, .connect_timeout = 10s});
  client.next.init(front.address(), {.connect_timeout = 10s});

  fmt::print("1. An echo over three servers\n");
  bool good = !call(client, "hello", 5s, nullptr);

  fmt::print("2. A deadline of 300 ms ends the call everywhere\n");
  far_report by_deadline;
  report = &by_deadline;
  good = call(client, "slow", 300ms, nullptr) == braid::errc::timed_out && good;
  good = by_deadline.ended.get_future().get() == braid::cancel_cause::deadline && good;

  fmt::print("3. A cancelled call is cancelled everywhere\n");
  far_report by_client;
  report = &by_client;
  auto reached = by_client.reached.get_future();
  good = call(client, "slow", 1min, &reached) == asio::error::operation_aborted && good;
  good = by_client.ended.get_future().get() != braid::cancel_cause::none && good;
  return good;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Three servers that call one another: a deadline and a cancellation of the first call reach the last.");
  CLI11_PARSE(app, argc, argv);
  try {
    return show() ? 0 : 1;
  } catch (const std::exception& error) {
    fmt::print(stderr, "cascade_echo: {}\n", error.what());
    return 1;
  }
}
