#pragma once

// A server whose handlers run on a pool of threads, with a client and a server behind it.

#include <braid/channel.hpp>
#include <braid/runtime.hpp>
#include <braid/server.hpp>

#include "integration/call_fixture.hpp"
#include "unit/server_fixture.hpp"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/use_future.hpp>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <future>
#include <memory>
#include <optional>
#include <string>

namespace executor_test {

using namespace std::chrono_literals;
using namespace call_over_tcp;
namespace asio = boost::asio;
using braid::call_done;
using braid::cancel_cause;
using braid::errc;
using braid::server_call;
using golden::EchoService;
using server_test::echo_service;

/// A gate that handlers wait at.
class gate {
 public:
  void open() { promise_.set_value(); }
  void wait() {
    ++waiting_;
    if (opened_.wait_for(120s) != std::future_status::ready) std::abort();
  }
  int waiting() const { return waiting_; }

 private:
  std::promise<void> promise_;
  std::shared_future<void> opened_{promise_.get_future().share()};
  std::atomic<int> waiting_{0};
};

/// A server of one loop, whose handlers run on a pool, in front of another server.
struct world {
  explicit world(std::size_t threads = 2) : pool(threads) { down.init(behind.address(), {.timeout = -1ns}); }
  ~world() {
    server.reset();
    pool.join();
  }

  /// A server whose calls have a deadline, counted from their arrival.
  void limit_calls(std::chrono::milliseconds timeout) {
    server.emplace(*process, braid::server_options{.default_timeout = timeout});
  }
  void start() {
    server->start("127.0.0.1:0");
    up.init("127.0.0.1:" + std::to_string(server->port()), {.timeout = -1ns});
  }

  struct call {
    controller control;
    EchoRequest message;
    EchoResponse response;
    std::future<void> end;
    void wait() {
      try {
        get(std::move(end));
      } catch (const boost::system::system_error&) {
      }
    }
  };
  std::unique_ptr<call> start_call(const EchoRequest& message, std::chrono::nanoseconds timeout = -1ns,
                                   const google::protobuf::MethodDescriptor& method = echo()) {
    auto made = std::make_unique<call>();
    made->message = message;
    made->control.set_timeout(timeout);
    made->end = up.async_call(method, made->control, made->message, made->response, asio::use_future);
    return made;
  }

  server_test::log_lines log;
  echo_server behind;
  asio::thread_pool pool;
  braid::runtime client{{.loops = 1}};
  braid::channel up{client};
  echo_service service;
  std::optional<braid::runtime> process{std::in_place, braid::runtime_options{.loops = 1, .log = log.sink()}};
  braid::channel down{*process};
  std::optional<braid::server> server{std::in_place, *process};
};

enum class style { plain, awaitable, callback, generated };
inline const auto all_styles = {style::plain, style::awaitable, style::callback, style::generated};

}  // namespace executor_test
