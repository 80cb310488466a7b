#pragma once

/// \file
/// What every channel is: something that calls can be started on.

#include <braid/completion.hpp>
#include <braid/config.hpp>
#include <braid/controller.hpp>
#include <braid/coroutine.hpp>
#include <braid/error.hpp>
#include <braid/runtime.hpp>

#include <boost/asio/async_result.hpp>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <google/protobuf/service.h>

#include <memory>
#include <type_traits>
#include <utility>

namespace braid {

namespace client {
class call_target;
}

/// The base of all channels: a plain one and the combos have the same interface, so access patterns compose.
///
/// Calls may be started in four ways, and each takes an optional controller with settings of its own:
/// - async_call() with a completion token: a callback, or a yield_context, which suspends the coroutine;
/// - call(), synchronous: inside a coroutine it suspends the coroutine, on a foreign thread it blocks, on a
/// loop
///   outside of a coroutine it fails at once with 1 (EPERM), since it would wait for itself;
/// - the stub that protobuf generates, with and without `done`: this is a google::protobuf::RpcChannel.
///
/// Completion signature: `void(error_code)`. The text, the peer and the sub calls are in the controller; what
/// yield_context and call() throw is a call_error, which carries them too.
///
/// Executor: the call runs on the current loop when started on one of its runtime's, else on the thread's own
/// loop; the handler is called on its associated executor, by default that loop.
///
/// Cancellation: the token's slot, the controller's call_id, the coroutine's own cancellation: `terminal` and
/// `partial` always, `total` only while no byte of the request, or of any sub call's, was handed to a
/// transport. The call ends with 125. A signal is emitted on the executor on which the handler is called; the
/// call_id may be used on any thread.
///
/// Object lifetimes: the channel may be destroyed right after an asynchronous start. The request is free once
/// the initiating function has returned. Response and controller must live until the completion.
///
/// Thread safety: calls may be started from any thread.
class channel_base : public google::protobuf::RpcChannel {
 public:
  using executor_type = runtime::executor_type;

  ~channel_base() override;

  /// The executor of the loop that a call started here and now would run on.
  executor_type get_executor() const noexcept;

  /// Whether a call has a chance now. It is pushed up on change, not looked up.
  virtual bool usable() const noexcept;
  /// A relative measure of how much this channel can carry: 1 for a single server.
  virtual int capacity() const noexcept;

  template <typename CompletionToken>
  auto async_call(const google::protobuf::MethodDescriptor& method, controller& control,
                  const google::protobuf::Message& request, google::protobuf::Message& response,
                  CompletionToken&& token) {
    return start_with(&control, method, request, response, std::forward<CompletionToken>(token));
  }
  template <typename CompletionToken>
  auto async_call(const google::protobuf::MethodDescriptor& method, const google::protobuf::Message& request,
                  google::protobuf::Message& response, CompletionToken&& token) {
    return start_with(nullptr, method, request, response, std::forward<CompletionToken>(token));
  }

  /// Calls and waits; see the class. Throws call_error.
  void call(const google::protobuf::MethodDescriptor& method, const google::protobuf::Message& request,
            google::protobuf::Message& response);
  void call(const google::protobuf::MethodDescriptor& method, controller& control,
            const google::protobuf::Message& request, google::protobuf::Message& response);
  /// Calls and waits; the error goes to `ec`.
  void call(const google::protobuf::MethodDescriptor& method, controller& control,
            const google::protobuf::Message& request, google::protobuf::Message& response, error_code& ec);

  /// For generated stubs. `control` must be a braid::controller, or null; `done` null: waits, as call() does.
  void CallMethod(const google::protobuf::MethodDescriptor* method, google::protobuf::RpcController* control,
                  const google::protobuf::Message* request, google::protobuf::Message* response,
                  google::protobuf::Closure* done) override;

  /// For the library's own layers.
  const std::shared_ptr<client::call_target>& target() const noexcept { return target_; }

 protected:
  explicit channel_base(std::shared_ptr<client::call_target> target) noexcept;

  void replace_target(std::shared_ptr<client::call_target> target) noexcept { target_ = std::move(target); }

 private:
  template <typename CompletionToken>
  auto start_with(controller* control, const google::protobuf::MethodDescriptor& method,
                  const google::protobuf::Message& request, google::protobuf::Message& response,
                  CompletionToken&& token) {
    if constexpr (std::is_same_v<std::decay_t<CompletionToken>, yield_context>) {
      await_call(control, method, request, response, token);
    } else {
      return boost::asio::async_initiate<CompletionToken, void(error_code)>(
          [this, control, &method, &request, &response](auto handler) {
            auto cancel = detail::connect_slot(boost::asio::get_associated_cancellation_slot(handler));
            start_call(control, method, request, response,
                       detail::handler_completion<decltype(handler), error_code>::create(std::move(handler)),
                       std::move(cancel));
          },
          token);
    }
  }

  void await_call(controller* control, const google::protobuf::MethodDescriptor& method,
                  const google::protobuf::Message& request, google::protobuf::Message& response,
                  yield_context yield);
  void start_call(controller* control, const google::protobuf::MethodDescriptor& method,
                  const google::protobuf::Message& request, google::protobuf::Message& response,
                  detail::erased_completion<error_code>* completion,
                  std::shared_ptr<detail::cancel_handle> cancel);

  std::shared_ptr<client::call_target> target_;
};

}  // namespace braid
