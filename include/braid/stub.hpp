#pragma once

/// \file
/// The typed stub of a generated service.

#include <braid/channel_base.hpp>
#include <braid/config.hpp>
#include <braid/controller.hpp>
#include <braid/error.hpp>
#include <braid/method.hpp>

#include <boost/asio/async_result.hpp>

#include <memory>
#include <stdexcept>
#include <type_traits>
#include <utility>

namespace braid {

/// Calls the methods of a generated service on a channel, each named by its member pointer.
///
/// ```
/// braid::stub<echo::EchoService> echo{channel};
/// auto one = co_await echo.async_call(&echo::EchoService::Echo, request, asio::use_awaitable);
/// auto two = echo.call(&echo::EchoService::Echo, request);  // throws call_error
/// ```
///
/// Every form takes a controller before the request, for settings of its own and for the details of the
/// result.
///
/// Completion signature: `void(error_code, Response)`, where the response is moved to the handler and empty
/// on a failure; with a response of the caller's before the token `void(error_code)`. Tokens that throw throw
/// call_error; see channel_base, which also says all that is common to calls: executor, allocator,
/// cancellation types, lifetimes.
///
/// Deadline: the controller's timeout, else the channel's; see channel_base.
///
/// Default tokens: those of `Executor`. As with any I/O object of Asio,
/// `asio::use_awaitable_t<>::as_default_on(stub)` and `asio::use_awaitable_t<>::as_default_on_t<stub<S>>`
/// make a stub whose async_call() needs no token.
///
/// Object lifetimes: a value, cheap to copy. It keeps a channel that is given as a shared_ptr; one that is
/// given as a reference must live until the last call was started.
///
/// Thread safety: const members may be called from several threads. No call allocates for the stub.
template <typename Service, typename Executor = channel_base::executor_type>
class stub {
 public:
  /// The generated service.
  using service_type = Service;
  /// The executor type that default tokens come from.
  using executor_type = Executor;

  /// The same stub with another executor type, for default tokens.
  template <typename Other>
  struct rebind_executor {
    /// That stub.
    using other = stub<Service, Other>;
  };

  /// Throws std::invalid_argument when `channel` is null.
  explicit stub(std::shared_ptr<channel_base> channel) : channel_(std::move(channel)) {
    if (!channel_) throw std::invalid_argument("braid: a stub needs a channel");
  }
  /// On a channel that is borrowed.
  explicit stub(channel_base& channel) noexcept : channel_(std::shared_ptr<channel_base>(), &channel) {}
  /// From one with another executor type.
  template <typename Other>
  explicit stub(stub<Service, Other> other) noexcept : channel_(std::move(other.channel_)) {}

  /// The executor of the loop that a call started here and now would run on.
  executor_type get_executor() const noexcept { return executor_type(channel_->get_executor()); }

  /// The channel that carries its calls.
  channel_base& channel() const noexcept { return *channel_; }

  /// Starts a call whose response goes to the handler: `void(error_code, Response)`.
  template <typename Request, typename Response, detail::request_argument<Request> Argument,
            detail::token_argument CompletionToken = boost::asio::default_completion_token_t<Executor>>
  auto async_call(
      generated_method<Service, Request, Response> method, Argument&& request,
      CompletionToken&& token = typename boost::asio::default_completion_token<Executor>::type()) const {
    return channel_->template start<Response>(describe_method(method), nullptr,
                                              std::forward<Argument>(request), nullptr,
                                              std::forward<CompletionToken>(token));
  }
  /// The same with a controller.
  template <typename Request, typename Response, detail::request_argument<Request> Argument,
            detail::token_argument CompletionToken = boost::asio::default_completion_token_t<Executor>>
  auto async_call(
      generated_method<Service, Request, Response> method, controller& control, Argument&& request,
      CompletionToken&& token = typename boost::asio::default_completion_token<Executor>::type()) const {
    return channel_->template start<Response>(describe_method(method), &control,
                                              std::forward<Argument>(request), nullptr,
                                              std::forward<CompletionToken>(token));
  }

