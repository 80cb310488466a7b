#pragma once

// What the tests of coroutines share: they wait on futures and on lines of the log, never on time.

#include <braid/spawn.hpp>

#include <boost/asio/async_result.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_future.hpp>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace coroutine_fixture {

namespace asio = boost::asio;
using braid::error_code;
using braid::yield_context;

/// The result of a future; a test that hangs ends with a message instead.
template <typename T>
T get(std::future<T> future) {
  if (future.wait_for(std::chrono::seconds(120)) != std::future_status::ready) {
    std::fputs("a test waited in vain\n", stderr);
    std::abort();
  }
  return future.get();
}

/// Collects the log of a runtime.
class log_lines {
 public:
  braid::log_sink sink() {
    return [this](braid::log_level level, std::string_view text, std::span<const braid::log_field>) {
      const std::lock_guard lock(mutex_);
      lines_.emplace_back(std::string(braid::to_string(level)) + ": " + std::string(text));
      changed_.notify_all();
    };
  }
  std::vector<std::string> all() const {
    const std::lock_guard lock(mutex_);
    return lines_;
  }
  std::size_t count(const std::string& part) const {
    const std::lock_guard lock(mutex_);
    return count_locked(part);
  }
  /// Waits until `part` was logged `times`.
  void wait_for(const std::string& part, std::size_t times) const {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, std::chrono::seconds(120), [&] { return count_locked(part) >= times; })) {
      std::fputs("a test waited in vain for the log\n", stderr);
      std::abort();
    }
  }

 private:
  std::size_t count_locked(const std::string& part) const {
    std::size_t found = 0;
    for (const auto& line : lines_) found += line.find(part) != std::string::npos ? 1 : 0;
    return found;
  }

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::vector<std::string> lines_;
};

/// Runs `function` in a coroutine of a runtime of its own and returns what it returns. Checks may be made in
/// it.
template <typename Function>
auto in_coroutine(Function function) {
  log_lines lines;
  braid::runtime rt({.loops = 1, .log = lines.sink()});
  return get(braid::spawn(rt, std::move(function), asio::use_future));
}

/// Starts an operation by hand.
template <typename Signature, typename Initiation, typename Token>
auto initiate(Initiation&& initiation, Token token) {
  return asio::async_initiate<Token, Signature>(std::forward<Initiation>(initiation), token);
}

/// Keeps a handler until it is called or dropped. (The any_completion_handler of Boost 1.81 cannot be
/// assigned.)
template <typename... Args>
class parked {
 public:
  template <typename Handler>
  void park(Handler handler) {
    handler_ = std::make_unique<holder<Handler>>(std::move(handler));
  }
  explicit operator bool() const { return handler_ != nullptr; }
  void call(Args... args) { std::exchange(handler_, nullptr)->call(std::move(args)...); }
  void drop() { handler_.reset(); }
  /// Suspends the coroutine until somebody calls or drops.
  void wait(yield_context yield) {
    initiate<void(Args...)>([this](auto handler) { park(std::move(handler)); }, yield);
  }

 private:
  struct base {
    virtual ~base() = default;
    virtual void call(Args... args) = 0;
  };
  template <typename Handler>
  struct holder final : base {
    explicit holder(Handler h) : handler(std::move(h)) {}
    void call(Args... args) override { std::move(handler)(std::move(args)...); }
    Handler handler;
  };

  std::unique_ptr<base> handler_;
};

/// Where an operation calls its handler.
enum class place { inside, later, elsewhere };

/// An operation of signature Signature that is completed with `values` at `where`.
class operations {
 public:
  template <typename Signature, typename Token, typename... Values>
  auto complete(place where, yield_context home, Token&& token, Values... values) {
    auto start = [this, where, loop = home.get_executor()](auto handler, auto... results) {
      auto call = [handler = std::move(handler), ... results = std::move(results)]() mutable {
        std::move(handler)(std::move(results)...);
      };
      if (where == place::inside) {
        call();
      } else if (where == place::later) {
        asio::post(loop, std::move(call));
      } else {
        asio::post(threads_, std::move(call));
      }
    };
    return asio::async_initiate<Token, Signature>(std::move(start), token, std::move(values)...);
  }

  /// An operation whose handler is destroyed without a call.
  template <typename Signature, typename Token>
  auto drop(place where, yield_context home, Token&& token) {
    auto start = [this, where, loop = home.get_executor()](auto handler) {
      auto keep = [dropped = std::move(handler)]() mutable {
        [[maybe_unused]] auto end = std::move(dropped);
      };
      if (where == place::inside) return;
      if (where == place::later) {
        asio::post(loop, std::move(keep));
      } else {
        asio::post(threads_, std::move(keep));
      }
    };
    return asio::async_initiate<Token, Signature>(std::move(start), token);
  }

  asio::thread_pool& threads() { return threads_; }

 private:
  asio::thread_pool threads_{1};
};

inline constexpr place all_places[] = {place::inside, place::later, place::elsewhere};
inline const error_code aborted = asio::error::operation_aborted;
inline const error_code refused = asio::error::connection_refused;

}  // namespace coroutine_fixture
