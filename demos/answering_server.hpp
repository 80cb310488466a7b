// The server in their own process that call_styles and cancel make their calls to.

#pragma once

#include <braid/braid.hpp>

#include "echo.pb.h"

#include <atomic>
#include <string>

/// Answers with what it was asked: "slow" after an hour, "wrong" with the error 42. Counts the calls it has
/// got.
class answering_server {
 public:
  explicit answering_server(const braid::runtime& rt);

  std::string address() const { return server_.endpoints().front().to_string(); }
  int started() const { return started_; }
  /// Blocks until that many calls have come.
  void wait_for_call(int number) const;

 private:
  std::atomic<int> started_{0};
  braid::server server_;
};

echo::EchoRequest ask(const std::string& message);
