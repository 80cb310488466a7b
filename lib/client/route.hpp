#pragma once

#include <braid/cancellation.hpp>
#include <braid/endpoint.hpp>

#include "client/connection_settings.hpp"
#include "core/loop.hpp"

#include <cstddef>

namespace braid::client {

class attempt;

/// A loop's way to a server: a connection of its own, or the crossing to one that another loop has.
///
/// It lives as long as it has users: channels, attempts, and itself while it is at work.
class route {
 public:
  route(core::loop& home, const connection_settings& settings)
      : home_(home), settings_(settings), remote_(settings.server) {}
  route(const route&) = delete;
  route& operator=(const route&) = delete;
  virtual ~route() = default;

  /// Sends the attempt's request, now or when that is possible.
  virtual void take(attempt& started) noexcept = 0;
  /// The attempt is cancelled.
  virtual void forget(attempt& cancelled, cancel_cause cause) noexcept = 0;
  /// Whether a byte of a request that was taken, and is marked as sent, may have left.
  virtual bool has_sent(const attempt& asked) const noexcept = 0;
  /// The runtime stops: ends everything that waits here.
  virtual void shut_down() noexcept = 0;

  core::loop& home() const noexcept { return home_; }
  const connection_settings& settings() const noexcept { return settings_; }
  /// The address of the server where it is known, else what names it.
  const endpoint& remote() const noexcept { return remote_; }

  void add_user() noexcept { ++users_; }
  void remove_user() noexcept {
    if (users_ == 1) unused();
    --users_;
  }

 protected:
  /// Whether what the attempt sends may wait where `waiting` bytes do, of which it then is; if not, the
  /// attempt ends.
  bool has_room(attempt& started, std::size_t waiting) noexcept;

  /// The last user goes, and counts until this returns.
  virtual void unused() noexcept = 0;

  core::loop& home_;
  const connection_settings settings_;
  endpoint remote_;

 private:
  std::size_t users_ = 0;
};

}  // namespace braid::client
