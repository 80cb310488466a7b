#pragma once

/// \file
/// Stackful coroutines: spawn() starts one, yield_context is the completion token that suspends it.

#include <braid/cancellation.hpp>
#include <braid/config.hpp>
#include <braid/error.hpp>
#include <braid/runtime.hpp>

#include <boost/asio/associated_executor.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>

#include <chrono>
#include <cstddef>
#include <exception>
#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>

namespace braid {

class yield_context;

namespace detail {

class coroutine;

using loop_executor = boost::asio::io_context::executor_type;

/// One await, in the frame of the coroutine that waits. The handler refers to it and is called at most once.
class await_base {
 public:
  explicit await_base(const yield_context& yield);
  await_base(const await_base&) = delete;
  await_base& operator=(const await_base&) = delete;

  /// False when nothing must be started: the coroutine has been cancelled already and the operation would
  /// report that, or its loop ends.
  bool may_start(bool reports_error = true) const noexcept;
  /// Instead of starting: counts the refusal. A coroutine that ignores many in a row is slowed down and gets
  /// `operation_aborted` thrown whatever its token, as it would else spin and hold up its loop.
  void refuse();
  /// Suspends the coroutine until the handler was called or destroyed.
  void wait(bool emit_earlier_cancellation) noexcept;

  loop_executor executor() const noexcept;
  boost::asio::cancellation_slot slot() const noexcept;

  void called() noexcept;     ///< The handler was called; on any thread.
  void completed() noexcept;  ///< The same, on the loop.
  /// The same, and the coroutine never goes on inside this function.
  void completed_later() noexcept;
  void dropped() noexcept;  ///< The handler was destroyed without a call; on any thread.

 private:
  struct wake_up;
  void complete_by_post() noexcept;

  enum class state : unsigned char { initiating, waiting, done };

  coroutine& owner_;
  state state_ = state::initiating;
};

template <typename... Args>
class await_frame : public await_base {
 public:
  using await_base::await_base;
  std::optional<std::tuple<std::decay_t<Args>...>> result;
};

/// The completion handler of one await: move-only, with the coroutine's executor and cancellation slot.
template <typename... Args>
class await_handler {
 public:
  using executor_type = loop_executor;
  using cancellation_slot_type = boost::asio::cancellation_slot;

  explicit await_handler(await_frame<Args...>& frame) noexcept : frame_(&frame) {}
  await_handler(await_handler&& other) noexcept : frame_(std::exchange(other.frame_, nullptr)) {}
  await_handler& operator=(await_handler&& other) noexcept {
    await_handler old(std::move(*this));
    frame_ = std::exchange(other.frame_, nullptr);
    return *this;
  }
  ~await_handler() {
    if (frame_) frame_->dropped();
  }

  executor_type get_executor() const noexcept { return frame_->executor(); }
  cancellation_slot_type get_cancellation_slot() const noexcept { return frame_->slot(); }

  // Until called() the coroutine does not look at the result, so that any thread may store it.
  void operator()(Args... args) {
    frame_->result.emplace(std::move(args)...);
    std::exchange(frame_, nullptr)->called();
  }

 private:
  await_frame<Args...>* frame_;
};

}  // namespace detail

/// The completion token that suspends the running coroutine until an asynchronous operation has completed.
///
/// What it does: works with any operation of Asio or of this library. The operation's results are returned:
/// nothing, the value, or a tuple of several. A leading `error_code` is thrown as
/// `boost::system::system_error` unless `yield[ec]` takes it. A leading `std::exception_ptr` is rethrown.
///
/// Cancellation: while it waits, the operation's slot is connected to the coroutine's node and gets
/// `terminal`. After the coroutine was cancelled, an operation that reports an error_code is not started but
/// ends with `operation_aborted`; see shield for clean-up code. From the 17th such refusal in a row on,
/// `operation_aborted` is thrown even with `yield[ec]`, after 1 ms: else a loop that ignores `ec` would spin
/// for ever.
///
/// Errors: an operation whose handler is destroyed without a call ends with `operation_aborted`. Use outside
/// its own coroutine throws `std::logic_error`.
///
/// Object lifetimes: valid until the coroutine's function returns. Do not suspend in destructors, in
/// `noexcept` functions, under a lock, or in a function that Asio runs inline on this stack
/// (`dispatch(strand, f)`).
///
/// Thread safety: belongs to its coroutine.
class yield_context {
 public:
  /// The executor of a loop.
  using executor_type = detail::loop_executor;

  /// For the library's own layers.
  explicit yield_context(detail::coroutine& owner) noexcept : owner_(&owner) {}

  /// A copy that stores the error in `ec` instead of throwing it. `ec` must outlive the await.
  yield_context operator[](error_code& ec) const noexcept {
    yield_context copy(*this);
    copy.error_ = &ec;
    return copy;
  }

  /// The executor of the coroutine's loop.
  executor_type get_executor() const noexcept;

  /// Why this coroutine was cancelled; cancel_cause::none when it was not.
  cancel_cause cancelled() const noexcept;

  /// The instant at which the call that this coroutine serves ends, inside a shield that at which the shield
  /// does; time_point::max() when there is none.
  std::chrono::steady_clock::time_point deadline() const noexcept;

  /// The time on the coroutine's loop: real, or virtual in a simulation.
  std::chrono::steady_clock::time_point now() const noexcept;

  /// For the library's own layers.
  detail::coroutine& owner() const noexcept { return *owner_; }
  /// For the library's own layers.
  error_code* error_target() const noexcept { return error_; }

