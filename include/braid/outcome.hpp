#pragma once

/// \file
/// How a call ended: what combos, retries and health decide by.

#include <braid/cancellation.hpp>
#include <braid/config.hpp>
#include <braid/error.hpp>

#include <cstdint>

namespace braid {

/// Who said so.
enum class outcome_origin : std::uint8_t {
  local,  ///< This process: its network, its deadline, its cancellation.
  peer,   ///< The server answered.
};

/// How a call, a sub call or an attempt ended.
///
/// Whether it was cancelled is told by `cause`, never by the number: a handler may answer 125 or 112 as its
/// own code.
struct outcome {
  error_code code{};                              ///< Success when it holds none.
  outcome_origin origin = outcome_origin::local;  ///< Who said so.
  cancel_cause cause = cancel_cause::none;        ///< Why it was cancelled, if it was.
  bool retryable = false;                         ///< Whether another server may be asked instead.
  bool partial = false;                           ///< A success to which some sub call did not contribute.

  /// Whether it is a success.
  bool succeeded() const noexcept { return !code; }

  /// A success. `partial`: some sub call did not contribute.
  static outcome success(bool partial = false) noexcept {
    outcome result;
    result.partial = partial;
    return result;
  }
  /// Of a node that `cause` cancelled: errc::timed_out for a deadline, else `operation_aborted`.
  static outcome cancelled(cancel_cause cause) noexcept;
  /// Of this process; retryable as the table of the retry rules says.
  static outcome local_failure(const error_code& code) noexcept;
  /// As the server said; retryable as the table of the retry rules says.
  static outcome peer_failure(const error_code& code) noexcept;
};

}  // namespace braid
