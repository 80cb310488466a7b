#include "call_fixture.hpp"

#include <boost/asio/post.hpp>
#include <boost/asio/use_future.hpp>
#include <catch2/catch.hpp>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <vector>

namespace {

using namespace call_over_tcp;
using braid::errc;

/// A listening socket that accepts nobody.
class deaf_listener {
 public:
  deaf_listener() : descriptor_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof at;
    REQUIRE(::bind(descriptor_, reinterpret_cast<sockaddr*>(&at), size) == 0);
    REQUIRE(::listen(descriptor_, 0) == 0);
    REQUIRE(::getsockname(descriptor_, reinterpret_cast<sockaddr*>(&at), &size) == 0);
    where_ = at;
  }
  ~deaf_listener() {
    for (const int each : filling_) ::close(each);
    ::close(descriptor_);
  }
  /// Fills the backlog, so that connecting hangs.
  void fill() {
    for (int i = 0; i < 8; ++i) {
      filling_.push_back(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
      ::connect(filling_.back(), reinterpret_cast<sockaddr*>(&where_), sizeof where_);
    }
  }
  std::string address() const { return "127.0.0.1:" + std::to_string(ntohs(where_.sin_port)); }

 private:
  int descriptor_;
  sockaddr_in where_{};
  std::vector<int> filling_;
};

error_code call(braid::channel& channel, const EchoRequest& message, controller& control) {
  EchoResponse response;
  error_code ec;
  channel.call(echo(), control, message, response, ec);
  return ec;
}
error_code call(braid::channel& channel, const EchoRequest& message = request()) {
  controller control;
  return call(channel, message, control);
}

}  // namespace

