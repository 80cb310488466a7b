#pragma once

/// \file
/// Starting a coroutine.

#include <braid/completion.hpp>
#include <braid/config.hpp>
#include <braid/coroutine.hpp>
#include <braid/error.hpp>
#include <braid/runtime.hpp>

#include <boost/asio/async_result.hpp>
#include <boost/asio/system_executor.hpp>

#include <cstddef>
#include <memory>
#include <new>
#include <optional>
#include <source_location>
#include <string>
#include <type_traits>
#include <utility>

namespace braid {
namespace detail {

/// What ended a coroutine or a handler by an exception: a code, and a text for the log.
struct failure {
  error_code code;
  std::string text;
};

/// Describes the exception being handled: the code of a system_error, else errc::internal.
failure describe_current_exception();

/// What a coroutine runs, and who is told of its end.
class coroutine_body {
 public:
  coroutine_body() = default;
  coroutine_body(const coroutine_body&) = delete;
  coroutine_body& operator=(const coroutine_body&) = delete;
  virtual ~coroutine_body() = default;

  static void* operator new(std::size_t size) { return pool_allocate(size); }
  static void operator delete(void* memory, std::size_t size) noexcept { pool_deallocate(memory, size); }
  static void* operator new(std::size_t size, std::align_val_t alignment) {
    return ::operator new(size, alignment);
  }
  static void operator delete(void* memory, std::size_t /*size*/, std::align_val_t alignment) noexcept {
    ::operator delete(memory, alignment);
  }

  /// On the coroutine's stack.
  virtual void run(yield_context yield) = 0;
  /// On the coroutine's stack, when run() threw.
  virtual void failed(failure why) noexcept = 0;
  /// On the loop's base stack, after the coroutine's stack went back to the pool. May destroy the body.
  virtual void ended(const loop_executor& home) noexcept = 0;
  /// Instead of all of these: no stack could be had, or the runtime stops. On any thread. May destroy the
  /// body.
  virtual void refused(const error_code& why) noexcept = 0;
  /// The same on its loop, which still runs; perhaps inside the initiating function.
  virtual void refused_on(const loop_executor& /*home*/, const error_code& why) noexcept { refused(why); }
  /// For the log.
  virtual std::string describe() const = 0;
};

/// Starts `body`, which then owns itself, on the runtime's current or sticky loop.
void start_coroutine(const runtime& where, std::unique_ptr<coroutine_body> body,
                     std::shared_ptr<cancel_handle> handle);
/// Starts `body`, which then owns itself, on the loop of `parent`, as a node below it. Inside that coroutine
/// only: throws std::logic_error elsewhere.
void start_coroutine(const yield_context& parent, std::unique_ptr<coroutine_body> body,
                     std::shared_ptr<cancel_handle> handle);

/// Logs what nobody is waiting to hear.
void report_failure(const failure& why, const std::string& who) noexcept;
std::string describe_location(const std::source_location& where);

template <typename Function>
using spawn_result = std::invoke_result_t<Function&, yield_context>;

template <typename Result>
struct spawn_signature {
  using type = void(error_code, Result);
};
template <>
struct spawn_signature<void> {
  using type = void(error_code);
};

/// A spawned function and the handler that waits for its end.
template <typename Function, typename Handler>
class spawned final : public coroutine_body {
  using result_type = spawn_result<Function>;
  static constexpr bool has_value = !std::is_void_v<result_type>;
  struct nothing {};

 public:
  spawned(Function function, Handler handler, const std::source_location& where)
      : work_(handler),
        function_(std::in_place, std::move(function)),
        handler_(std::move(handler)),
        where_(where) {}

  void run(yield_context yield) override {
    if constexpr (has_value) {
      result_.emplace((*function_)(yield));
    } else {
      (*function_)(yield);
    }
    function_.reset();  // what it owns ends inside the coroutine
  }
  void failed(failure why) noexcept override {
    function_.reset();
    code_ = why.code;
    report_failure(why, describe());
  }
  void ended(const loop_executor& home) noexcept override {
    const std::unique_ptr<spawned> self(this);
    if constexpr (has_value) {
      complete_on_loop(std::move(handler_), home, code_, value());
    } else {
      complete_on_loop(std::move(handler_), home, code_);
    }
  }
  void refused(const error_code& why) noexcept override { refuse(boost::asio::system_executor(), why); }
  void refused_on(const loop_executor& home, const error_code& why) noexcept override { refuse(home, why); }
  std::string describe() const override { return describe_location(where_); }

