#pragma once

/// \file
/// How the library keeps completion handlers and calls them: memory, executor, cancellation slot.

#include <braid/cancellation.hpp>
#include <braid/config.hpp>
#include <braid/coroutine.hpp>
#include <braid/error.hpp>

#include <boost/asio/associated_allocator.hpp>
#include <boost/asio/associated_cancellation_slot.hpp>
#include <boost/asio/associated_executor.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/execution/blocking.hpp>
#include <boost/asio/execution/executor.hpp>
#include <boost/asio/execution/outstanding_work.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/prefer.hpp>
#include <boost/asio/require.hpp>
#include <boost/asio/system_executor.hpp>

#include <cstddef>
#include <memory>
#include <new>
#include <tuple>
#include <type_traits>
#include <utility>

namespace braid {
namespace detail {

/// Memory from a cache of the calling thread; it may be given back on any thread.
void* pool_allocate(std::size_t size);
void pool_deallocate(void* memory, std::size_t size) noexcept;

/// The allocator of nodes that live as long as one call.
template <typename T>
struct pool_allocator {
  using value_type = T;
  pool_allocator() = default;
  template <typename U>
  explicit(false) pool_allocator(const pool_allocator<U>& /*other*/) noexcept {}
  T* allocate(std::size_t n) {
    if constexpr (over_aligned) {
      return std::allocator<T>().allocate(n);
    } else {
      return static_cast<T*>(pool_allocate(n * sizeof(T)));
    }
  }
  void deallocate(T* p, std::size_t n) noexcept {
    if constexpr (over_aligned) {
      std::allocator<T>().deallocate(p, n);
    } else {
      pool_deallocate(p, n * sizeof(T));
    }
  }
  friend bool operator==(const pool_allocator&, const pool_allocator&) noexcept { return true; }

 private:
  static constexpr bool over_aligned = alignof(T) > __STDCPP_DEFAULT_NEW_ALIGNMENT__;
};
template <>
struct pool_allocator<void> {
  using value_type = void;
};

/// A weak name of a node of some loop's tree, through which any thread may cancel it.
///
/// Thread safety: cancel() may be called from any thread; bind() and release() on the node's loop.
class cancel_handle;
std::shared_ptr<cancel_handle> make_cancel_handle();
/// How much a request to cancel may undo.
enum class cancel_extent : bool {
  whatever_was_done,  ///< terminal, partial
  only_if_unsent,     ///< total: a call ends only while no byte of it was sent
};
void request_cancel(const std::shared_ptr<cancel_handle>& handle,
                    cancel_extent extent = cancel_extent::whatever_was_done) noexcept;

/// Lets `slot` cancel what `handle` names. The slot is emitted on the executor that the completion handler is
/// called on, as Asio wants it; the handle carries it over to the call's loop.
template <typename Slot>
std::shared_ptr<cancel_handle> connect_slot(Slot slot) {
  if (!slot.is_connected()) return nullptr;
  auto handle = make_cancel_handle();
  slot.assign([handle](boost::asio::cancellation_type type) {
    using boost::asio::cancellation_type;
    const auto kept = handle;  // should the emission end the call and clear the slot
    if (type == cancellation_type::none) return;
    const bool strong =
        (type & (cancellation_type::terminal | cancellation_type::partial)) != cancellation_type::none;
    request_cancel(kept, strong ? cancel_extent::whatever_was_done : cancel_extent::only_if_unsent);
  });
  return handle;
}

template <typename Handler>
struct is_await_handler : std::false_type {};
template <typename... Args>
struct is_await_handler<await_handler<Args...>> : std::true_type {};

/// A handler on its way to its executor, with its results, in memory of its own allocator.
template <typename Handler, typename... Args>
class completion_hop {
 public:
  using allocator_type = boost::asio::associated_allocator_t<Handler>;

  completion_hop(Handler handler, Args... args)
      : handler_(std::move(handler)),
        slot_(boost::asio::get_associated_cancellation_slot(handler_)),
        results_(std::move(args)...) {}

  allocator_type get_allocator() const noexcept { return boost::asio::get_associated_allocator(handler_); }

  void operator()() {
    slot_.clear();  // on the handler's executor, as the slot belongs to that thread
    std::apply([this](auto&... result) { std::move(handler_)(std::move(result)...); }, results_);
  }

