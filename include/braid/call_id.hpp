#pragma once

/// \file
/// A weak name of a call.

#include <braid/config.hpp>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

namespace braid {

namespace client {
class root_call;
}

namespace detail {

class cancel_handle;

/// What a controller knows of its call for those who want to cancel it: nothing, until somebody asks.
///
/// How: the call's loop goes on without a lock as long as nobody has asked for a name. Who asks pins the
/// running call, so that it can't end while it is given its name; a call that ends meanwhile waits.
///
/// Thread safety: handle() from any thread; the rest by the call, one at a time.
class call_name {
 public:
  /// The name of the running call, or of the one that starts next; when a call has ended, still that one's.
  std::shared_ptr<cancel_handle> handle();

  /// A call is about to start. The name of an earlier one is not its own.
  void renew() noexcept;
  /// The call has begun on its loop; returns what it is to bind, if somebody has asked already.
  std::shared_ptr<cancel_handle> begin(client::root_call& running) noexcept;
  /// The call has ended, or will never begin; returns what it is to release.
  std::shared_ptr<cancel_handle> end() noexcept;
  /// As new.
  void reset() noexcept;

  // For a call that works on a controller of its own, so that its caller may leave it.

  /// Takes the name of the caller's controller, for a call that is about to start.
  void adopt(std::shared_ptr<cancel_handle> callers);
  /// The caller leaves the call, which has ended as far as it knows; returns the name that the call goes on
  /// with.
  std::shared_ptr<cancel_handle> leave() noexcept;

 private:
  static constexpr std::uintptr_t idle = 0;
  static constexpr std::uintptr_t pinned = 1;  // added to the address of the running call
  static constexpr std::uintptr_t over = 2;

  void forget() noexcept;

  std::atomic<std::uintptr_t> state_{idle};  // idle, over or the running call
  std::atomic<bool> named_{false};           // whether there is a handle
  std::mutex mutex_;                         // guards what is below
  std::shared_ptr<cancel_handle> handle_;
  bool bound_ = false;  // to the running call
};

}  // namespace detail

/// Names a call so that any thread may cancel it. It may outlive the call and its controller.
///
/// Thread safety: copies of one call_id may be used from several threads at once.
class call_id {
 public:
  /// Names no call: cancel() has no effect.
  call_id() = default;
  /// For the library's own layers.
  explicit call_id(std::shared_ptr<detail::cancel_handle> handle) noexcept : handle_(std::move(handle)) {}

  /// Cancels the call with cancel_cause::user. Before the call starts: it will end with 125 and send nothing.
  /// After its end: no effect. Idempotent.
  void cancel() const noexcept;

 private:
  std::shared_ptr<detail::cancel_handle> handle_;
};

}  // namespace braid
