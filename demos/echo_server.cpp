// Answers each message with itself, until SIGINT or SIGTERM.

#include <braid/runtime.hpp>
#include <braid/server.hpp>

#include "echo.pb.h"

#include <fmt/format.h>

#include <signal.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <utility>

namespace {

class echo_service : public echo::EchoService {
 public:
  void Echo(google::protobuf::RpcController* control, const echo::EchoRequest* request,
            echo::EchoResponse* response, google::protobuf::Closure* done) override {
    response->set_message(request->message());
    auto& call = static_cast<braid::server_call&>(*control);
    call.response_attachment() = std::as_const(call).request_attachment();
    done->Run();
  }
};

// Blocked before any thread starts, so that only wait_for_signal() gets them.
sigset_t block_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  return set;
}

void wait_for_signal(const sigset_t& set) {
  int received = 0;
  sigwait(&set, &received);
}

void serve(const std::string& address) {
  const auto signals = block_signals();
  braid::runtime rt;
  braid::server server(rt);
  server.add_service(std::make_unique<echo_service>());
  server.start(address);
  fmt::print("READY {}\n", server.endpoints().front().to_string());
  std::fflush(stdout);
  wait_for_signal(signals);
  server.stop();
}

}  // namespace

int main(int argc, char** argv) {
  std::string address = "127.0.0.1:8000";
  CLI::App app("Answers each message with itself, until SIGINT or SIGTERM. Prints READY and its address.");
  app.add_option("-l,--listen", address, "address and port; port 0: one that the system chooses")
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  try {
    serve(address);
  } catch (const std::exception& error) {
    fmt::print(stderr, "echo_server: {}\n", error.what());
    return 1;
  }
}
