#include <braid/channel.hpp>
#include <braid/server.hpp>
#include <braid/testing/simulation.hpp>

#include "coroutine_fixture.hpp"

#include <boost/asio/spawn.hpp>
#include <catch2/catch.hpp>

#include <golden.pb.h>

#include <stdexcept>

using namespace std::chrono_literals;
using namespace coroutine_fixture;

namespace {

bool is_refused() {
  try {
    braid::this_coroutine();
  } catch (const std::logic_error& e) {
    return std::string(e.what()).find("this_coroutine() is called outside of a coroutine") !=
           std::string::npos;
  }
  return false;
}

/// A generated service, whose method is not handed a yield_context and waits all the same.
class waiting_service final : public golden::EchoService {
  void Echo(google::protobuf::RpcController*, const golden::EchoRequest* request,
            golden::EchoResponse* response, google::protobuf::Closure* done) override {
    const yield_context yield = braid::this_coroutine();
    braid::sleep_for(std::chrono::milliseconds(request->sleep_ms()), yield);
    response->set_message(request->message());
    if (yield.cancelled() != braid::cancel_cause::none) response->set_message("cancelled");
    done->Run();
  }
};

}  // namespace

TEST_CASE("this_coroutine: it is the one that runs, also after a suspension and in a nested start") {
  in_coroutine([](yield_context outer) {
    CHECK(braid::in_coroutine());
    CHECK(&braid::this_coroutine().owner() == &outer.owner());
    braid::spawn(
        outer,
        [&](yield_context inner) {
          CHECK(&braid::this_coroutine().owner() == &inner.owner());
          CHECK(&inner.owner() != &outer.owner());
          asio::post(inner.get_executor(), braid::this_coroutine());
          CHECK(&braid::this_coroutine().owner() == &inner.owner());
        },
        braid::this_coroutine());
    CHECK(&braid::this_coroutine().owner() == &outer.owner());
    error_code ec = aborted;
    braid::sleep_for(1ms, braid::this_coroutine()[ec]);
    CHECK_FALSE(ec);
  });
}

TEST_CASE("this_coroutine: outside of a coroutine it is refused and says so") {
  CHECK(is_refused());
  CHECK_FALSE(braid::in_coroutine());
  in_coroutine([](yield_context yield) {
    bool on_loop = false, on_thread = false, in_asios = false;
    asio::post(yield.get_executor(), [&] { on_loop = is_refused() && !braid::in_coroutine(); });
    asio::post(yield.get_executor(), yield);
    asio::thread_pool threads(1);
    asio::post(threads, [&] { on_thread = is_refused(); });
    asio::post(threads, yield);
    bool over = false;
    asio::spawn(
        yield.get_executor(), [&](asio::yield_context) { in_asios = is_refused(); },
        [&](std::exception_ptr) { over = true; });
    while (!over) asio::post(yield.get_executor(), yield);
    CHECK(on_loop);
    CHECK(on_thread);
    CHECK(in_asios);
  });
}

TEST_CASE("this_coroutine: a generated service waits with it, and is cancelled with its call") {
  braid::testing::simulation sim(1);
  braid::runtime serving(sim.node_options()), calling(sim.node_options());
  braid::server server(serving);
  server.add_service(std::make_unique<waiting_service>());
  server.start("10.0.0.1:80");
  braid::channel channel(calling);
  channel.init("10.0.0.1:80", {.timeout = 10s});
  golden::EchoService_Stub stub(&channel);
  golden::EchoRequest request;
  request.set_message("slept");
  request.set_sleep_ms(3000);
  golden::EchoResponse response;
  braid::controller control;
  stub.Echo(&control, &request, &response, nullptr);
  CHECK_FALSE(control.Failed());
  CHECK(response.message() == "slept");
  CHECK(control.latency() >= 3s);
  control.set_timeout(1s);
  stub.Echo(&control, &request, &response, nullptr);
  CHECK(control.error() == braid::errc::timed_out);
  CHECK(control.latency() < 2s);
}
