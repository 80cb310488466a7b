#include <braid/channel.hpp>
#include <braid/runtime.hpp>
#include <braid/server.hpp>

#include "integration/raw_peer.hpp"
#include "unit/server_fixture.hpp"

#include <boost/asio/use_future.hpp>
#include <catch2/catch.hpp>

#include <atomic>
#include <chrono>
#include <future>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace std::chrono_literals;
using namespace server_test;
using braid::error_code;
using braid::server_call;
using braid::yield_context;
using golden::EchoRequest;
using golden::EchoResponse;
using golden::EchoService;

// A server whose calls wait until they are cancelled.
struct waiting_server {
  explicit waiting_server(std::size_t loops = 2) : rt(std::in_place, braid::runtime_options{.loops = loops}) {
    srv.emplace(*rt);
    srv->handle(&EchoService::Echo,
                [this](server_call& call, const EchoRequest&, EchoResponse&, yield_context yield) {
                  ++running;
                  error_code ec;
                  braid::sleep_for(1h, yield[ec]);
                  if (call.cancelled() == braid::cancel_cause::shutdown) ++shut_down;
                });
    srv->start("127.0.0.1:0");
  }
  // Calls on connections of their own, which have all reached their handlers.
  std::vector<raw_peer> call(int count) {
    std::vector<raw_peer> clients;
    for (int i = 1; i <= count; ++i) {
      clients.push_back(raw_peer::connect(srv->port()));
      clients.back().send(echo(i, "x"));
    }
    while (running < count) std::this_thread::sleep_for(1ms);
    return clients;
  }

  std::atomic<int> running{0};
  std::atomic<int> shut_down{0};
  std::optional<braid::runtime> rt;
  std::optional<braid::server> srv;
};

void check_all_told(std::vector<raw_peer>& clients) {
  for (auto& each : clients) {
    const auto got = answers_in(each.next_frame());
    REQUIRE(got.size() == 1);
    CHECK(got[0].code == 2003);
    CHECK(each.next_frame().empty());
  }
}

}  // namespace

TEST_CASE("server: a stop from several threads at once ends the calls of all loops, once") {
  waiting_server w;
  auto clients = w.call(8);
  std::vector<std::thread> stoppers;
  for (int i = 0; i < 4; ++i) stoppers.emplace_back([&] { w.srv->stop({.grace = 20ms, .kill = 60s}); });
  for (auto& each : stoppers) each.join();
  CHECK(w.shut_down == 8);
  check_all_told(clients);
}

TEST_CASE("server: a stop with idle connections closes them and accepts no more") {
  waiting_server w;
  raw_peer idle = raw_peer::connect(w.srv->port());
  auto stopped = w.srv->async_stop({}, boost::asio::use_future);
  CHECK(stopped.get().empty());
  CHECK(idle.next_frame().empty());
  braid::runtime rt({.loops = 1});
  braid::channel ch(rt);
  ch.init("127.0.0.1:" + std::to_string(w.srv->port()), {.timeout = 60s, .connect_timeout = 60s});
  EchoRequest request;
  request.set_message("x");
  EchoResponse response;
  braid::controller control;
  golden::EchoService_Stub(&ch).Echo(&control, &request, &response, nullptr);
  CHECK(braid::to_wire(control.error()) == 111);
}

TEST_CASE("server: its destructor ends its calls without grace") {
  waiting_server w;
  auto clients = w.call(4);
  w.srv.reset();
  CHECK(w.shut_down == 4);
  check_all_told(clients);
}

TEST_CASE("server: its runtime may be destroyed first, with calls running") {
  waiting_server w;
  auto clients = w.call(4);
  SECTION("alone") {
    w.rt.reset();
    CHECK(w.shut_down == 4);
  }
  SECTION("while a stop waits") {
    std::thread stopping([&] { w.srv->stop({.grace = 1h, .kill = 1h}); });
    w.rt.reset();
    stopping.join();
    CHECK(w.shut_down == 4);
  }
  check_all_told(clients);
  w.srv.reset();
}

TEST_CASE("server: a stop while clients keep calling answers each call or closes its connection") {
  for (int round = 0; round < 10; ++round) {
    braid::runtime rt({.loops = 2});
    braid::runtime clients({.loops = 2});
    echo_service service;
    std::atomic<bool> over{false};
    std::atomic<int> good{0};
    std::atomic<int> odd{0};
    std::vector<std::thread> callers;
    {
      braid::server srv(rt);
      srv.add_service(service);
      srv.start("127.0.0.1:0");
      for (int i = 0; i < 3; ++i) {
        callers.emplace_back([&, port = srv.port(), group = std::to_string(i)] {
          braid::channel ch(clients);
          ch.init("127.0.0.1:" + std::to_string(port),
                  {.timeout = 60s, .connect_timeout = 60s, .connection_group = group});
          while (!over) {
            EchoRequest request;
            request.set_message("x");
            EchoResponse response;
            braid::controller control;
            golden::EchoService_Stub(&ch).Echo(&control, &request, &response, nullptr);
            const int code = braid::to_wire(control.error());
            if (code == 0) {
              ++good;
            } else if (code != 2003 && code != 1014 && code != 104 && code != 111 && code != 32) {
              ++odd;
            }
          }
        });
      }
      while (good < 100) std::this_thread::sleep_for(1ms);
      CHECK(srv.stop({.grace = 60s, .kill = 60s}).empty());
    }
    over = true;
    for (auto& each : callers) each.join();
    CHECK(odd == 0);
  }
}

TEST_CASE(
    "server stop: the end of the runtime names each second the handlers that ignore their cancellation") {
  log_lines log;
  std::atomic<bool> entered{false};
  std::atomic<bool> stubborn{true};
  std::optional<braid::runtime> rt(std::in_place, braid::runtime_options{.loops = 1, .log = log.sink()});
  braid::server srv(*rt);
  srv.handle(&EchoService::Echo, [&](server_call&, const EchoRequest&, EchoResponse&, yield_context yield) {
    const braid::shield ignoring(yield, 1h);
    entered = true;
    while (stubborn) braid::sleep_for(2ms, yield);
  });
  srv.start("127.0.0.1:0");
  auto client = raw_peer::connect(srv.port());
  client.send(echo(1, "x"));
  while (!entered) std::this_thread::sleep_for(1ms);
  std::thread destroyer([&] { rt.reset(); });
  while (log.count("the handler of golden.EchoService.Echo") < 2) std::this_thread::sleep_for(1ms);
  stubborn = false;
  destroyer.join();
  CHECK(log.count("waits for 1 calls and coroutines: the handler of golden.EchoService.Echo") >= 2);
}

TEST_CASE("server stop: returns although a handler holds up its loop, and names the loop") {
  braid::runtime rt({.loops = 1});
  auto server = std::make_unique<braid::server>(rt);
  std::promise<void> release;
  std::atomic<bool> running{false}, ended{false};
  server->handle(&EchoService::Echo, [&](server_call&, const EchoRequest&, EchoResponse&, yield_context) {
    running = true;
    release.get_future().wait();  // as nobody should
    ended = true;
  });
  server->start("127.0.0.1:0");
  auto client = raw_peer::connect(server->port());
  client.send(echo(1, "x"));
  while (!running) std::this_thread::sleep_for(1ms);

  const auto left = server->stop({.grace = 10ms, .kill = 10ms});
  CHECK_FALSE(ended);
  REQUIRE(left.size() == 1);
  CHECK(left.front().find("loop 0") != std::string::npos);
  server.reset();  // nor does this wait for it
  CHECK_FALSE(ended);
  release.set_value();
}
