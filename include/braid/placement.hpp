#pragma once

/// \file
/// Where the handlers of a server run.

#include <braid/config.hpp>

#include <boost/asio/any_io_executor.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace braid {

/// Where the handler of a method runs.
///
/// What it does: by default a handler runs on the loop that read the request, at once and without a switch.
/// A handler that computes for long, or blocks, belongs elsewhere: then it holds up neither that loop's other
/// calls nor their deadlines. The answer goes back to the reading loop by itself.
///
/// Object lifetimes: a value. A thread_pool or another context must outlive the server that uses it.
///
/// Thread safety: several threads may read one object at once, and each may change its own.
class placement {
 public:
  /// The loop that read the request.
  placement() = default;
  /// The same by its name.
  static placement reading_loop() { return {}; }

  /// Spread over all loops of the server's runtime, one call after the other. For handlers that compute more
  /// than a loop's other calls can wait for, when few connections bring many calls.
  static placement spread() {
    placement made;
    made.kind_ = kind::spread;
    return made;
  }

  /// The loop of that index, which must be less than the runtime's loop_count().
  static placement loop(std::size_t index) {
    placement made;
    made.kind_ = kind::loop;
    made.index_ = index;
    return made;
  }

  /// Any executor: a thread_pool's, a strand, an io_context of the program's own. Functions run on its
  /// threads, where they may block; a stackful handler needs a loop and is refused when it is added.
  static placement on(boost::asio::any_io_executor executor) {
    placement made;
    made.kind_ = kind::executor;
    made.executor_ = std::move(executor);
    return made;
  }

  /// The executor of a `boost::asio::thread_pool` or an `io_context`: `{.run_on = pool}`.
  template <typename Context>
  requires requires(Context& context) {
    { context.get_executor() } -> std::convertible_to<boost::asio::any_io_executor>;
  }
  explicit(false) placement(Context& context) : placement(on(context.get_executor())) {}

  /// The kinds of place.
  enum class kind : std::uint8_t { reading_loop, spread, loop, executor };
  /// Which of them it is.
  kind where() const noexcept { return kind_; }
  /// Of loop().
  std::size_t index() const noexcept { return index_; }
  /// Of on().
  const boost::asio::any_io_executor& executor() const noexcept { return executor_; }

 private:
  kind kind_ = kind::reading_loop;
  std::size_t index_ = 0;
  boost::asio::any_io_executor executor_;
};

}  // namespace braid
