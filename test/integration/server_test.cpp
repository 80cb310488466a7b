#include <braid/channel.hpp>
#include <braid/runtime.hpp>
#include <braid/server.hpp>
#include <braid/spawn.hpp>

#include "core/runtime_core.hpp"
#include "integration/no_descriptors.hpp"
#include "integration/raw_peer.hpp"
#include "unit/server_fixture.hpp"

#include <boost/asio/error.hpp>
#include <catch2/catch.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <future>
#include <memory>
#include <mutex>
#include <set>
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

const braid::channel_options patient{.timeout = 60s, .connect_timeout = 60s};

std::string call_echo(braid::channel& ch, const std::string& message) {
  EchoRequest request;
  request.set_message(message);
  EchoResponse response;
  braid::controller control;
  golden::EchoService_Stub(&ch).Echo(&control, &request, &response, nullptr);
  return control.Failed() ? control.ErrorText() : response.message();
}

// The descriptors that this process has open.
std::set<int> open_descriptors() {
  std::set<int> all;
  for (const auto& each : std::filesystem::directory_iterator("/proc/self/fd"))
    all.insert(std::stoi(each.path().filename()));
  return all;
}

std::string error_of_start(braid::server& srv, const std::string& address) {
  try {
    srv.start(address);
  } catch (const boost::system::system_error& e) {
    return e.what();
  }
  return "none";
}

}  // namespace

TEST_CASE("server: port 0 gives a port that can be read; several addresses, of both versions, are served") {
  braid::runtime rt({.loops = 2});
  braid::server srv(rt);
  echo_service service;
  srv.add_service(service);
  CHECK(srv.port() == 0);
  srv.start("127.0.0.1:0");
  srv.start("[::1]:0");
  srv.start("127.0.0.1:0");
  const auto all = srv.endpoints();
  REQUIRE(all.size() == 3);
  CHECK(all[0].port() == srv.port());
  for (const auto& each : all) {
    CHECK(each.port() != 0);
    braid::channel ch(rt);
    ch.init(each.to_string(), patient);
    CHECK(call_echo(ch, "to " + each.to_string()) == "to " + each.to_string());
  }
}

TEST_CASE("server: a bad address, and one in use, are errors that name it") {
  braid::runtime rt({.loops = 1});
  braid::server srv(rt);
  echo_service service;
  srv.add_service(service);
  for (const char* bad : {"", "127.0.0.1", "127.0.0.1:99999", "localhost:80", "[::1:80"}) {
    CAPTURE(bad);
    CHECK(error_of_start(srv, bad).find("server on '" + std::string(bad) + "'") != std::string::npos);
    error_code ec;
    srv.start(bad, ec);
    CHECK(ec == boost::system::errc::invalid_argument);
  }
  srv.start("127.0.0.1:0");
  const std::string taken = "127.0.0.1:" + std::to_string(srv.port());
  braid::server second(rt);
  CHECK(error_of_start(second, taken).find(taken) != std::string::npos);
  error_code ec;
  second.start(taken, ec);
  CHECK(ec == boost::asio::error::address_in_use);
  CHECK(second.port() == 0);
}

TEST_CASE("server: no descriptor of a server or a channel is inherited by a child program") {
  const std::set<int> before = open_descriptors();
  braid::runtime rt({.loops = 1});
  braid::server srv(rt);
  echo_service service;
  srv.add_service(service);
  srv.start("127.0.0.1:0");
  srv.start("[::1]:0");
  srv.start("unix:@braid-inherited-" + std::to_string(::getpid()));
  std::vector<std::unique_ptr<braid::channel>> channels;
  for (const braid::endpoint& at : srv.endpoints()) {
    channels.push_back(std::make_unique<braid::channel>(rt));
    channels.back()->init(at.to_string(), patient);
    CHECK(call_echo(*channels.back(), "hello") == "hello");
  }
  int ours = 0;
  for (const int each : open_descriptors()) {
    const int flags = ::fcntl(each, F_GETFD);
    if (flags < 0 || before.contains(each)) continue;  // the first: that which read the directory
    ++ours;
    INFO(std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(each)));
    CHECK((flags & FD_CLOEXEC) != 0);
  }
  CHECK(ours >= 9);  // a listener and both ends of a connection for each address
}

