#pragma once

// A server over tcp whose handlers do as the request says, and what the tests of calls to it share.

#include <braid/channel.hpp>
#include <braid/controller.hpp>
#include <braid/server.hpp>
#include <braid/spawn.hpp>

#include <golden.pb.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <future>
#include <mutex>
#include <set>
#include <string>
#include <thread>

namespace call_over_tcp {

using namespace std::chrono_literals;
using braid::controller;
using braid::error_code;
using golden::EchoRequest;
using golden::EchoResponse;

inline const google::protobuf::MethodDescriptor& echo() {
  return *golden::EchoService::descriptor()->FindMethodByName("Echo");
}
inline EchoRequest request(const std::string& message = "hello", int sleep_ms = 0, int fail_code = 0) {
  EchoRequest made;
  made.set_message(message);
  if (sleep_ms != 0) made.set_sleep_ms(sleep_ms);
  if (fail_code != 0) made.set_fail_code(fail_code);
  return made;
}
inline const error_code aborted{125, boost::system::system_category()};

/// The result of a future; a test that hangs ends with a message instead.
template <typename T>
T get(std::future<T> future) {
  if (future.wait_for(std::chrono::seconds(120)) != std::future_status::ready) {
    std::fputs("a test waited in vain\n", stderr);
    std::abort();
  }
  return future.get();
}
/// Waits until `condition` holds.
inline void wait_until(const std::function<bool()>& condition) {
  const auto limit = std::chrono::steady_clock::now() + 120s;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > limit) {
      std::fputs("a test waited in vain\n", stderr);
      std::abort();
    }
    std::this_thread::sleep_for(1ms);
  }
}

/// Echoes, after sleep_ms, or fails with fail_code.
class echo_server {
 public:
  explicit echo_server(const std::string& at = "127.0.0.1:0", std::size_t loops = 1)
      : process_({.loops = loops}), server_(process_) {
    server_.handle(&golden::EchoService::Echo, [this](braid::server_call& call, const EchoRequest& wanted,
                                                      EchoResponse& response, braid::yield_context yield) {
      ++calls_;
      {
        const std::lock_guard lock(mutex_);
        peers_.insert(call.remote_side().to_string());
      }
      if (wanted.has_sleep_ms()) braid::sleep_for(std::chrono::milliseconds(wanted.sleep_ms()), yield);
      if (wanted.has_fail_code()) call.set_failed(wanted.fail_code(), "as asked");
      response.set_message(wanted.message());
      call.response_attachment() = call.request_metadata().attachment;
    });
    server_.start(at);
  }

  std::string address() const { return server_.endpoints().front().to_string(); }
  std::uint16_t port() const { return server_.port(); }
  int calls() const { return calls_; }
  /// How many connections calls have come from.
  std::size_t peers() const {
    const std::lock_guard lock(mutex_);
    return peers_.size();
  }
  braid::runtime& process() { return process_; }

 private:
  std::atomic<int> calls_{0};
  mutable std::mutex mutex_;
  std::set<std::string> peers_;
  braid::runtime process_;
  braid::server server_;
};

}  // namespace call_over_tcp
