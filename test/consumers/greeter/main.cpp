// The program of most consumer projects: serves a greeter on loopback and calls it.

#include <braid/channel.hpp>
#include <braid/controller.hpp>
#include <braid/runtime.hpp>
#include <braid/server.hpp>

#include "greeter.pb.h"

#include <chrono>
#include <cstdio>
#include <string>

namespace {

class greeter_service : public greeter::Greeter {
  void Greet(google::protobuf::RpcController*, const greeter::GreetRequest* request,
             greeter::GreetResponse* response, google::protobuf::Closure* done) override {
    response->set_text("hello, " + request->name());
    done->Run();
  }
};

}  // namespace

int main() {
  using namespace std::chrono_literals;

  braid::runtime rt{{.loops = 1}};
  greeter_service service;
  braid::server server{rt};
  server.add_service(service);
  server.start("127.0.0.1:0");

  braid::channel channel{rt};
  channel.init("127.0.0.1:" + std::to_string(server.port()), {.timeout = 60s});

  greeter::GreetRequest request;
  request.set_name("consumer");
  greeter::GreetResponse response;
  braid::controller control;
  greeter::Greeter_Stub{&channel}.Greet(&control, &request, &response, nullptr);
  if (control.Failed()) {
    std::fprintf(stderr, "%s\n", control.ErrorText().c_str());
    return 1;
  }
  std::puts(response.text().c_str());
}