TEST_CASE("server: a service that is null is refused with 22, which says so") {
  braid::runtime rt({.loops = 1});
  braid::server srv(rt);
  try {
    srv.add_service(std::unique_ptr<google::protobuf::Service>());
    FAIL("it was added");
  } catch (const boost::system::system_error& e) {
    CHECK(e.code().value() == 22);
    CHECK(std::string(e.what()).find("the service to add is a null pointer") != std::string::npos);
  }
}

TEST_CASE("server: services are added once, and before the start") {
  braid::runtime rt({.loops = 1});
  braid::server srv(rt);
  echo_service service;
  srv.add_service(service);
  CHECK_THROWS_AS(srv.add_service(service), boost::system::system_error);
  const auto nothing = [](server_call&, const EchoRequest&, EchoResponse&, yield_context) {};
  CHECK_THROWS_AS(srv.handle(&EchoService::Echo, nothing), boost::system::system_error);
  srv.start("127.0.0.1:0");
  CHECK_THROWS_AS(srv.handle(&golden::NoSuchService::Echo, nothing), boost::system::system_error);
}

TEST_CASE("server: two runtimes in one process serve and call each other") {
  braid::runtime one({.loops = 1});
  braid::runtime two({.loops = 1});
  braid::server srv_one(one);
  braid::server srv_two(two);
  braid::channel to_two(one);
  echo_service service;
  srv_two.add_service(service);
  srv_two.start("127.0.0.1:0");
  to_two.init("127.0.0.1:" + std::to_string(srv_two.port()), patient);
  srv_one.handle(&EchoService::Echo, [&](server_call&, const EchoRequest& q, EchoResponse& r, yield_context) {
    r.set_message("one, " + call_echo(to_two, q.message()));  // an ordinary synchronous call: it suspends
  });
  srv_one.start("127.0.0.1:0");
  braid::channel to_one(two);
  to_one.init("127.0.0.1:" + std::to_string(srv_one.port()), patient);
  CHECK(call_echo(to_one, "two") == "one, two");
}

TEST_CASE("server: handlers run on each loop, for many connections and callers at once") {
  constexpr int callers = 4;
  constexpr int calls = 200;
  braid::runtime rt({.loops = 2});
  braid::server srv(rt);
  std::mutex mutex;
  std::set<std::thread::id> threads;
  srv.handle(&EchoService::Echo,
             [&](server_call&, const EchoRequest& q, EchoResponse& r, yield_context yield) {
               {
                 const std::lock_guard lock(mutex);
                 threads.insert(std::this_thread::get_id());
               }
               braid::sleep_for(1ms, yield);
               r.set_message(q.message());
             });
  srv.start("127.0.0.1:0");
  std::vector<std::thread> running;
  std::atomic<int> good{0};
  for (int i = 0; i < callers; ++i) {
    running.emplace_back([&, i] {
      braid::runtime clients({.loops = 2});
      braid::channel ch(clients);
      ch.init("127.0.0.1:" + std::to_string(srv.port()), patient);
      for (int n = 0; n < calls; ++n) {
        const std::string text = std::to_string(i * calls + n);
        if (call_echo(ch, text) == text) ++good;
      }
    });
  }
  for (auto& each : running) each.join();
  CHECK(good == callers * calls);
  CHECK(threads.size() == 2);
}

TEST_CASE("server: done may run on another thread") {
  braid::runtime rt({.loops = 2});
  braid::server srv(rt);
  echo_service service;
  std::mutex mutex;
  std::vector<std::thread> others;
  service.run = [&](server_call& call, const EchoRequest& q, EchoResponse& r,
                    google::protobuf::Closure* done) {
    const std::lock_guard lock(mutex);
    others.emplace_back([&call, &q, &r, done] { echo_service::answer_at_once(call, q, r, done); });
  };
  srv.add_service(service);
  srv.start("127.0.0.1:0");
  braid::channel ch(rt);
  ch.init("127.0.0.1:" + std::to_string(srv.port()), patient);
  for (int i = 0; i < 100; ++i) CHECK(call_echo(ch, std::to_string(i)) == std::to_string(i));
  for (auto& each : others) each.join();
}

