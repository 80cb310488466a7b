#pragma once

/// \file
/// Functions around calls: authentication, logging, tags, metrics.

#include <braid/config.hpp>
#include <braid/coroutine.hpp>

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <cstddef>
#include <functional>

namespace braid {

class controller;
class server_call;

namespace client {
class intercepted_call;
}
namespace server_side {
class handler_chain;
}

/// What is behind an interceptor of a server: the next one, or the handler.
///
/// Object lifetimes: valid until the interceptor returns.
class server_next {
 public:
  /// For the library's own layers.
  server_next(server_side::handler_chain& chain, std::size_t index) noexcept : chain_(chain), index_(index) {}
  server_next(const server_next&) = delete;
  server_next& operator=(const server_next&) = delete;

  /// The request.
  const google::protobuf::Message& request() const noexcept;
  /// The response: complete once what is behind has succeeded, and may be changed then.
  google::protobuf::Message& response() noexcept;

  /// Runs what is behind and returns when that has answered. It never throws on account of that: the outcome
  /// is in the server_call, an exception as errc::internal, and a cancellation as the code that it has.
  /// Throws std::logic_error when it is called twice.
  void operator()(yield_context yield);

  /// Makes the call a success, with response(), whatever failure was set.
  void succeed() noexcept;

 private:
  server_side::handler_chain& chain_;
  const std::size_t index_;
  bool called_ = false;
};

/// A function around the calls of a server or of a method.
///
/// What it does: runs on the loop that read the request, in a coroutine of the call, before the handler
/// (wherever that runs) and, when it goes on after `next(yield)`, after it. The first in the list is the
/// outermost. One that does not call `next` answers the call itself: it fills next.response(), or fails the
/// call by server_call::set_failed(). The answer is sent when the outermost has returned.
///
/// Cancellation: its own waits end early, as in a handler. `next` returns when the handler has answered, also
/// after a cancellation; only when the server stops it does not wait for a handler that runs elsewhere, or
/// that has returned and will run `done` later. Then the call's cancelled() is cancel_cause::shutdown, it has
/// been answered, and its error and its response are still the handler's: neither to be read nor changed.
///
/// Errors: one that throws fails the call with errc::internal, and is logged.
///
/// Thread safety: called for several calls at once, on all loops.
using server_interceptor = std::function<void(server_call& call, server_next& next, yield_context yield)>;

/// What is behind an interceptor of a channel: the next one, or the call.
///
/// Object lifetimes: valid until the interceptor returns.
class client_next {
 public:
  /// For the library's own layers.
  client_next(client::intercepted_call& call, std::size_t index) noexcept : call_(call), index_(index) {}
  client_next(const client_next&) = delete;
  client_next& operator=(const client_next&) = delete;

  /// The method that is called.
  const google::protobuf::MethodDescriptor& method() const noexcept;
  /// The request.
  const google::protobuf::Message& request() const noexcept;
  /// The response: complete once the call has succeeded, and may be changed then.
  google::protobuf::Message& response() noexcept;

  /// Makes the call, through the interceptors behind this one, and returns when it has ended. It never throws
  /// on account of that: the outcome is in the controller. Throws std::logic_error when it is called twice.
  void operator()(yield_context yield);

  /// Makes the call a success, with response(), whatever failure was set.
  void succeed() noexcept;

 private:
  client::intercepted_call& call_;
  const std::size_t index_;
  bool called_ = false;
};

/// A function around the calls of a channel.
///
/// What it does: each call on the channel, however it was started, runs the list in a coroutine of its loop,
/// the first outermost. Before `next(yield)` an interceptor may change the metadata of the request; after it
/// the controller has the outcome, and the response may be changed. One that does not call `next` answers the
/// call itself: it fills next.response(), or fails the call by set_failed() on the controller.
///
/// The controller is the interceptors' own. It starts with the metadata of the caller's; the outcome, the
/// response's metadata, the peer and the attempts are copied to the caller's at the end.
///
/// Cancellation: when the call ends early, `next` returns with its code, and other waits end. An interceptor
/// that goes on all the same no longer matters to the call, which has ended without it.
///
/// Errors: one that throws fails the call with errc::internal, and is logged.
///
/// Thread safety: called for several calls at once, on all loops.
using client_interceptor = std::function<void(controller& control, client_next& next, yield_context yield)>;

}  // namespace braid
