// Parallel calls over three servers on loopback.
#include <braid/channel.hpp>
#include <braid/parallel_channel.hpp>
#include <braid/server.hpp>

#include <catch2/catch.hpp>

#include <golden.pb.h>

#include <array>
#include <chrono>
#include <memory>
#include <string>

namespace {

using namespace std::chrono_literals;

class three_servers {
 public:
  three_servers() {
    for (std::size_t i = 0; i < servers.size(); ++i) {
      servers[i] = std::make_unique<braid::server>(server_side);
      servers[i]->handle(&golden::EchoService::Echo,
                         [i](braid::server_call& call, const golden::EchoRequest& request,
                             golden::EchoResponse& response, braid::yield_context) {
                           response.set_message(request.message() + std::to_string(i));
                           call.response_attachment() = call.request_attachment();
                         });
      servers[i]->start("127.0.0.1:0");
    }
  }

  std::unique_ptr<braid::parallel_channel> over(braid::parallel_channel_options options) {
    struct join final : braid::response_merger {
      braid::merge_result merge(google::protobuf::Message& all,
                                const google::protobuf::Message& one) override {
        auto& text = static_cast<golden::EchoResponse&>(all);
        text.set_message(text.message() + static_cast<const golden::EchoResponse&>(one).message());
        return braid::merge_result::merged;
      }
    };
    auto made = std::make_unique<braid::parallel_channel>(client_side, options);
    for (const auto& each : servers) {
      auto plain = std::make_shared<braid::channel>(client_side);
      plain->init("127.0.0.1:" + std::to_string(each->port()));
      made->add_channel(plain, nullptr, std::make_shared<join>());
    }
    return made;
  }

  braid::runtime server_side{{.loops = 2}};
  braid::runtime client_side{{.loops = 2}};
  std::array<std::unique_ptr<braid::server>, 3> servers;
};

int call(braid::parallel_channel& on, braid::controller& control, golden::EchoResponse& response) {
  golden::EchoRequest request;
  request.set_message("echo");
  braid::error_code ec;
  on.call(*golden::EchoService::descriptor()->FindMethodByName("Echo"), control, request, response, ec);
  return braid::to_wire(ec);
}

}  // namespace

TEST_CASE("parallel over tcp: three servers answer, attachments stay with their sub calls",
          "[parallel][tcp]") {
  three_servers in;
  const auto channel = in.over({.timeout = 60s});
  braid::controller control;
  control.request_attachment() = braid::buffer("bytes");
  golden::EchoResponse response;
  CHECK(call(*channel, control, response) == 0);
  CHECK(response.message() == "echo0echo1echo2");
  CHECK_FALSE(control.partial());
  CHECK(control.response_attachment().empty());
  REQUIRE(control.sub_count() == 3);
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(control.sub(i)->response_attachment().to_string() == "bytes");
    CHECK(control.sub(i)->remote_side().port() == in.servers[i]->port());
    CHECK(control.sub(i)->attempts() == 1);
  }
}

TEST_CASE("parallel over tcp: with one server gone, a failure or a partial success", "[parallel][tcp]") {
  three_servers in;
  const auto strict = in.over({.timeout = 60s, .fail_limit = 1});
  const auto lenient = in.over({.timeout = 60s});
  const std::string gone = "127.0.0.1:" + std::to_string(in.servers[1]->port());
  in.servers[1].reset();
  braid::controller control;
  golden::EchoResponse response;
  CHECK(call(*strict, control, response) == 111);
  CHECK(control.ErrorText().find("#1 " + gone + ": 111") != std::string::npos);
  CHECK_FALSE(response.has_message());
  braid::controller second;
  CHECK(call(*lenient, second, response) == 0);
  CHECK(second.partial());
  CHECK(response.message() == "echo0echo2");
  CHECK(braid::to_wire(second.sub(1)->error()) == 111);
}