TEST_CASE("channel: calls go over tcp, v4 and v6, and by host name", "[channel]") {
  braid::runtime rt({.loops = 1});
  const std::string at = GENERATE("127.0.0.1:0", "[::1]:0");
  echo_server server(at);
  braid::channel channel(rt);
  channel.init(server.address(), {.timeout = 60s, .connect_timeout = 60s});
  controller control;
  control.request_attachment() = braid::buffer(std::string(200'000, 'a'));
  EchoResponse response;
  channel.call(echo(), control, request(std::string(100'000, 'm')), response);
  CHECK(response.message() == std::string(100'000, 'm'));
  CHECK(control.response_attachment().size() == 200'000);
  CHECK(control.remote_side().to_string() == server.address());
  CHECK(control.latency() > 0ns);
  if (at[0] == '[') return;
  braid::channel named(rt);
  named.init("localhost:" + std::to_string(server.port()), {.timeout = 60s, .connect_timeout = 60s});
  CHECK_FALSE(call(named));
}

TEST_CASE("channel: each loop has one connection, a connection_group its own", "[channel]") {
  echo_server server;
  braid::runtime rt({.loops = 2});
  std::vector<std::unique_ptr<braid::channel>> channels;
  for (const char* group : {"", "", "a", "b"}) {
    channels.push_back(std::make_unique<braid::channel>(rt));
    channels.back()->init(server.address(),
                          {.timeout = 60s, .connect_timeout = 60s, .connection_group = group});
  }
  std::atomic<int> ended{0};
  std::vector<EchoResponse> responses(48);
  std::size_t next = 0;
  for (std::size_t loop = 0; loop < 2; ++loop)
    for (auto& channel : channels)
      for (int i = 0; i < 6; ++i)
        boost::asio::post(rt.loop_executor(loop), [&, &response = responses[next++], target = channel.get()] {
          target->async_call(echo(), request(), response, [&](error_code ec) {
            if (!ec) ++ended;
          });
        });
  wait_until([&] { return ended == 48; });
  CHECK(server.peers() == 6);
}

TEST_CASE("channel: a server that restarts on its port is reached again", "[channel]") {
  auto server = std::make_unique<echo_server>();
  const std::string at = server->address();
  braid::runtime rt({.loops = 1});
  braid::channel channel(rt);
  channel.init(at, {.timeout = 60s, .connect_timeout = 60s});
  CHECK_FALSE(call(channel));
  server.reset();
  const error_code gone = call(channel);
  CHECK((gone == boost::asio::error::connection_refused || gone == errc::eof || gone.value() == ECONNRESET ||
         gone.value() == EPIPE));
  CHECK(call(channel) == boost::asio::error::connection_refused);
  server = std::make_unique<echo_server>(at);
  CHECK_FALSE(call(channel));
}

TEST_CASE("channel: a full backlog ends with 110 at the connect timeout, with 1008 at the deadline",
          "[channel]") {
  deaf_listener deaf;
  deaf.fill();
  braid::runtime rt({.loops = 1});
  braid::channel first(rt), second(rt);
  first.init(deaf.address(), {.timeout = 100s, .connect_timeout = 30ms});
  second.init(deaf.address(), {.timeout = 30ms, .connect_timeout = 100s});
  controller control;
  CHECK(call(first, request(), control).value() == ETIMEDOUT);
  CHECK(control.error().category() == boost::system::system_category());
  CHECK(control.latency() >= 30ms);
  CHECK(control.latency() < 60s);
  CHECK(call(second, request(), control) == errc::timed_out);
  CHECK(control.latency() >= 30ms);
  CHECK(control.latency() < 60s);
}

TEST_CASE("channel: a server that never reads or answers holds no call beyond its deadline", "[channel]") {
  deaf_listener deaf;  // the system accepts the connection for it
  braid::runtime rt({.loops = 1});
  braid::channel channel(rt);
  channel.init(deaf.address(), {.timeout = 50ms});
  controller control;
  CHECK(call(channel, request(std::string(8'000'000, 'x')), control) == errc::timed_out);
  CHECK(control.latency() >= 50ms);
  CHECK(control.latency() < 60s);
  CHECK(call(channel) == errc::timed_out);
}

TEST_CASE("channel: a refused connection is 111, an unresolvable name 112", "[channel]") {
  braid::runtime rt({.loops = 1});
  std::string at;
  {
    echo_server server;
    at = server.address();
  }
  braid::channel refused(rt), nowhere(rt);
  refused.init(at, {.timeout = 60s, .connect_timeout = 60s});
  nowhere.init("nowhere.invalid:80", {.timeout = 60s, .connect_timeout = 60s});
  CHECK(call(refused) == boost::asio::error::connection_refused);
  controller control;
  CHECK(call(nowhere, request(), control).value() == EHOSTDOWN);
  CHECK(control.ErrorText().find("nowhere.invalid") != std::string::npos);
}

TEST_CASE("channel: the time that a started call waits for a busy loop counts", "[channel]") {
  echo_server server;
  braid::runtime rt({.loops = 1});
  braid::channel channel(rt);
  channel.init(server.address(), {.timeout = 60s, .connect_timeout = 60s});
  REQUIRE_FALSE(call(channel));
  std::promise<void> busy, release;
  boost::asio::post(rt.get_executor(), [&] {
    busy.set_value();
    release.get_future().wait();
  });
  get(busy.get_future());
  controller control;
  control.set_timeout(5ms);
  EchoResponse response;
  auto ended = channel.async_call(echo(), control, request(), response, boost::asio::use_future);
  std::this_thread::sleep_for(20ms);
  release.set_value();
  ended.wait();
  CHECK(control.error() == errc::timed_out);
  CHECK(server.calls() == 1);
}

TEST_CASE("channel: threads that call at once, in every style, each get their own answers", "[channel]") {
  echo_server server("127.0.0.1:0", 2);
  braid::runtime rt({.loops = 2});
  braid::channel channel(rt);
  channel.init(server.address(), {.timeout = 100s, .connect_timeout = 100s});
  std::atomic<int> good{0};
  std::atomic<int> cancelled{0};
  std::vector<std::thread> threads;
  constexpr int rounds = 60;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      for (int i = 0; i < rounds; ++i) {
        const std::string text = std::to_string(thread) + "/" + std::to_string(i);
        EchoResponse one, two, three, four;
        controller second;
        auto first = channel.async_call(echo(), request(text + "b"), two, boost::asio::use_future);
        auto never =
            std::make_shared<std::promise<error_code>>();  // a code: exceptions are counted unseen by TSan
        channel.async_call(echo(), second, request("never", 90'000), three,
                           [never](error_code ec) { never->set_value(ec); });
        channel.call(echo(), request(text + "a"), one);
        auto last = channel.async_call(echo(), request(text + "c"), four, boost::asio::use_future);
        second.StartCancel();
        if (never->get_future().get() == aborted) ++cancelled;
        get(std::move(first));
        get(std::move(last));
        if (one.message() == text + "a" && two.message() == text + "b" && four.message() == text + "c")
          ++good;
      }
    });
  }
  for (auto& each : threads) each.join();
  CHECK(good == 4 * rounds);
  CHECK(cancelled == 4 * rounds);
}