 private:
  Handler handler_;
  boost::asio::associated_cancellation_slot_t<Handler> slot_;
  std::tuple<Args...> results_;
};

/// For what a handler of the program has thrown: it leaves the loop's run(), as from any handler of Asio,
/// once the library has done what it was about.
void throw_from_run(const loop_executor& home) noexcept;

template <typename Handler, typename... Args>
void call_or_dispatch(Handler handler, const loop_executor& home, Args... args) {
  auto executor = boost::asio::get_associated_executor(handler, home);
  if constexpr (std::is_same_v<decltype(executor), loop_executor>) {
    if (executor == home) {
      boost::asio::get_associated_cancellation_slot(handler).clear();
      std::move(handler)(std::move(args)...);
      return;
    }
  }
  boost::asio::dispatch(executor, completion_hop<Handler, Args...>(std::move(handler), std::move(args)...));
}

/// Calls `handler` on its associated executor: at once where that is the loop's own, else by dispatch. On the
/// loop's base stack only.
template <typename Handler, typename... Args>
void complete_on_loop(Handler handler, const loop_executor& home, Args... args) {
  if constexpr (is_await_handler<Handler>::value) {
    handler(std::move(args)...);
  } else {
    try {
      call_or_dispatch(std::move(handler), home, std::move(args)...);
    } catch (...) {
      throw_from_run(home);
    }
  }
}

/// Gives `executor` work as long as the result lives. Once that has gone, the executor's context may go: the
/// result is the tracking executor alone, not Asio's work guard, whose second executor of a strand would
/// still refer to the context then.
template <typename Executor>
auto track_work(const Executor& executor) {
  if constexpr (boost::asio::execution::is_executor<Executor>::value) {
    return boost::asio::prefer(executor, boost::asio::execution::outstanding_work.tracked);
  } else {
    return boost::asio::executor_work_guard<Executor>(executor);
  }
}

/// Posts a call of `handler` to its own executor, else to `fallback`.
template <typename Handler, typename Executor, typename... Args>
void complete_by_post(Handler handler, const Executor& fallback, Args... args) {
  namespace asio = boost::asio;
  auto executor = asio::get_associated_executor(handler, fallback);
  completion_hop<Handler, Args...> hop(std::move(handler), std::move(args)...);
  using executor_type = decltype(executor);
  if constexpr (asio::execution::is_executor<executor_type>::value &&
                !asio::can_require<executor_type, asio::execution::blocking_t::never_t>::value) {
    // The executor of an any_completion_handler can only dispatch, which must not happen in here.
    asio::post(fallback, [work = track_work(executor), hop = std::move(hop)]() mutable {
      asio::dispatch(work, std::move(hop));
    });
  } else {
    asio::post(executor, std::move(hop));
  }
}

/// Calls `handler` where the loop is gone: posted to the handler's own executor, else to the system's.
template <typename Handler, typename... Args>
void complete_elsewhere(Handler handler, Args... args) {
  complete_by_post(std::move(handler), boost::asio::system_executor(), std::move(args)...);
}

/// A completion handler of some type, called once.
template <typename... Args>
class erased_completion {
 public:
  virtual ~erased_completion() = default;
  /// On the loop's base stack, in a turn. One that owns itself is destroyed before its handler runs.
  virtual void complete(const loop_executor& home, Args... args) = 0;
  /// On any thread, when there is no loop to complete on. The same.
  virtual void complete_without_loop(Args... args) = 0;
};

/// Keeps the executor of `Handler` from running out of work until the handler is called.
template <typename Handler, typename Executor = boost::asio::associated_executor_t<Handler>>
struct completion_work {
  explicit completion_work(const Handler& handler)
      : tracked(track_work(boost::asio::get_associated_executor(handler))) {}
  decltype(track_work(std::declval<const Executor&>())) tracked;
};
template <typename Handler>
struct completion_work<Handler, boost::asio::system_executor> {
  explicit completion_work(const Handler& /*handler*/) noexcept {}
};
// A loop waits for its coroutines by itself.
template <typename... Args, typename Executor>
struct completion_work<await_handler<Args...>, Executor> {
  explicit completion_work(const await_handler<Args...>& /*handler*/) noexcept {}
};

template <typename Handler, typename... Args>
class handler_completion final : public erased_completion<Args...> {
  using allocator =
      typename std::allocator_traits<boost::asio::associated_allocator_t<Handler, pool_allocator<void>>>::
          template rebind_alloc<handler_completion>;

 public:
  static handler_completion* create(Handler&& handler) {
    allocator memory(boost::asio::get_associated_allocator(handler, pool_allocator<void>()));
    handler_completion* place = std::allocator_traits<allocator>::allocate(memory, 1);
    return ::new (place) handler_completion(std::move(handler));
  }
  void complete(const loop_executor& home, Args... args) override {
    [[maybe_unused]] const auto work = std::move(work_);  // until the handler is on its executor
    Handler handler = take();
    complete_on_loop(std::move(handler), home, std::move(args)...);
  }
  void complete_without_loop(Args... args) override {
    [[maybe_unused]] const auto work = std::move(work_);
    Handler handler = take();
    complete_elsewhere(std::move(handler), std::move(args)...);
  }

 private:
  explicit handler_completion(Handler&& handler) : work_(handler), handler_(std::move(handler)) {}

  // The memory goes back before the handler runs, so that what the handler starts can have it.
  Handler take() {
    Handler handler(std::move(handler_));
    allocator memory(boost::asio::get_associated_allocator(handler, pool_allocator<void>()));
    this->~handler_completion();
    std::allocator_traits<allocator>::deallocate(memory, this, 1);
    return handler;
  }

  [[no_unique_address]] completion_work<Handler> work_;  // first, so that it goes last
  Handler handler_;
};

}  // namespace detail
}  // namespace braid
