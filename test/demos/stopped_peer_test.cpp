// Calls to a server whose process has been stopped, and goes on later.

#include <braid/channel.hpp>
#include <braid/controller.hpp>
#include <braid/runtime.hpp>
#include <braid/stub.hpp>

#include "echo.pb.h"
#include "program.hpp"

#include <boost/asio/error.hpp>
#include <boost/asio/use_future.hpp>
#include <catch2/catch.hpp>

#include <sys/wait.h>

#include <chrono>
#include <csignal>
#include <future>
#include <string>

namespace {

using namespace std::chrono_literals;
using braid::cancel_cause;
using service = echo::EchoService;

echo::EchoRequest request(const std::string& message) {
  echo::EchoRequest made;
  made.set_message(message);
  return made;
}

// Sends a signal and waits until the process has stopped, or goes on.
void signal(demo_test::program& to, int number) {
  to.signal(number);
  int status = 0;
  REQUIRE(::waitpid(to.pid(), &status, number == SIGSTOP ? WUNTRACED : WCONTINUED) == to.pid());
  REQUIRE((number == SIGSTOP ? WIFSTOPPED(status) : WIFCONTINUED(status)));
}

void check_deadline(const braid::stub<service>& stub) {
  braid::controller control;
  braid::error_code ec;
  control.set_timeout(100ms);
  stub.call(&service::Echo, control, request("x"), ec);
  CHECK(ec == braid::errc::timed_out);
  CHECK(control.result().cause == cancel_cause::deadline);
  CHECK(control.latency() >= 100ms);
}

void check_cancel(const braid::stub<service>& stub) {
  braid::controller control;
  auto ended = stub.async_call(&service::Echo, control, request("x"), boost::asio::use_future);
  CHECK(ended.wait_for(50ms) == std::future_status::timeout);
  control.call_id().cancel();
  REQUIRE(ended.wait_for(demo_test::patience) == std::future_status::ready);
  CHECK_THROWS_AS(ended.get(), braid::call_error);
  CHECK(control.error() == boost::asio::error::operation_aborted);
  CHECK(control.result().cause == cancel_cause::user);
}

}  // namespace

TEST_CASE(
    "stopped peer: calls end at their deadline or when they are cancelled, and it answers when it goes on") {
  demo_test::program server("echo_server", {"--listen", "127.0.0.1:0"});
  REQUIRE(server.prints("READY 127.0.0.1:"));
  const std::string address = server.words_after("READY ").front();
  braid::runtime rt({.loops = 1});
  braid::channel known(rt);  // has a connection when the peer stops
  braid::channel fresh(rt);  // has none
  known.init(address, {.timeout = -1s, .connect_timeout = 100s});
  fresh.init(address, {.timeout = -1s, .connect_timeout = 100s, .connection_group = "fresh"});
  CHECK(braid::stub<service>(known).call(&service::Echo, request("before")).message() == "before");
  signal(server, SIGSTOP);
  for (braid::channel* const each : {&known, &fresh}) {
    const braid::stub<service> stub{*each};
    check_deadline(stub);
    check_cancel(stub);
  }
  signal(server, SIGCONT);
  for (braid::channel* const each : {&known, &fresh})
    CHECK(braid::stub<service>(*each).call(&service::Echo, request("after")).message() == "after");
}
