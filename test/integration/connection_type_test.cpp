#include <braid/channel.hpp>

#include "call_fixture.hpp"

#include <boost/asio/post.hpp>
#include <catch2/catch.hpp>

#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

namespace {

using namespace call_over_tcp;
using braid::connection_type;

// Calls with callbacks, from all loops of a process, as many as are wanted at a time.
class callers {
 public:
  explicit callers(connection_type type, const std::string& address, std::chrono::milliseconds timeout = 60s)
      : process_(std::make_unique<braid::runtime>(braid::runtime_options{.loops = 4})),
        channel_(std::make_unique<braid::channel>(*process_)) {
    channel_->init(address, {.timeout = timeout, .connection_type = type});
  }

  /// Starts `count` calls on each loop.
  void start_on_each_loop(int count, const EchoRequest& wanted) {
    for (std::size_t loop = 0; loop < process_->loop_count(); ++loop) {
      boost::asio::post(process_->loop_executor(loop), [this, count, wanted] {
        for (int i = 0; i < count; ++i) start(wanted);
      });
    }
  }
  /// From the thread that asks.
  void start(const EchoRequest& wanted) {
    started_call* call;
    {
      const std::lock_guard lock(mutex_);
      call = &calls_.emplace_back();
    }
    channel_->async_call(echo(), call->control, wanted, call->response, [this, call, wanted](error_code ec) {
      const std::lock_guard lock(mutex_);
      ++codes_[braid::to_wire(ec)];
      if (!ec && call->response.message() != wanted.message()) ++wrong_;
      ++ended_;
    });
  }
  int ended() const {
    const std::lock_guard lock(mutex_);
    return ended_;
  }
  std::map<int, int> codes() const {
    const std::lock_guard lock(mutex_);
    return codes_;
  }
  int wrong() const {
    const std::lock_guard lock(mutex_);
    return wrong_;
  }
  void cancel_all() {
    const std::lock_guard lock(mutex_);
    for (auto& call : calls_) call.control.StartCancel();
  }
  braid::channel& channel() { return *channel_; }
  void end_runtime() { process_.reset(); }

 private:
  struct started_call {
    controller control;
    EchoResponse response;
  };

  mutable std::mutex mutex_;
  std::deque<started_call> calls_;
  std::map<int, int> codes_;
  int ended_ = 0;
  int wrong_ = 0;
  std::unique_ptr<braid::runtime> process_;
  std::unique_ptr<braid::channel> channel_;
};

}  // namespace

TEST_CASE(
    "connection types: threads and loops that call at once have as many connections as their type says") {
  const auto [type, least, most] =
      GENERATE(table<connection_type, std::size_t, std::size_t>({{connection_type::per_loop, 4, 4},
                                                                 {connection_type::single, 1, 1},
                                                                 {connection_type::short_lived, 5, 1000}}));
  echo_server server("127.0.0.1:0", 2);
  callers all(type, server.address());
  for (int i = 0; i < 5; ++i) all.start_on_each_loop(10, request("from a loop"));
  std::vector<std::thread> threads;
  std::atomic<int> good{0};
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&all, &good, i] {
      for (int k = 0; k < 20; ++k) {
        controller control;
        EchoResponse response;
        error_code ec;
        const std::string text = std::string(static_cast<std::size_t>(1 + 1000 * k), 'x') + std::to_string(i);
        all.channel().call(echo(), control, request(text), response, ec);
        if (!ec && response.message() == text) ++good;
      }
    });
  }
  for (auto& each : threads) each.join();
  wait_until([&] { return all.ended() == 200; });
  CHECK(good == 60);
  CHECK(all.codes() == std::map<int, int>{{0, 200}});
  CHECK(all.wrong() == 0);
  CHECK(server.peers() >= least);
  CHECK(server.peers() <= most);
}

TEST_CASE("single: deadlines and cancels of all loops end their calls alone") {
  echo_server server;
  callers held(connection_type::single, server.address(), 200ms);
  held.start_on_each_loop(20, request("held", 60'000));
  callers cancelled(connection_type::single, server.address());
  cancelled.start_on_each_loop(20, request("held", 60'000));
  wait_until([&] { return server.calls() >= 100; });
  cancelled.cancel_all();
  wait_until([&] { return held.ended() == 80 && cancelled.ended() == 80; });
  CHECK(held.codes() == std::map<int, int>{{1008, 80}});
  CHECK(cancelled.codes() == std::map<int, int>{{125, 80}});
  callers good(connection_type::single, server.address());
  good.start_on_each_loop(5, request());
  wait_until([&] { return good.ended() == 20; });
  CHECK(good.codes() == std::map<int, int>{{0, 20}});
}

TEST_CASE(
    "single: the server may die while all loops call; every call ends, and later ones are answered by the "
    "next server") {
  auto server = std::make_unique<echo_server>();
  const std::string address = server->address();
  callers all(connection_type::single, address);
  all.start_on_each_loop(50, request("held", 60'000));
  wait_until([&] { return server->calls() >= 100; });
  server.reset();
  wait_until([&] { return all.ended() == 200; });
  for (const auto& [code, count] : all.codes()) {
    CAPTURE(code, count);
    CHECK((code == 1014 || code == 104 || code == 111 || code == 2003 || code == 32));
  }
  server = std::make_unique<echo_server>(address);
  callers later(connection_type::single, address);
  later.start_on_each_loop(5, request());
  wait_until([&] { return later.ended() == 20; });
  CHECK(later.codes() == std::map<int, int>{{0, 20}});
  CHECK(server->peers() == 1);
}

TEST_CASE("single: a runtime may go while all of its loops call") {
  echo_server server;
  for (int round = 0; round < 20; ++round) {
    callers all(connection_type::single, server.address());
    all.start_on_each_loop(10, request("held", round % 2 == 0 ? 60'000 : 1));
    if (round % 3 == 0) all.channel().call(echo(), request(), *std::make_unique<EchoResponse>());
    all.end_runtime();
    CHECK(all.ended() == 40);
    for (const auto& [code, count] : all.codes()) CHECK((code == 125 || code == 0));
  }
}
