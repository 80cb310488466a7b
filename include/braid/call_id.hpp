#pragma once

/// \file
/// A weak name of a call.

#include <braid/config.hpp>

#include <memory>

namespace braid {

namespace detail {
class cancel_handle;
}

/// Names a call so that any thread may cancel it. It may outlive the call and its controller.
///
/// Thread safety: copies of one call_id may be used from several threads at once.
class call_id {
 public:
  call_id() = default;
  explicit call_id(std::shared_ptr<detail::cancel_handle> handle) noexcept : handle_(std::move(handle)) {}

  /// Cancels the call with cancel_cause::user. Before the call starts: it will end with 125 and send nothing.
  /// After its end: no effect. Idempotent.
  void cancel() const noexcept;

 private:
  std::shared_ptr<detail::cancel_handle> handle_;
};

}  // namespace braid