 private:
  template <typename Executor>
  void refuse(const Executor& fallback, const error_code& why) noexcept {
    const std::unique_ptr<spawned> self(this);
    if constexpr (has_value) {
      complete_by_post(std::move(handler_), fallback, error_code(why), value());
    } else {
      complete_by_post(std::move(handler_), fallback, error_code(why));
    }
  }
  auto value() { return result_ ? std::move(*result_) : result_type(); }

  [[no_unique_address]] completion_work<Handler> work_;  // first, so that it goes last
  std::optional<Function> function_;
  Handler handler_;
  std::source_location where_;
  error_code code_;
  std::optional<std::conditional_t<has_value, result_type, nothing>> result_;
};

struct ignore_result {
  template <typename... Args>
  void operator()(Args&&...) const noexcept {}
};

// What a token like `deferred` may keep for later.
struct runtime_origin {
  const runtime* where;
  void start(std::unique_ptr<coroutine_body> body, std::shared_ptr<cancel_handle> handle) const {
    start_coroutine(*where, std::move(body), std::move(handle));
  }
};
struct parent_origin {
  yield_context parent;
  void start(std::unique_ptr<coroutine_body> body, std::shared_ptr<cancel_handle> handle) const {
    start_coroutine(parent, std::move(body), std::move(handle));
  }
};

template <typename Origin, typename Function, typename Token>
auto spawn_on(const Origin& origin, Function&& function, Token&& token,
              const std::source_location& location) {
  using function_type = std::decay_t<Function>;
  return boost::asio::async_initiate<Token, typename spawn_signature<spawn_result<function_type>>::type>(
      [origin, location](auto handler, function_type body) {
        auto handle = connect_slot(boost::asio::get_associated_cancellation_slot(handler));
        origin.start(std::make_unique<spawned<function_type, decltype(handler)>>(
                         std::move(body), std::move(handler), location),
                     std::move(handle));
      },
      token, std::forward<Function>(function));
}

}  // namespace detail

/// Starts a coroutine.
///
/// What it does: runs `function(yield_context)` in a coroutine on a loop of `where`: the current loop when
/// called on one of its threads, else the calling thread's own loop (always the same for that thread).
///
/// Parameters: `function` is moved into the coroutine and destroyed there. `token`: any completion token;
/// without one nobody waits, and an exception that leaves `function` is logged.
///
/// Completion signature: `void(error_code)`, or `void(error_code, T)` when `function` returns a T, which must
/// be default constructible. The code is that of a `system_error` that left `function`, errc::internal for
/// any other exception (both are logged with their text; `operation_aborted` after a cancellation only at
/// level debug), 12 when there was no memory for a stack, 125 when the runtime stops.
///
/// Executor: `function` starts and stays on its loop, never inside the initiating function. The handler is
/// called on its associated executor, by default that loop, outside of the coroutine. When the loop is gone
/// it is posted to its own executor, else to the system's. An executor of its own has work until then.
///
/// Allocator: function and handler are kept in the library's pool; the handler's associated allocator gives
/// the memory for its way to another executor.
///
/// Cancellation: `terminal`, `partial` and `total` cancel the coroutine's node with cancel_cause::user: what
/// it waits for is cancelled, and it ends by itself.
///
/// Object lifetimes: what `function` refers to must live until it has returned. The runtime may be destroyed
/// meanwhile: its destructor cancels the coroutine and waits for its end.
///
/// Thread safety: may be called from any thread.
template <typename Function, typename Token>
auto spawn(const runtime& where, Function&& function, Token&& token,
           const std::source_location& location = std::source_location::current()) {
  return detail::spawn_on(detail::runtime_origin{&where}, std::forward<Function>(function),
                          std::forward<Token>(token), location);
}
/// The same without a token: nobody waits.
template <typename Function>
void spawn(const runtime& where, Function&& function,
           const std::source_location& location = std::source_location::current()) {
  detail::spawn_on(detail::runtime_origin{&where}, std::forward<Function>(function), detail::ignore_result(),
                   location);
}

/// Starts a coroutine on the loop of another, below it in the cancellation tree and with its deadline, to run
/// once the parent suspends. It may outlive `parent`; it is then below what the parent was below, such as a
/// server call. Throws `std::logic_error` outside of the parent.
template <typename Function, typename Token>
requires(!std::is_convertible_v<Token, std::source_location>) auto spawn(
    yield_context parent, Function&& function, Token&& token,
    const std::source_location& location = std::source_location::current()) {
  return detail::spawn_on(detail::parent_origin{parent}, std::forward<Function>(function),
                          std::forward<Token>(token), location);
}
/// The same without a token: nobody waits.
template <typename Function>
void spawn(yield_context parent, Function&& function,
           const std::source_location& location = std::source_location::current()) {
  detail::spawn_on(detail::parent_origin{parent}, std::forward<Function>(function), detail::ignore_result(),
                   location);
}

}  // namespace braid
