#pragma once

#include <braid/cancellation.hpp>
#include <braid/handler.hpp>

#include "core/call_scope.hpp"
#include "core/loop.hpp"

#include <boost/asio/any_io_executor.hpp>

#include <memory>

namespace braid::server_side {

class running_call;

/// A handler that runs otherwise than in the coroutine of its call: without one, or away from the loop that
/// read the request. It is the scope of the calls that are made for the server call.
///
/// It is shared with the executor that it was given to and with the handles that it gave out, and may outlive
/// the call.
class handler_run : public core::call_scope {
 public:
  /// `where`: the loop that it runs on; null: the method's executor.
  static std::shared_ptr<handler_run> make(running_call& call, core::loop* where);

  /// On the call's loop. The handler may run, and the call end, in here.
  void start() noexcept;

  /// What runs in the call's scope, where the handler does.
  virtual boost::asio::any_io_executor executor() = 0;

 protected:
  handler_run(running_call& call, core::loop* where);

  running_call& call() const noexcept { return call_; }
  /// The loop that it runs on, or null.
  core::loop* where() const noexcept { return where_; }
  std::shared_ptr<handler_run> self();

 private:
  class entry;

  /// Runs the handler, where it belongs.
  virtual void begin() noexcept = 0;
  /// The executor that is no loop's.
  virtual boost::asio::any_io_executor foreign_executor() const = 0;
  /// Drops what it has of an executor that is no loop's, and that may be gone before the call is.
  virtual void let_go() noexcept {}
  /// Its executor has let go of it.
  void not_begun() noexcept;

  running_call& call_;  // until it was told of the handler's end
  core::loop* const where_;
};

}  // namespace braid::server_side
