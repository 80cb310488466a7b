#pragma once

/// \file
/// Naming a method: by the member function that protobuf generated for it, or by its name.

#include <braid/config.hpp>
#include <braid/error.hpp>

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <google/protobuf/service.h>

#include <concepts>
#include <string_view>
#include <type_traits>
#include <utility>

namespace braid {

class channel_base;
class controller;

/// A method of a generated service: `&EchoService::Echo`.
template <typename Service, typename Request, typename Response>
using generated_method = void (Service::*)(google::protobuf::RpcController*, const Request*, Response*,
                                           google::protobuf::Closure*);

namespace detail {

/// Notes which method a generated stub calls.
class method_probe final : public google::protobuf::RpcChannel {
 public:
  void CallMethod(const google::protobuf::MethodDescriptor* method, google::protobuf::RpcController*,
                  const google::protobuf::Message*, google::protobuf::Message*,
                  google::protobuf::Closure*) override {
    called = method;
  }
  const google::protobuf::MethodDescriptor* called = nullptr;
};

/// The descriptor of a method with these messages; made when its service is in no .proto file that is linked.
/// It lives until the end of the process. Throws a system_error (22) that names what is wrong.
const google::protobuf::MethodDescriptor& find_method(std::string_view service, std::string_view name,
                                                      const google::protobuf::Descriptor& request,
                                                      const google::protobuf::Descriptor& response);

/// An argument that is exactly the request of a method.
template <typename Argument, typename Request>
concept request_argument = std::same_as<std::remove_cvref_t<Argument>, Request>;

/// Not a message, which would be a response rather than a token.
template <typename Argument>
concept token_argument = !std::derived_from<std::remove_cvref_t<Argument>, google::protobuf::Message>;

// The synchronous calls that return their response. Channel: a channel_base, which need not be known here.

template <typename Response, typename Channel>
Response call_returning(Channel& channel, const google::protobuf::MethodDescriptor& method,
                        const google::protobuf::Message& request) {
  Response response;
  channel.call(method, request, response);
  return response;
}
template <typename Response, typename Channel>
Response call_returning(Channel& channel, const google::protobuf::MethodDescriptor& method,
                        controller& control, const google::protobuf::Message& request) {
  Response response;
  channel.call(method, control, request, response);
  return response;
}
template <typename Response, typename Channel>
Response call_returning(Channel& channel, const google::protobuf::MethodDescriptor& method,
                        controller& control, const google::protobuf::Message& request, error_code& ec) {
  Response response;
  channel.call(method, control, request, response, ec);
  if (ec) response.Clear();
  return response;
}
template <typename Response, typename Channel>
Response call_returning(Channel& channel, const google::protobuf::MethodDescriptor& method,
                        const google::protobuf::Message& request, error_code& ec) {
  Response response;
  channel.call(method, request, response, ec);
  if (ec) response.Clear();
  return response;
}

}  // namespace detail

/// The descriptor of a generated method. Costs a virtual call or two, and no allocation.
///
/// How: a pointer to a virtual member function finds the stub's override, which names its descriptor to the
/// channel.
template <typename Service, typename Request, typename Response>
const google::protobuf::MethodDescriptor& describe_method(
    generated_method<Service, Request, Response> method) {
  detail::method_probe probe;
  typename Service::Stub stub(&probe);
  (static_cast<Service&>(stub).*method)(nullptr, nullptr, nullptr, nullptr);
  return *probe.called;
}

/// A method named by its service and its own name, with the types of its messages: for .proto files without
/// generic services, and for services of which only the messages are at hand.
///
/// ```
/// const braid::method<echo::EchoRequest, echo::EchoResponse> Echo{"echo.EchoService", "Echo"};
/// auto reply = co_await Echo.async_call(channel, request, asio::use_awaitable);
/// server.handle(Echo, [](braid::server_call&, const echo::EchoRequest&, echo::EchoResponse&,
/// braid::yield_context) {...});
/// ```
///
/// A method converts to its descriptor, so that it can be given to everything that takes one.
///
/// async_call() and call() have the forms and the contract of braid::stub, with the channel in front.
///
/// Deadline: the controller's timeout, else the channel's; see channel_base.
///
/// Object lifetimes: a value; calls do not need it after their start. Descriptors live until the end of the
/// process.
///
/// Thread safety: const members may be called from several threads.
template <typename Request, typename Response>
class method {
 public:
  /// The message that is sent.
  using request_type = Request;
  /// The message that is answered.
  using response_type = Response;

