#pragma once

/// \file
/// What every channel is: something that calls can be started on.

#include <braid/call_completion.hpp>
#include <braid/config.hpp>
#include <braid/controller.hpp>
#include <braid/coroutine.hpp>
#include <braid/error.hpp>
#include <braid/runtime.hpp>

#include <boost/asio/async_result.hpp>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <google/protobuf/service.h>

#include <concepts>
#include <exception>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

namespace braid {

namespace client {
class call_target;
}

namespace detail {
template <typename Response, typename Error>
class call_initiation;
}

/// The base of all channels: a plain one and the combos have the same interface, so access patterns compose.
///
/// Calls may be started in four ways, and each takes an optional controller with settings of its own:
/// - async_call() with a completion token: a callback, any token of Asio, or a yield_context, which suspends
///   the coroutine;
/// - call(), synchronous: inside a coroutine it suspends the coroutine, on a foreign thread it blocks, on a
///   loop outside of a coroutine it fails at once with 1 (EPERM), since it would wait for itself;
/// - the stub that protobuf generates, with and without `done`: this is a google::protobuf::RpcChannel;
/// - typed, with a response of its own: braid::stub and braid::method.
///
/// Completion signature: `void(error_code)`; of the typed forms that return the response
/// `void(error_code, Response)`. The text, the peer and the sub calls are in the controller.
///
/// Errors: what call() and the throwing tokens (yield_context, asio::yield_context, use_awaitable,
/// use_future, also below bind_executor, bind_allocator and bind_cancellation_slot) throw is a call_error,
/// which carries text, peer and attempts. Tokens that start the call through another one (deferred) or that
/// change its signature (append, consign) give Asio's system_error with the code alone: pass a controller to
/// learn more. On a failure the caller's response is unspecified, one that is returned is empty.
///
/// Executor: the call runs on the current loop when started on one of its runtime's, else on the thread's own
/// loop; the handler is called on its associated executor, by default that loop, exactly once, and never
/// inside the initiating function. Its associated allocator gives the memory that keeps the handler, and its
/// associated executor has work until it was called.
///
/// Deadline: the controller's timeout, else the channel's, counted from the start of the call and never
/// extended; in a handler it is never later than that of the server call, unless the call is detached. Below
/// a combo the parent's alone counts. It covers everything: waiting for a connection, resolving, queueing,
/// all sub calls, merging. The call then ends with errc::timed_out, and an answer that is processed at that
/// instant is late.
///
/// Cancellation: the token's slot, the controller's call_id, the coroutine's own cancellation: `terminal` and
/// `partial` always, `total` only while no byte of the request, or of any sub call's, was handed to a
/// transport. The call ends with 125. A request that `total` ended while it waited behind others for the
/// transport may still be sent, and is then followed by its cancel. A signal is emitted on the executor on
/// which the handler is called; the call_id may be used on any thread.
///
/// Object lifetimes: the channel may be destroyed right after an asynchronous start. The request is free once
/// the initiating function has returned. A token that starts later (use_awaitable, deferred: when it is
/// awaited or invoked) needs channel, method and request until then; an rvalue request of the typed forms is
/// kept. Response and controller must live until the completion.
///
/// Thread safety: calls may be started from any thread.
class channel_base : public google::protobuf::RpcChannel {
 public:
  /// The executor of a loop.
  using executor_type = runtime::executor_type;

  ~channel_base() override;

  /// The executor of the loop that a call started here and now would run on.
  executor_type get_executor() const noexcept;

  /// Whether a call has a chance now, as far as is known; a combo asks its sub channels each time.
  virtual bool usable() const noexcept;
  /// A relative measure of how much this channel can carry: 1 for a single server.
  virtual int capacity() const noexcept;

  /// Starts a call; see the class. `response` is the caller's.
  template <typename CompletionToken>
  auto async_call(const google::protobuf::MethodDescriptor& method, controller& control,
                  const google::protobuf::Message& request, google::protobuf::Message& response,
                  CompletionToken&& token) {
    return start<void>(method, &control, request, &response, std::forward<CompletionToken>(token));
  }
  /// The same without a controller.
  template <typename CompletionToken>
  auto async_call(const google::protobuf::MethodDescriptor& method, const google::protobuf::Message& request,
                  google::protobuf::Message& response, CompletionToken&& token) {
    return start<void>(method, nullptr, request, &response, std::forward<CompletionToken>(token));
  }

  /// Calls and waits; see the class. Throws call_error.
  void call(const google::protobuf::MethodDescriptor& method, const google::protobuf::Message& request,
            google::protobuf::Message& response);
  /// The same with a controller.
  void call(const google::protobuf::MethodDescriptor& method, controller& control,
            const google::protobuf::Message& request, google::protobuf::Message& response);
  /// Calls and waits; the error goes to `ec`.
  void call(const google::protobuf::MethodDescriptor& method, const google::protobuf::Message& request,
            google::protobuf::Message& response, error_code& ec);
  /// The same with a controller; the error goes to `ec`.
  void call(const google::protobuf::MethodDescriptor& method, controller& control,
            const google::protobuf::Message& request, google::protobuf::Message& response, error_code& ec);

  /// For generated stubs. `control` must be a braid::controller, or null; `done` null: waits, as call() does.
  void CallMethod(const google::protobuf::MethodDescriptor* method, google::protobuf::RpcController* control,
                  const google::protobuf::Message* request, google::protobuf::Message* response,
                  google::protobuf::Closure* done) override;

