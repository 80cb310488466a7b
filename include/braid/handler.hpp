#pragma once

/// \file
/// The styles in which a handler may be written.

#include <braid/config.hpp>
#include <braid/coroutine.hpp>
#include <braid/interceptor.hpp>
#include <braid/placement.hpp>

#include <boost/asio/awaitable.hpp>
#include <google/protobuf/message.h>
#include <google/protobuf/stubs/callback.h>

#include <functional>
#include <memory>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace braid {

class server_call;

namespace detail {

/// What a call_done reports to.
class done_target {
 public:
  virtual void done() noexcept = 0;

 protected:
  ~done_target() = default;
};

}  // namespace detail

/// Answers the call of a callback handler: `void(server_call&, const Request&, Response&, call_done)`.
///
/// What it does: calling it says that response and server_call are complete; both, and the request, are valid
/// until then. A second call is ignored and logged. When the last copy is destroyed without a call, nobody
/// can answer any more: the call then ends at its deadline or with its connection, and is logged.
///
/// Thread safety: any thread may call it, once; copies may be used from several threads at once.
class call_done {
 public:
  /// For the library's own layers.
  explicit call_done(std::shared_ptr<detail::done_target> target) noexcept : target_(std::move(target)) {}
  /// Answers; see the class.
  void operator()() const noexcept { target_->done(); }

 private:
  std::shared_ptr<detail::done_target> target_;
};

/// The settings of a method, or of all methods of a service.
struct method_options {
  /// Where the handler runs.
  placement run_on{};

  /// Functions around the method's calls, within those of server_options::interceptors. Empty: none.
  std::vector<server_interceptor> interceptors{};
};

namespace detail {

using google::protobuf::Message;

// Handlers with their types erased, by style.
using generated_handler =
    std::function<void(server_call&, const Message&, Message&, google::protobuf::Closure& done)>;
using plain_handler = std::function<void(server_call&, const Message&, Message&)>;
using stackful_handler = std::function<void(server_call&, const Message&, Message&, yield_context)>;
using awaitable_handler = std::function<boost::asio::awaitable<void>(server_call&, const Message&, Message&)>;
using callback_handler = std::function<void(server_call&, const Message&, Message&, call_done)>;

using any_handler =
    std::variant<plain_handler, stackful_handler, awaitable_handler, callback_handler, generated_handler>;

template <typename Handler, typename Request, typename Response>
struct handler_shape {
  template <typename... Last>
  using result_of = std::invoke_result<Handler&, server_call&, const Request&, Response&, Last...>;
  template <typename... Last>
  static constexpr bool takes =
      std::is_invocable_v<Handler&, server_call&, const Request&, Response&, Last...>;

  template <typename Result, typename... Last>
  static constexpr bool returns() {
    if constexpr (takes<Last...>) {
      return std::is_same_v<typename result_of<Last...>::type, Result>;
    } else {
      return false;
    }
  }

  static constexpr bool three = takes<>;
  static constexpr bool yields = takes<yield_context>;
  static constexpr bool calls_back = takes<call_done>;
  static constexpr bool plain = returns<void>();
  static constexpr bool awaitable = returns<boost::asio::awaitable<void>>();
  static constexpr bool stackful = returns<void, yield_context>();
  static constexpr bool callback = returns<void, call_done>();
};

/// Erases the types of a handler of any style, or says what is wrong with it.
template <typename Request, typename Response, typename Handler>
any_handler erase_handler(Handler handler) {
  using shape = handler_shape<Handler, Request, Response>;
  static_assert(shape::three || shape::yields || shape::calls_back,
                "braid: a handler is a function of (server_call&, const Request&, Response&), with a "
                "yield_context or a call_done as the fourth argument or with none; Request and Response are "
                "those of the method");
  static_assert(shape::three + shape::yields + shape::calls_back <= 1,
                "braid: the style of this handler is ambiguous: name the type of its fourth argument, "
                "yield_context or call_done");
  static_assert(!shape::three || shape::plain || shape::awaitable,
                "braid: a handler of (server_call&, const Request&, Response&) returns void or "
                "boost::asio::awaitable<void>");
  static_assert(!shape::yields || shape::stackful, "braid: a stackful handler returns void");
  static_assert(!shape::calls_back || shape::callback, "braid: a callback handler returns void");
  if constexpr (shape::plain) {
    return plain_handler(
        [handler = std::move(handler)](server_call& call, const Message& request, Message& response) mutable {
          handler(call, static_cast<const Request&>(request), static_cast<Response&>(response));
        });
  } else if constexpr (shape::awaitable) {
    return awaitable_handler(
        [handler = std::move(handler)](server_call& call, const Message& request, Message& response) mutable {
          return handler(call, static_cast<const Request&>(request), static_cast<Response&>(response));
        });
  } else if constexpr (shape::stackful) {
    return stackful_handler([handler = std::move(handler)](server_call& call, const Message& request,
                                                           Message& response, yield_context yield) mutable {
      handler(call, static_cast<const Request&>(request), static_cast<Response&>(response), yield);
    });
  } else {
    return callback_handler([handler = std::move(handler)](server_call& call, const Message& request,
                                                           Message& response, call_done done) mutable {
      handler(call, static_cast<const Request&>(request), static_cast<Response&>(response), std::move(done));
    });
  }
}

}  // namespace detail
}  // namespace braid