  /// Looks the method up among the .proto files that are linked, where its messages are checked; when
  /// `service` is in none of them, it is described anew. Do it once, not for each call: it costs a lookup.
  ///
  /// \param service  the full name, "package.Service".
  /// \param name     the method's own name.
  ///
  /// Errors: throws a system_error with 22 and a text that names what is wrong: no such method in a known
  /// service, other messages, a streaming method, what can be no name.
  method(std::string_view service, std::string_view name)
      : descriptor_(&detail::find_method(service, name, *Request::descriptor(), *Response::descriptor())) {}

  /// Its descriptor, of protobuf's generated pool or one of its own.
  const google::protobuf::MethodDescriptor& descriptor() const noexcept { return *descriptor_; }
  /// The same.
  explicit(false) operator const google::protobuf::MethodDescriptor&() const noexcept { return *descriptor_; }

  /// Starts a call whose response goes to the handler: `void(error_code, Response)`.
  template <std::derived_from<channel_base> Channel, detail::request_argument<Request> Argument,
            detail::token_argument CompletionToken>
  auto async_call(Channel& channel, Argument&& request, CompletionToken&& token) const {
    return channel.template start<Response>(*descriptor_, nullptr, std::forward<Argument>(request), nullptr,
                                            std::forward<CompletionToken>(token));
  }
  /// The same with a controller.
  template <std::derived_from<channel_base> Channel, detail::request_argument<Request> Argument,
            detail::token_argument CompletionToken>
  auto async_call(Channel& channel, controller& control, Argument&& request, CompletionToken&& token) const {
    return channel.template start<Response>(*descriptor_, &control, std::forward<Argument>(request), nullptr,
                                            std::forward<CompletionToken>(token));
  }

  /// The same with the caller's response: `void(error_code)`.
  template <std::derived_from<channel_base> Channel, detail::request_argument<Request> Argument,
            typename CompletionToken>
  auto async_call(Channel& channel, Argument&& request, Response& response, CompletionToken&& token) const {
    return channel.template start<void>(*descriptor_, nullptr, std::forward<Argument>(request), &response,
                                        std::forward<CompletionToken>(token));
  }
  /// The same with a controller.
  template <std::derived_from<channel_base> Channel, detail::request_argument<Request> Argument,
            typename CompletionToken>
  auto async_call(Channel& channel, controller& control, Argument&& request, Response& response,
                  CompletionToken&& token) const {
    return channel.template start<void>(*descriptor_, &control, std::forward<Argument>(request), &response,
                                        std::forward<CompletionToken>(token));
  }

  /// Calls and waits; throws call_error, or stores the error in `ec` and returns an empty response.
  template <std::derived_from<channel_base> Channel>
  Response call(Channel& channel, const Request& request) const {
    return detail::call_returning<Response>(channel, *descriptor_, request);
  }
  /// The same; the error goes to `ec`.
  template <std::derived_from<channel_base> Channel>
  Response call(Channel& channel, const Request& request, error_code& ec) const {
    return detail::call_returning<Response>(channel, *descriptor_, request, ec);
  }
  /// The same with a controller.
  template <std::derived_from<channel_base> Channel>
  Response call(Channel& channel, controller& control, const Request& request) const {
    return detail::call_returning<Response>(channel, *descriptor_, control, request);
  }
  /// The same with a controller; the error goes to `ec`.
  template <std::derived_from<channel_base> Channel>
  Response call(Channel& channel, controller& control, const Request& request, error_code& ec) const {
    return detail::call_returning<Response>(channel, *descriptor_, control, request, ec);
  }

  /// The same with the caller's response.
  template <std::derived_from<channel_base> Channel>
  void call(Channel& channel, const Request& request, Response& response) const {
    channel.call(*descriptor_, request, response);
  }
  /// The same; the error goes to `ec`.
  template <std::derived_from<channel_base> Channel>
  void call(Channel& channel, const Request& request, Response& response, error_code& ec) const {
    channel.call(*descriptor_, request, response, ec);
  }
  /// The same with a controller.
  template <std::derived_from<channel_base> Channel>
  void call(Channel& channel, controller& control, const Request& request, Response& response) const {
    channel.call(*descriptor_, control, request, response);
  }
  /// The same with a controller; the error goes to `ec`.
  template <std::derived_from<channel_base> Channel>
  void call(Channel& channel, controller& control, const Request& request, Response& response,
            error_code& ec) const {
    channel.call(*descriptor_, control, request, response, ec);
  }

 private:
  const google::protobuf::MethodDescriptor* descriptor_;
};

}  // namespace braid
