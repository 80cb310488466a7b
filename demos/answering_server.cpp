#include "answering_server.hpp"

#include <chrono>
#include <thread>

using namespace std::chrono_literals;

answering_server::answering_server(const braid::runtime& rt) : server_(rt) {
  server_.handle(&echo::EchoService::Echo, [this](braid::server_call& call, const echo::EchoRequest& request,
                                                  echo::EchoResponse& response, braid::yield_context yield) {
    ++started_;
    if (request.message() == "slow") braid::sleep_for(1h, yield);
    if (request.message() == "wrong") call.set_failed(42, "the answer is no");
    response.set_message(request.message());
  });
  server_.start("127.0.0.1:0");
}

void answering_server::wait_for_call(int number) const {
  while (started_ < number) std::this_thread::sleep_for(1ms);
}

echo::EchoRequest ask(const std::string& message) {
  echo::EchoRequest request;
  request.set_message(message);
  return request;
}
