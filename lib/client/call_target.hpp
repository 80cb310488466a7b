#pragma once

#include "client/call.hpp"
#include "core/runtime_core.hpp"

#include <chrono>
#include <memory>

namespace braid::client {

/// What a channel hands its calls to. Calls keep it alive until they have started, combos as long as they
/// run, so that the channel itself may go at any time.
class call_target {
 public:
  call_target(std::shared_ptr<core::runtime_core> runtime, std::chrono::nanoseconds timeout) noexcept
      : runtime_(std::move(runtime)), timeout_(timeout) {}
  call_target(const call_target&) = delete;
  call_target& operator=(const call_target&) = delete;
  virtual ~call_target() = default;

  /// Runs `started` on its loop: settles it at once or later. `self` is this object.
  virtual void start(call& started, const std::shared_ptr<call_target>& self) noexcept = 0;

  /// Whether a start serialises the request at once, so that the message is free afterwards.
  virtual bool serialises_at_start() const noexcept { return false; }

  /// Whether a call here may become a call there.
  virtual bool reaches(const call_target& there) const noexcept { return this == &there; }

  virtual bool usable() const noexcept { return true; }
  virtual int capacity() const noexcept { return 1; }

  core::runtime_core& runtime() const noexcept { return *runtime_; }
  const std::shared_ptr<core::runtime_core>& shared_runtime() const noexcept { return runtime_; }
  /// The timeout of calls that users start; negative: none.
  std::chrono::nanoseconds timeout() const noexcept { return timeout_; }

 private:
  std::shared_ptr<core::runtime_core> runtime_;
  std::chrono::nanoseconds timeout_;
};

}  // namespace braid::client
