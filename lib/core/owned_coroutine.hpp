#pragma once

#include <braid/cancellation.hpp>
#include <braid/coroutine.hpp>
#include <braid/spawn.hpp>

#include "core/loop.hpp"

#include <functional>
#include <string>

namespace braid::core {

/// How a coroutine that somebody waits for came to its end.
enum class coroutine_end {
  returned,
  threw,
  timed_out,  ///< It has been cancelled, and may still run.
  refused,    ///< There was no memory for its stack.
};

/// A coroutine that runs a function of the user's for an owner that does not wait longer than it likes.
///
/// When the owner goes, or the time is over, the coroutine is cancelled and left to itself; what it uses must
/// belong to its function. For rare work: it allocates.
class owned_coroutine {
 public:
  using function = std::function<void(yield_context)>;
  /// Told on the loop's base stack, once, perhaps inside start(). `why` is the text of what was thrown. It
  /// may destroy the owner.
  using listener = std::function<void(coroutine_end end, const std::string& why)>;

  owned_coroutine() = default;
  owned_coroutine(const owned_coroutine&) = delete;
  owned_coroutine& operator=(const owned_coroutine&) = delete;
  ~owned_coroutine() { abandon(cancel_cause::peer_gone); }

  /// Runs `body` on the current loop, which is `home`; calls made in it end at `deadline`. `name`: for logs.
  void start(loop& home, std::string name, time_point deadline, function body, listener ended);
  bool running() const noexcept { return running_ != nullptr; }
  /// Cancels what runs; nobody is told of its end.
  void abandon(cancel_cause cause) noexcept;

 private:
  class one_run;
  one_run* running_ = nullptr;
};

}  // namespace braid::core
