#include <braid/runtime.hpp>
#include <braid/server.hpp>
#include <braid/spawn.hpp>

#include "bench_echo.pb.h"
#include "bench_harness.hpp"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <chrono>
#include <memory>
#include <string>
#include <utility>

namespace {

void answer(google::protobuf::RpcController* control, const bench::EchoRequest& request,
            bench::EchoResponse& response) {
  response.set_payload(request.payload());
  auto& call = static_cast<braid::server_call&>(*control);
  if (const auto& attachment = std::as_const(call).request_attachment(); !attachment.empty()) {
    call.response_attachment() = attachment;
  }
}

// A generated service; its methods run in coroutines.
class echo_service : public bench::EchoService {
 public:
  explicit echo_service(braid::runtime& rt) : runtime_(rt) {}

  void Echo(google::protobuf::RpcController* control, const bench::EchoRequest* request,
            bench::EchoResponse* response, google::protobuf::Closure* done) override {
    answer(control, *request, *response);
    done->Run();
  }

  void Hold(google::protobuf::RpcController* control, const bench::EchoRequest* request,
            bench::EchoResponse* response, google::protobuf::Closure* done) override {
    braid::spawn(runtime_, [=](braid::yield_context yield) {
      braid::error_code cancelled;
      braid::sleep_for(std::chrono::milliseconds(request->hold_ms()), yield[cancelled]);
      answer(control, *request, *response);
      done->Run();
    });
  }

 private:
  braid::runtime& runtime_;
};

// The same as functions, each call in a coroutine of its own.
void handle_stackful(braid::server& server) {
  server.handle(&bench::EchoService::Echo,
                [](braid::server_call& call, const bench::EchoRequest& request, bench::EchoResponse& response,
                   braid::yield_context) { answer(&call, request, response); });
  server.handle(&bench::EchoService::Hold, [](braid::server_call& call, const bench::EchoRequest& request,
                                              bench::EchoResponse& response, braid::yield_context yield) {
    braid::error_code cancelled;
    braid::sleep_for(std::chrono::milliseconds(request.hold_ms()), yield[cancelled]);
    answer(&call, request, response);
  });
}

// The same without a stack for each call.
void handle_awaitable(braid::server& server) {
  using boost::asio::awaitable;
  server.handle(&bench::EchoService::Echo,
                [](braid::server_call& call, const bench::EchoRequest& request,
                   bench::EchoResponse& response) -> awaitable<void> {
                  answer(&call, request, response);
                  co_return;
                });
  server.handle(&bench::EchoService::Hold,
                [](braid::server_call& call, const bench::EchoRequest& request,
                   bench::EchoResponse& response) -> awaitable<void> {
                  boost::asio::steady_timer timer(co_await boost::asio::this_coro::executor,
                                                  std::chrono::milliseconds(request.hold_ms()));
                  co_await timer.async_wait(boost::asio::use_awaitable);
                  answer(&call, request, response);
                });
}

void add_handlers(braid::server& server, braid::runtime& rt, const std::string& api) {
  if (api.empty() || api == "generated") return server.add_service(std::make_unique<echo_service>(rt));
  if (api == "stackful") return handle_stackful(server);
  if (api == "awaitable") return handle_awaitable(server);
  bench::detail::refuse("--api=" + api + " (generated, stackful, awaitable)");
}

}  // namespace

int main(int argc, char** argv) {
  const auto args = bench::parse_arguments(argc, argv);
  bench::block_signals();
  braid::runtime rt({.loops = args.threads});
  braid::server server(rt);
  add_handlers(server, rt, args.api);
  server.start(fmt::format("{}:{}", args.host, args.port));
  bench::serve_until_term();
}