 private:
  detail::coroutine* owner_;
  error_code* error_ = nullptr;
};

/// The yield_context of the coroutine that calls this, for code that was not handed one: the method of a
/// generated service, a function deep below a handler.
///
/// Errors: throws `std::logic_error` outside of a coroutine of braid: on a foreign thread, on a loop's base
/// stack (callbacks), in coroutines of Asio.
///
/// Thread safety: may be called from any thread.
yield_context this_coroutine();

/// Whether the caller runs in a coroutine of braid, so that this_coroutine() would return.
bool in_coroutine() noexcept;

/// Suspends the coroutine for `duration`, measured by the loop's clock with ticks of 1 ms; zero or less does
/// not suspend. Cancelled, before or meanwhile: throws `operation_aborted`, or stores it with `yield[ec]`.
void sleep_for(std::chrono::nanoseconds duration, yield_context yield);

/// Lets a cancelled coroutine run operations for its clean-up.
///
/// What it does: while a shield lives, the coroutine waits as if it had not been cancelled, until `limit` has
/// passed: then what it waits for is cancelled again. Shields nest: an inner one also ends with the one
/// around it. Calls and coroutines that are started inside are as long below the shield; those that it leaves
/// running are the coroutine's, and cancelled at once if that is.
///
/// Errors: throws `std::logic_error` outside of the coroutine of `yield`.
///
/// Object lifetimes: a local variable of the coroutine.
class shield {
 public:
  /// `limit`: how long the clean-up may take; it has no off value, so that a shutdown cannot hang on it.
  shield(yield_context yield, std::chrono::nanoseconds limit);
  shield(const shield&) = delete;
  shield& operator=(const shield&) = delete;
  ~shield();

 private:
  struct state;
  std::unique_ptr<state> state_;
};

namespace detail {

[[noreturn]] void throw_await_error(const error_code& ec);

template <typename... Args>
struct await_traits;  // the shapes of completion signatures

template <>
struct await_traits<> {
  static constexpr bool has_error = false;
  static void take(await_frame<>& frame, const yield_context&) {
    if (!frame.result) throw_await_error(boost::asio::error::operation_aborted);
  }
};

/// Stores or throws `ec`.
inline void deliver_error(const error_code& ec, const yield_context& yield) {
  if (yield.error_target()) {
    *yield.error_target() = ec;
  } else if (ec) {
    throw_await_error(ec);
  }
}

template <typename Tuple, std::size_t... I>
auto tail_of(Tuple&& all, std::index_sequence<I...>) {
  if constexpr (sizeof...(I) == 0) {
    return;
  } else if constexpr (sizeof...(I) == 1) {
    return (std::get<I + 1>(std::move(all)), ...);
  } else {
    return std::make_tuple(std::get<I + 1>(std::move(all))...);
  }
}

template <typename... Rest>
struct await_traits<error_code, Rest...> {
  static constexpr bool has_error = true;
  static auto take(await_frame<error_code, Rest...>& frame, const yield_context& yield) {
    if (!frame.result) {
      const error_code aborted(boost::asio::error::operation_aborted);
      if constexpr ((std::is_default_constructible_v<Rest> && ...)) {
        frame.result.emplace(aborted, Rest()...);
      } else {
        throw_await_error(aborted);  // there is no value that could be returned beside the code
      }
    }
    deliver_error(std::get<0>(*frame.result), yield);
    return tail_of(std::move(*frame.result), std::index_sequence_for<Rest...>{});
  }
};

template <typename... Rest>
struct await_traits<std::exception_ptr, Rest...> {
  static constexpr bool has_error = false;
  static auto take(await_frame<std::exception_ptr, Rest...>& frame, const yield_context&) {
    if (!frame.result) throw_await_error(boost::asio::error::operation_aborted);
    if (auto thrown = std::get<0>(*frame.result)) std::rethrow_exception(thrown);
    return tail_of(std::move(*frame.result), std::index_sequence_for<Rest...>{});
  }
};

template <typename First, typename... Rest>
struct await_traits<First, Rest...> {
  static constexpr bool has_error = false;
  static auto take(await_frame<First, Rest...>& frame, const yield_context&) {
    if (!frame.result) throw_await_error(boost::asio::error::operation_aborted);
    if constexpr (sizeof...(Rest) == 0) {
      return std::get<0>(std::move(*frame.result));
    } else {
      return std::move(*frame.result);
    }
  }
};

}  // namespace detail
}  // namespace braid

/// \cond
// One specialisation for every completion signature; the shapes are told apart by detail::await_traits.
template <typename... Args>
class boost::asio::async_result<braid::yield_context, void(Args...)> {
  using traits = braid::detail::await_traits<std::decay_t<Args>...>;
  using frame_type = braid::detail::await_frame<std::decay_t<Args>...>;
  using handler_type = braid::detail::await_handler<std::decay_t<Args>...>;

 public:
  using return_type =
      decltype(traits::take(std::declval<frame_type&>(), std::declval<const braid::yield_context&>()));

  template <typename Initiation, typename... InitArgs>
  static return_type initiate(Initiation&& initiation, const braid::yield_context& yield,
                              InitArgs&&... args) {
    frame_type frame(yield);
    if (!frame.may_start(traits::has_error)) {
      frame.refuse();
      return traits::take(frame, yield);
    }
    try {
      std::forward<Initiation>(initiation)(handler_type(frame), std::forward<InitArgs>(args)...);
    } catch (...) {
      frame.wait(false);  // the handler may have been moved away before the initiation threw
      throw;
    }
    frame.wait(!traits::has_error);
    return traits::take(frame, yield);
  }
};
/// \endcond
