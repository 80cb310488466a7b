#pragma once

/// \file
/// How a call hands its result to a completion handler of the user's.

#include <braid/completion.hpp>
#include <braid/config.hpp>
#include <braid/controller.hpp>
#include <braid/error.hpp>

#include <cstdint>
#include <exception>
#include <optional>
#include <type_traits>
#include <utility>

// Tokens are told apart by their types alone, so that a program that uses none of them need not include them.
namespace boost::asio {
template <typename Executor>
struct use_awaitable_t;
template <typename Allocator>
class use_future_t;
template <typename Executor>
class basic_yield_context;
template <typename T, typename Executor>
class executor_binder;
template <typename T, typename Allocator>
class allocator_binder;
template <typename T, typename CancellationSlot>
class cancellation_slot_binder;
}  // namespace boost::asio

namespace braid::detail {

/// The call_error that says what `failed` says.
call_error describe_failure(const controller& failed);

/// Who is told of the end of a call.
class call_completion : public erased_completion<error_code> {
 public:
  /// The call failed as `how` says. complete() or complete_without_loop() follows, on the same thread.
  virtual void failed(const controller& /*how*/) noexcept {}
};

/// What a completion token makes of an error code.
enum class token_errors : std::uint8_t {
  passed_on,    ///< A callback, as_tuple, redirect_error, deferred: the handler gets the code.
  kept_thrown,  ///< use_awaitable, use_future: an exception for later, which may as well be a call_error.
  thrown_here,  ///< Stackful coroutines: an exception out of the initiating function.
};

template <typename Token>
struct errors_of_token : std::integral_constant<token_errors, token_errors::passed_on> {};
template <typename Executor>
struct errors_of_token<boost::asio::use_awaitable_t<Executor>>
    : std::integral_constant<token_errors, token_errors::kept_thrown> {};
template <typename Allocator>
struct errors_of_token<boost::asio::use_future_t<Allocator>>
    : std::integral_constant<token_errors, token_errors::kept_thrown> {};
template <typename Executor>
struct errors_of_token<boost::asio::basic_yield_context<Executor>>
    : std::integral_constant<token_errors, token_errors::thrown_here> {};
template <>
struct errors_of_token<yield_context> : std::integral_constant<token_errors, token_errors::thrown_here> {};
template <typename Token, typename Executor>
struct errors_of_token<boost::asio::executor_binder<Token, Executor>> : errors_of_token<Token> {};
template <typename Token, typename Allocator>
struct errors_of_token<boost::asio::allocator_binder<Token, Allocator>> : errors_of_token<Token> {};
template <typename Token, typename Slot>
struct errors_of_token<boost::asio::cancellation_slot_binder<Token, Slot>> : errors_of_token<Token> {};

/// The results of a call: `Error`, and its response unless the caller brought one (Response void).
template <typename Error, typename Response>
struct call_results {
  using signature = void(Error, Response);
};
template <typename Error>
struct call_results<Error, void> {
  using signature = void(Error);
};

/// Tells a handler of the end of a call. It holds the response until then, unless the caller does.
///
/// With Error std::exception_ptr the handler gets a call_error, or null for a success.
template <typename Handler, typename Response, typename Error>
class call_handler final : public call_completion {
  using allocator =
      typename std::allocator_traits<boost::asio::associated_allocator_t<Handler, pool_allocator<void>>>::
          template rebind_alloc<call_handler>;
  static constexpr bool has_response = !std::is_void_v<Response>;
  static constexpr bool throws = std::is_same_v<Error, std::exception_ptr>;
  struct nothing {};

 public:
  /// `report`: where to put the details of a failure, unless null.
  static call_handler* create(Handler&& handler, std::optional<call_error>* report) {
    allocator memory(boost::asio::get_associated_allocator(handler, pool_allocator<void>()));
    call_handler* place = std::allocator_traits<allocator>::allocate(memory, 1);
    return ::new (place) call_handler(std::move(handler), report);
  }

  auto& response() noexcept { return response_; }

  void failed(const controller& how) noexcept override {
    if constexpr (throws) {
      thrown_ = std::make_exception_ptr(describe_failure(how));
    } else if (report_) {
      *report_ = describe_failure(how);
    }
  }
  void complete(const loop_executor& home, error_code ec) override {
    finish(ec, [&home](Handler&& handler, auto&&... results) {
      complete_on_loop(std::move(handler), home, std::move(results)...);
    });
  }
  void complete_without_loop(error_code ec) override {
    finish(ec, [](Handler&& handler, auto&&... results) {
      complete_elsewhere(std::move(handler), std::move(results)...);
    });
  }

 private:
  call_handler(Handler&& handler, std::optional<call_error>* report)
      : work_(handler), handler_(std::move(handler)), report_(report) {}

  template <typename Deliver>
  void finish(const error_code& ec, Deliver deliver) {
    [[maybe_unused]] const auto work = std::move(work_);  // until the handler is on its executor
    Error error{};
    if constexpr (throws) {
      error = std::move(thrown_);
    } else {
      error = ec;
    }
    if constexpr (has_response) {
      if (ec) response_.Clear();
      Response response(std::move(response_));
      deliver(take(), std::move(error), std::move(response));
    } else {
      deliver(take(), std::move(error));
    }
  }

  // The memory goes back before the handler runs, so that what the handler starts can have it.
  Handler take() {
    Handler handler(std::move(handler_));
    allocator memory(boost::asio::get_associated_allocator(handler, pool_allocator<void>()));
    this->~call_handler();
    std::allocator_traits<allocator>::deallocate(memory, this, 1);
    return handler;
  }

  [[no_unique_address]] completion_work<Handler> work_;  // first, so that it goes last
  Handler handler_;
  [[no_unique_address]] std::conditional_t<has_response, Response, nothing> response_{};
  [[no_unique_address]] std::conditional_t<throws, std::exception_ptr, nothing> thrown_{};
  std::optional<call_error>* report_;
};

}  // namespace braid::detail
