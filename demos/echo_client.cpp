// Sends messages to an echo server and prints what comes back.

#include <braid/channel.hpp>
#include <braid/controller.hpp>
#include <braid/runtime.hpp>

#include "echo.pb.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

namespace {

struct settings {
  std::string server = "127.0.0.1:8000";
  int timeout_ms = 1000;
  std::vector<std::string> messages{"hello"};
};

// One call through the stub that protobuf generated. False when it failed.
bool echo_one(echo::EchoService::Stub& stub, const std::string& message) {
  echo::EchoRequest request;
  echo::EchoResponse response;
  request.set_message(message);

  braid::controller control;
  stub.Echo(&control, &request, &response, nullptr);  // no `done`: returns when the call has ended
  if (control.Failed()) {
    fmt::print(stderr, "echo_client: {} ({})\n", control.ErrorText(), control.error().value());
    return false;
  }
  fmt::print("{}\n", response.message());
  fmt::print(stderr, "  from {} in {} µs\n", control.remote_side().to_string(),
             std::chrono::duration_cast<std::chrono::microseconds>(control.latency()).count());
  return true;
}

bool echo_all(const settings& wanted) {
  braid::runtime rt({.loops = 1});
  braid::channel channel(rt);
  const std::chrono::milliseconds limit(wanted.timeout_ms);
  channel.init(wanted.server, {.timeout = limit, .connect_timeout = limit});
  echo::EchoService::Stub stub(&channel);
  for (const auto& message : wanted.messages) {
    if (!echo_one(stub, message)) return false;
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  settings wanted;
  CLI::App app(
      "Sends messages to an echo server and prints what comes back. Stops at the first failure, with 1.");
  app.add_option("-s,--server", wanted.server, "where the server is")->capture_default_str();
  app.add_option("-t,--timeout", wanted.timeout_ms, "how long a call may take, in ms; negative: no limit")
      ->capture_default_str();
  app.add_option("message", wanted.messages, "what to send")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  try {
    return echo_all(wanted) ? 0 : 1;
  } catch (const std::exception& error) {
    fmt::print(stderr, "echo_client: {}\n", error.what());
    return 1;
  }
}