  /// The same with the caller's response, which must live until the completion: `void(error_code)`.
  template <typename Request, typename Response, detail::request_argument<Request> Argument,
            typename CompletionToken = boost::asio::default_completion_token_t<Executor>>
  auto async_call(
      generated_method<Service, Request, Response> method, Argument&& request,
      std::type_identity_t<Response>& response,
      CompletionToken&& token = typename boost::asio::default_completion_token<Executor>::type()) const {
    return channel_->template start<void>(describe_method(method), nullptr, std::forward<Argument>(request),
                                          &response, std::forward<CompletionToken>(token));
  }
  /// The same with a controller.
  template <typename Request, typename Response, detail::request_argument<Request> Argument,
            typename CompletionToken = boost::asio::default_completion_token_t<Executor>>
  auto async_call(
      generated_method<Service, Request, Response> method, controller& control, Argument&& request,
      std::type_identity_t<Response>& response,
      CompletionToken&& token = typename boost::asio::default_completion_token<Executor>::type()) const {
    return channel_->template start<void>(describe_method(method), &control, std::forward<Argument>(request),
                                          &response, std::forward<CompletionToken>(token));
  }

  /// Calls and waits: suspends a coroutine, blocks a foreign thread. Throws call_error.
  template <typename Request, typename Response>
  Response call(generated_method<Service, Request, Response> method,
                const std::type_identity_t<Request>& request) const {
    return detail::call_returning<Response>(*channel_, describe_method(method), request);
  }
  /// The same with a controller.
  template <typename Request, typename Response>
  Response call(generated_method<Service, Request, Response> method, controller& control,
                const std::type_identity_t<Request>& request) const {
    return detail::call_returning<Response>(*channel_, describe_method(method), control, request);
  }

  /// The same; the error goes to `ec`, and the response is then empty.
  template <typename Request, typename Response>
  Response call(generated_method<Service, Request, Response> method,
                const std::type_identity_t<Request>& request, error_code& ec) const {
    return detail::call_returning<Response>(*channel_, describe_method(method), request, ec);
  }
  /// The same with a controller; the error goes to `ec`.
  template <typename Request, typename Response>
  Response call(generated_method<Service, Request, Response> method, controller& control,
                const std::type_identity_t<Request>& request, error_code& ec) const {
    return detail::call_returning<Response>(*channel_, describe_method(method), control, request, ec);
  }

  /// The same with the caller's response, which is unspecified after a failure.
  template <typename Request, typename Response>
  void call(generated_method<Service, Request, Response> method, const std::type_identity_t<Request>& request,
            std::type_identity_t<Response>& response) const {
    channel_->call(describe_method(method), request, response);
  }
  /// The same with a controller.
  template <typename Request, typename Response>
  void call(generated_method<Service, Request, Response> method, controller& control,
            const std::type_identity_t<Request>& request, std::type_identity_t<Response>& response) const {
    channel_->call(describe_method(method), control, request, response);
  }
  /// The same; the error goes to `ec`.
  template <typename Request, typename Response>
  void call(generated_method<Service, Request, Response> method, const std::type_identity_t<Request>& request,
            std::type_identity_t<Response>& response, error_code& ec) const {
    channel_->call(describe_method(method), request, response, ec);
  }
  /// The same with a controller; the error goes to `ec`.
  template <typename Request, typename Response>
  void call(generated_method<Service, Request, Response> method, controller& control,
            const std::type_identity_t<Request>& request, std::type_identity_t<Response>& response,
            error_code& ec) const {
    channel_->call(describe_method(method), control, request, response, ec);
  }

 private:
  template <typename, typename>
  friend class stub;

  std::shared_ptr<channel_base> channel_;
};

}  // namespace braid
