#include <braid/runtime.hpp>
#include <braid/server.hpp>
#include <braid/spawn.hpp>

#include "bench_echo.pb.h"
#include "bench_harness.hpp"

#include <chrono>
#include <memory>
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

}  // namespace

int main(int argc, char** argv) {
  const auto args = bench::parse_arguments(argc, argv);
  bench::block_signals();
  braid::runtime rt({.loops = args.threads});
  braid::server server(rt);
  server.add_service(std::make_unique<echo_service>(rt));
  server.start(fmt::format("{}:{}", args.host, args.port));
  bench::serve_until_term();
}
