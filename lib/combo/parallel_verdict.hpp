#pragma once

/// \file
/// The decision of a parallel call, without I/O: limits, quorum, code, partial, and what merging changes.

#include <braid/cancellation.hpp>
#include <braid/config.hpp>
#include <braid/error.hpp>
#include <braid/outcome.hpp>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace braid::combo {

/// The limits of a parallel channel as its user set them.
struct parallel_limits {
  /// The call fails once so many sub calls have failed. Unset: all of them. Below 1: 1; above the number: the
  /// number.
  std::optional<int> fail_limit{};
  /// The call succeeds once so many sub calls have succeeded. Unset: one is needed, and all are awaited.
  /// Below 1: 1.
  std::optional<int> success_limit{};
};

/// Decides one parallel call as its sub calls end.
///
/// Use: check() before anything is sent; add() for each sub call that ended; when it returns something else
/// than undecided, cancel the rest with cause(), join them and add() them too; when succeeded, merge and
/// report failures of merging; then result().
///
/// A sub call's outcome is one of
/// - success;
/// - finished early: it ended with the cause success_limit after this call had reached its own success_limit.
/// It is
///   shown as errc::parallel_finished (1006) and is neither success nor failure;
/// - stopped: it ended with the cause fail_limit after this call had failed. It has no part in the code;
/// - failure: all else. One that had really ended before it could be cancelled counts, also after the
/// decision.
///
/// Cancellation of the parallel call itself is reported by parent_cancelled() before the outcomes that it
/// brings. With any cause but a deadline the call has failed, whatever was decided, and result() is
/// outcome::cancelled(cause). With a deadline the outcomes that follow, in the order of their indices, are
/// judged as always: a sub call unfinished at the deadline is a failure with 1008, one that succeeded
/// nevertheless (a parallel call) counts.
///
/// *The deadline decided it* (and the result is 1008 with the cause deadline) means: the call failed, its own
/// deadline had come before the decision, and it would not have failed if the sub calls that ended by that
/// deadline (cause deadline, added after parent_cancelled()) had succeeded instead. So 1008 is the result
/// when the other failures alone neither reach fail_limit nor make success_limit unreachable. A sub call that
/// ended by an earlier deadline of its own is an ordinary failure with the code 1008.
///
/// Cost: a few counters, no allocation. Thread safety: none.
class parallel_verdict {
 public:
  enum class decision : unsigned char { undecided, succeeded, failed };

  /// Why no sub call may be sent, or success. `n`: sub calls that are not skipped. In this order: no channel
  /// is 1 (EPERM), a bad sub call errc::bad_request, all skipped 125, success_limit above n 22 (EINVAL).
  static error_code check(std::size_t channels, bool any_bad, std::size_t n,
                          const parallel_limits& limits) noexcept;

  /// For `n` sub calls, n >= 1, that check() lets pass.
  parallel_verdict(std::size_t n, const parallel_limits& limits) noexcept;

  /// A sub call has ended as `sub` says; once for each. Once decided, the decision does not change any more.
  decision add(const outcome& sub) noexcept;

  /// The parallel call itself was cancelled, with a cause other than none. Only the first report counts.
  decision parent_cancelled(cancel_cause cause) noexcept;

  decision state() const noexcept { return decision_; }

  /// What to cancel the rest with: success_limit when succeeded, fail_limit when failed by itself (also when
  /// success_limit became unreachable), the call's own cause when it was cancelled; none while undecided.
  cancel_cause cause() const noexcept;

  /// Whether `sub`, ended now, is shown as errc::parallel_finished (1006).
  bool finished_early(const outcome& sub) const noexcept;
  /// Whether `sub`, ended now, counts as a failure and is named in the text.
  bool is_failure(const outcome& sub) const noexcept;

  /// The merger refused the response of one success, which becomes a failure; judged again. Sub calls that
  /// finished early are not revived. The call ends with errc::bad_response when this fails it.
  decision add_merge_failure() noexcept;
  /// The merger gave up or threw: the call ends with errc::bad_response.
  decision merge_failed_all() noexcept;

  /// The outcome of the parallel call, of local origin. For a call that is decided and whose sub calls have
  /// all been added.
  outcome result() const noexcept;

  std::size_t successes() const noexcept { return successes_; }
  std::size_t failures() const noexcept { return failures_; }
  /// How many sub calls have been added.
  std::size_t ended() const noexcept { return ended_; }
  std::size_t size() const noexcept { return n_; }

 private:
  bool stopped(const outcome& sub) const noexcept;
  bool satisfied() const noexcept { return successes_ >= needed_ && failures_ < fail_limit_; }
  void add_failure(const outcome& sub) noexcept;
  decision judge() noexcept;
  bool deadline_decided() const noexcept;
  outcome failure() const noexcept;

  std::size_t n_;
  std::size_t fail_limit_;
  std::size_t needed_;  // successes
  std::size_t successes_ = 0;
  std::size_t failures_ = 0;
  std::size_t deadline_failures_ = 0;  // of the parallel call's own deadline
  std::size_t ended_ = 0;
  error_code common_code_;  // of the failures so far, those with a local 125 left out
  bool await_all_;
  bool mixed_codes_ = false;
  bool all_retryable_ = true;
  bool partial_ = false;
  bool merge_failed_ = false;
  cancel_cause own_cause_ = cancel_cause::none;    // with which the parallel call was cancelled
  cancel_cause limit_cause_ = cancel_cause::none;  // with which it cancels the rest
  decision decision_ = decision::undecided;
};

/// The text of a failed parallel call: each failing sub call with its index, peer and text.
///
/// Bounded: at most 16 sub calls are named, 200 bytes of each text and peer.
class failure_text {
 public:
  /// Sub call `index` failed. `peer` may be empty (none was chosen); an empty `text` becomes the code's
  /// message.
  void add(std::size_t index, std::string_view peer, const error_code& code, std::string_view text);

  /// "2 of 3 sub calls failed: #0 10.0.0.1:8000: 111 Connection refused; #2: 1008 The deadline passed". `n`:
  /// how many sub calls there were. Empty when none failed.
  std::string str(std::size_t n) const;

 private:
  std::size_t count_ = 0;
  std::string named_;
};

}  // namespace braid::combo
