#pragma once

#include "server/handler_run.hpp"

#include <google/protobuf/descriptor.h>

#include <atomic>
#include <memory>

namespace braid::server_side {

/// A handler that is called as a function: on a thread of an executor, or, in callback style, on a loop's
/// base stack.
class function_run final : public handler_run {
 public:
  function_run(running_call& call, core::loop* where);

  boost::asio::any_io_executor executor() override;

  /// The handler's call_done was called.
  void done() noexcept;
  /// All copies of it are gone.
  void done_dropped() noexcept;

 private:
  class done_copies;

  void begin() noexcept override;
  boost::asio::any_io_executor foreign_executor() const override;
  /// Returns whether the handler has answered by returning. `copies` becomes one of those that a callback
  /// handler gets.
  bool invoke(std::shared_ptr<done_copies>& copies);

  const std::shared_ptr<core::runtime_core> keep_;  // for the log, also after the call
  const google::protobuf::MethodDescriptor& method_;
  std::atomic<bool> done_used_{false};
};

}  // namespace braid::server_side