  /// For the library's own layers: starts a call. `Response` void: the answer goes to `into`, else to the
  /// handler.
  template <typename Response, typename Request, typename CompletionToken>
  auto start(const google::protobuf::MethodDescriptor& method, controller* control, Request&& request,
             google::protobuf::Message* into, CompletionToken&& token);

  /// For the library's own layers.
  const std::shared_ptr<client::call_target>& target() const noexcept { return target_; }

 protected:
  /// For the library's own layers.
  explicit channel_base(std::shared_ptr<client::call_target> target) noexcept;

  /// For the library's own layers.
  void replace_target(std::shared_ptr<client::call_target> target) noexcept { target_ = std::move(target); }

 private:
  template <typename Response, typename Error>
  friend class detail::call_initiation;

  template <typename Response>
  auto await_typed(const google::protobuf::MethodDescriptor& method, controller* control,
                   const google::protobuf::Message& request, google::protobuf::Message* into,
                   yield_context yield);
  void await_call(controller* control, const google::protobuf::MethodDescriptor& method,
                  const google::protobuf::Message& request, google::protobuf::Message& response,
                  yield_context yield);
  void start_call(controller* control, const google::protobuf::MethodDescriptor& method,
                  const google::protobuf::Message& request, google::protobuf::Message& response,
                  detail::call_completion* completion, std::shared_ptr<detail::cancel_handle> cancel);

  std::shared_ptr<client::call_target> target_;
};

namespace detail {

/// What starts an asynchronous call once a token has made its handler: now, or when the user says so.
template <typename Response, typename Error>
class call_initiation {
 public:
  using executor_type = channel_base::executor_type;

  call_initiation(channel_base& channel, const google::protobuf::MethodDescriptor& method,
                  controller* control, google::protobuf::Message* into,
                  std::optional<call_error>* report) noexcept
      : channel_(&channel), method_(&method), control_(control), into_(into), report_(report) {}

  executor_type get_executor() const noexcept { return channel_->get_executor(); }

  template <typename Handler>
  void operator()(Handler handler, const google::protobuf::Message* request) const {
    auto cancel = connect_slot(boost::asio::get_associated_cancellation_slot(handler));
    auto* const waiting = call_handler<Handler, Response, Error>::create(std::move(handler), report_);
    google::protobuf::Message* response = into_;
    if constexpr (!std::is_void_v<Response>) response = &waiting->response();
    channel_->start_call(control_, *method_, *request, *response, waiting, std::move(cancel));
  }
  template <typename Handler, std::derived_from<google::protobuf::Message> Request>
  void operator()(Handler handler, const Request& request) const {
    (*this)(std::move(handler), &static_cast<const google::protobuf::Message&>(request));
  }

 private:
  channel_base* channel_;
  const google::protobuf::MethodDescriptor* method_;
  controller* control_;
  google::protobuf::Message* into_;
  std::optional<call_error>* report_;
};

/// What a token keeps of a request until it starts the call: the address of an lvalue, an rvalue itself, or a
/// copy of a const one.
template <typename Request>
decltype(auto) kept_request(std::remove_reference_t<Request>& request) {
  if constexpr (std::is_lvalue_reference_v<Request>) {
    return static_cast<const google::protobuf::Message*>(&request);
  } else if constexpr (std::is_const_v<Request>) {
    return std::remove_const_t<Request>(request);
  } else {
    return std::move(request);
  }
}

}  // namespace detail

template <typename Response>
auto channel_base::await_typed(const google::protobuf::MethodDescriptor& method, controller* control,
                               const google::protobuf::Message& request, google::protobuf::Message* into,
                               yield_context yield) {
  if constexpr (std::is_void_v<Response>) {
    await_call(control, method, request, *into, yield);
  } else {
    Response response;
    await_call(control, method, request, response, yield);
    if (yield.error_target() && *yield.error_target()) response.Clear();
    return response;
  }
}

template <typename Response, typename Request, typename CompletionToken>
auto channel_base::start(const google::protobuf::MethodDescriptor& method, controller* control,
                         Request&& request, google::protobuf::Message* into, CompletionToken&& token) {
  using token_type = std::decay_t<CompletionToken>;
  static_assert(!std::derived_from<token_type, google::protobuf::Message>,
                "the completion token is missing: the last argument of async_call() is a message");
  constexpr detail::token_errors errors = detail::errors_of_token<token_type>::value;
  if constexpr (std::is_same_v<token_type, yield_context>) {
    return await_typed<Response>(method, control, request, into, token);
  } else if constexpr (errors == detail::token_errors::thrown_here) {
    std::optional<call_error> failure;
    try {
      return boost::asio::async_initiate<CompletionToken,
                                         typename detail::call_results<error_code, Response>::signature>(
          detail::call_initiation<Response, error_code>(*this, method, control, into, &failure), token,
          detail::kept_request<Request>(request));
    } catch (const boost::system::system_error&) {
      if (failure) throw call_error(*failure);
      throw;
    }
  } else {
    using error =
        std::conditional_t<errors == detail::token_errors::kept_thrown, std::exception_ptr, error_code>;
    return boost::asio::async_initiate<CompletionToken,
                                       typename detail::call_results<error, Response>::signature>(
        detail::call_initiation<Response, error>(*this, method, control, into, nullptr), token,
        detail::kept_request<Request>(request));
  }
}

}  // namespace braid