TEST_CASE("server: done that races with the end of the runtime is safe") {
  for (int i = 0; i < 30; ++i) {
    google::protobuf::Closure* kept = nullptr;
    std::promise<void> arrived;
    std::thread late;
    {
      braid::runtime rt({.loops = 1, .log = [](auto...) {}});
      braid::server srv(rt);
      echo_service service;
      service.run = [&](server_call&, const EchoRequest&, EchoResponse&, google::protobuf::Closure* done) {
        kept = done;
        arrived.set_value();
      };
      srv.add_service(service);
      srv.start("127.0.0.1:0");
      raw_peer client = raw_peer::connect(srv.port());
      client.send(echo(1, "x"));
      arrived.get_future().wait();
      late = std::thread([kept] { kept->Run(); });
    }
    late.join();
    CHECK(kept != nullptr);
  }
}

TEST_CASE("server: a connection that breaks while its requests are taken starts no more of them") {
  braid::runtime rt({.loops = 1});
  braid::server srv(rt);
  echo_service service;
  std::promise<void> entered;
  std::promise<void> gone;
  std::atomic<int> ran{0};
  service.run = [&](server_call&, const EchoRequest&, EchoResponse& r, google::protobuf::Closure* done) {
    if (++ran == 1) {
      entered.set_value();
      gone.get_future().wait();  // holds up the loop, so that it reads nothing meanwhile
    }
    r.set_message(std::string(1'000'000, 'x'));  // written at once
    done->Run();
  };
  srv.add_service(service);
  srv.start("127.0.0.1:0");
  raw_peer client = raw_peer::connect(srv.port());
  std::string burst;
  for (int i = 1; i <= 20; ++i) burst += echo(i, "x");
  client.send(burst);
  entered.get_future().wait();
  client.reset();
  gone.set_value();
  raw_peer next = raw_peer::connect(srv.port());
  next.send(echo(21, "x"));
  CHECK(next.next_frame().size() > 1'000'000);
  CHECK(ran == 2);
}

TEST_CASE("server: a reset over tcp cancels the call, a half-close does not") {
  braid::runtime rt({.loops = 1});
  braid::server srv(rt);
  std::promise<braid::cancel_cause> cause;
  std::promise<void> entered;
  srv.handle(&EchoService::Echo,
             [&](server_call& call, const EchoRequest& q, EchoResponse& r, yield_context yield) {
               if (q.message() == "reset") {
                 entered.set_value();
                 error_code ec;
                 braid::sleep_for(1h, yield[ec]);
                 cause.set_value(call.cancelled());
                 return;
               }
               braid::sleep_for(20ms, yield);
               r.set_message(q.message());
             });
  srv.start("127.0.0.1:0");
  raw_peer half = raw_peer::connect(srv.port());
  half.send(echo(1, "one") + echo(2, "two") + "PRP");
  half.end_sending();
  CHECK(answers_in(half.next_frame()).at(0).message() == "one");
  CHECK(answers_in(half.next_frame()).at(0).message() == "two");
  CHECK(half.next_frame().empty());
  raw_peer client = raw_peer::connect(srv.port());
  client.send(echo(1, "reset"));
  entered.get_future().wait();
  client.reset();
  CHECK(cause.get_future().get() == braid::cancel_cause::peer_gone);
}

TEST_CASE("server: accepting goes on after the process had no descriptors left") {
  log_lines log;
  braid::runtime rt({.loops = 1, .log = log.sink()});
  braid::server srv(rt);
  echo_service service;
  srv.add_service(service);
  srv.start("127.0.0.1:0");
  raw_peer before = raw_peer::connect(srv.port());
  before.send(echo(1, "x"));
  REQUIRE_FALSE(before.next_frame().empty());

  const int waiting = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(srv.port());
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  int connected = -1;
  {
    // So the connection can be made and not accepted.
    const no_descriptors meanwhile;
    connected = ::connect(waiting, reinterpret_cast<sockaddr*>(&to), sizeof to);
    const auto limit = std::chrono::steady_clock::now() + 60s;
    while (log.count("accepting a connection failed") == 0 && std::chrono::steady_clock::now() < limit)
      std::this_thread::sleep_for(1ms);
  }
  REQUIRE(connected == 0);
  CHECK(log.count("accepting a connection failed") > 0);
  raw_peer client(waiting);
  client.send(echo(2, "again"));
  CHECK(answers_in(client.next_frame()).at(0).message() == "again");
}
