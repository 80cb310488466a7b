#include "combo/parallel_verdict.hpp"

#include <boost/asio/error.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace braid::combo {
namespace {

std::size_t clamp_limit(int limit, std::size_t n) noexcept {
  return limit < 1 ? 1 : std::min(static_cast<std::size_t>(limit), n);
}

bool local_abort(const outcome& sub) noexcept {
  return sub.origin == outcome_origin::local && sub.code == boost::asio::error::operation_aborted;
}

}  // namespace

error_code parallel_verdict::check(std::size_t channels, bool any_bad, std::size_t n,
                                   const parallel_limits& limits) noexcept {
  if (channels == 0) return from_wire(1);
  if (any_bad) return errc::bad_request;
  if (n == 0) return boost::asio::error::operation_aborted;
  const int wanted = limits.success_limit.value_or(1);
  if (wanted > 0 && static_cast<std::size_t>(wanted) > n) return from_wire(22);
  return {};
}

parallel_verdict::parallel_verdict(std::size_t n, const parallel_limits& limits) noexcept
    : n_(n),
      fail_limit_(limits.fail_limit ? clamp_limit(*limits.fail_limit, n) : n),
      needed_(clamp_limit(limits.success_limit.value_or(1), n)),
      await_all_(!limits.success_limit) {}

cancel_cause parallel_verdict::cause() const noexcept {
  return limit_cause_ != cancel_cause::none ? limit_cause_ : own_cause_;
}

bool parallel_verdict::finished_early(const outcome& sub) const noexcept {
  return limit_cause_ == cancel_cause::success_limit && sub.cause == cancel_cause::success_limit;
}

bool parallel_verdict::stopped(const outcome& sub) const noexcept {
  return limit_cause_ == cancel_cause::fail_limit && sub.cause == cancel_cause::fail_limit;
}

bool parallel_verdict::is_failure(const outcome& sub) const noexcept {
  return !sub.succeeded() && !finished_early(sub) && !stopped(sub);
}

parallel_verdict::decision parallel_verdict::add(const outcome& sub) noexcept {
  ++ended_;
  if (sub.succeeded()) {
    ++successes_;
    partial_ |= sub.partial;
  } else if (is_failure(sub)) {
    add_failure(sub);
  }
  return judge();
}

void parallel_verdict::add_failure(const outcome& sub) noexcept {
  ++failures_;
  partial_ = true;
  all_retryable_ &= sub.retryable;
  if (sub.cause == cancel_cause::deadline && own_cause_ == cancel_cause::deadline) ++deadline_failures_;
  if (local_abort(sub)) return;
  if (!common_code_) {
    common_code_ = sub.code;
  } else if (common_code_ != sub.code) {
    mixed_codes_ = true;
  }
}

parallel_verdict::decision parallel_verdict::judge() noexcept {
  if (decision_ != decision::undecided) return decision_;
  const std::size_t left = n_ - ended_;
  if (failures_ >= fail_limit_ || successes_ + left < needed_) {
    decision_ = decision::failed;
    limit_cause_ = cancel_cause::fail_limit;
  } else if (satisfied() && (left == 0 || !await_all_)) {
    decision_ = decision::succeeded;
    limit_cause_ = cancel_cause::success_limit;
  }
  return decision_;
}

parallel_verdict::decision parallel_verdict::parent_cancelled(cancel_cause cause) noexcept {
  if (own_cause_ != cancel_cause::none || cause == cancel_cause::none) return decision_;
  own_cause_ = cause;
  if (cause != cancel_cause::deadline) decision_ = decision::failed;
  return decision_;
}

parallel_verdict::decision parallel_verdict::add_merge_failure() noexcept {
  --successes_;
  ++failures_;
  partial_ = true;
  if (decision_ == decision::succeeded && !satisfied()) return merge_failed_all();
  return decision_;
}

parallel_verdict::decision parallel_verdict::merge_failed_all() noexcept {
  if (decision_ == decision::succeeded) merge_failed_ = true;
  return decision_ = decision::failed;
}

// Whether the failures that are not of the deadline would have left success possible.
bool parallel_verdict::deadline_decided() const noexcept {
  if (deadline_failures_ == 0) return false;
  const std::size_t others = failures_ - deadline_failures_;
  return others < fail_limit_ && n_ - others >= needed_;
}

outcome parallel_verdict::failure() const noexcept {
  if (merge_failed_) return outcome::local_failure(errc::bad_response);
  if (deadline_decided()) return outcome::cancelled(cancel_cause::deadline);
  outcome result{.retryable = all_retryable_};
  if (!common_code_) {
    result.code = boost::asio::error::operation_aborted;
  } else if (mixed_codes_) {
    result.code = errc::too_many_fails;
  } else {
    result.code = common_code_;
  }
  return result;
}

outcome parallel_verdict::result() const noexcept {
  if (own_cause_ != cancel_cause::none && own_cause_ != cancel_cause::deadline)
    return outcome::cancelled(own_cause_);
  return decision_ == decision::succeeded ? outcome::success(partial_) : failure();
}

namespace {

constexpr std::size_t max_named = 16;
constexpr std::size_t max_bytes = 200;

// At most `max_bytes` of `text`, cut where a character of UTF-8 begins.
std::string_view clip(std::string_view text) noexcept {
  if (text.size() <= max_bytes) return text;
  std::size_t end = max_bytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0U) == 0x80U) --end;
  return text.substr(0, end);
}

}  // namespace

void failure_text::add(std::size_t index, std::string_view peer, const error_code& code,
                       std::string_view text) {
  if (++count_ > max_named) return;
  const auto out = std::back_inserter(named_);
  fmt::format_to(out, "{}#{}", count_ == 1 ? "" : "; ", index);
  if (!peer.empty()) fmt::format_to(out, " {}", clip(peer));
  const std::string message = text.empty() ? code.message() : std::string{};
  fmt::format_to(out, ": {} {}", to_wire(code), clip(text.empty() ? std::string_view{message} : text));
}

std::string failure_text::str(std::size_t n) const {
  if (count_ == 0) return {};
  std::string all = fmt::format("{} of {} sub calls failed: {}", count_, n, named_);
  if (count_ > max_named) fmt::format_to(std::back_inserter(all), "; and {} more", count_ - max_named);
  return all;
}

}  // namespace braid::combo
