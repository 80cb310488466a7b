#include "combo/parallel_verdict.hpp"

#include <boost/asio/error.hpp>
#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace {

using braid::cancel_cause;
using braid::errc;
using braid::error_code;
using braid::from_wire;
using braid::outcome;
using braid::to_wire;
using braid::combo::failure_text;
using braid::combo::parallel_limits;
using braid::combo::parallel_verdict;
using decision = parallel_verdict::decision;

constexpr int app_a = 5001;
constexpr int app_b = 5002;

// How a sub call ends, as letters so that a whole scenario is a short word.
constexpr char success = 'S';
constexpr char partial_success = 'P';
constexpr char fails_a = 'A';
constexpr char fails_b = 'B';
constexpr char retryable = 'R';      // 111
constexpr char local_abort = 'X';    // 125, cancelled alone by its user
constexpr char own_deadline = 'D';   // 1008, by an earlier deadline of its own
constexpr char still_running = 'U';  // ends when the deadline or a cancel comes
constexpr std::string_view alphabet = "SPABRXDU";

outcome ended_as(char letter) {
  switch (letter) {
    case success:
      return outcome::success();
    case partial_success:
      return outcome::success(true);
    case fails_a:
      return outcome::peer_failure(from_wire(app_a));
    case fails_b:
      return outcome::peer_failure(from_wire(app_b));
    case retryable:
      return outcome::local_failure(boost::asio::error::connection_refused);
    case local_abort:
      return outcome::cancelled(cancel_cause::user);
    default:
      return outcome::cancelled(cancel_cause::deadline);
  }
}

int code_of(char letter) {
  switch (letter) {
    case fails_a:
      return app_a;
    case fails_b:
      return app_b;
    case retryable:
      return 111;
    case local_abort:
      return 125;
    case own_deadline:
    case still_running:
      return 1008;
    default:
      return 0;
  }
}

bool is_success(char letter) { return letter == success || letter == partial_success; }

// The first `before` letters end one after the other; then the parallel call is cancelled with `cause` and
// the rest of the letters are handed over together. Without a cause all end one after the other.
struct scenario {
  std::string word;
  std::size_t before;
  cancel_cause cause;
  parallel_limits limits;
};

std::string describe(const scenario& s) {
  std::ostringstream out;
  const auto show = [&](const char* name, const std::optional<int>& limit) {
    out << ' ' << name << ' ';
    if (limit) {
      out << *limit;
    } else {
      out << "unset";
    }
  };
  out << s.word << " before " << s.before << ' ' << braid::to_string(s.cause);
  show("fail_limit", s.limits.fail_limit);
  show("success_limit", s.limits.success_limit);
  return out.str();
}

struct judged {
  bool ok;
  int code;
  cancel_cause cause;
  bool partial;
  bool retryable;
  bool operator==(const judged&) const = default;
};

std::string describe(const judged& j) {
  std::ostringstream out;
  out << (j.ok ? "succeeded" : "failed") << " code " << j.code << " cause " << braid::to_string(j.cause)
      << (j.partial ? " partial" : "") << (j.retryable ? " retryable" : "");
  return out.str();
}

std::optional<judged> run(const scenario& s) {
  parallel_verdict verdict(s.word.size(), s.limits);
  bool cancelled_before_decision = false;
  for (std::size_t i = 0; i < s.word.size(); ++i) {
    if (i == s.before && s.cause != cancel_cause::none) {
      cancelled_before_decision = verdict.state() == decision::undecided;
      verdict.parent_cancelled(s.cause);
    }
    const char letter = s.word[i];
    if (letter != still_running) {
      verdict.add(ended_as(letter));
    } else if (cancelled_before_decision) {
      verdict.add(outcome::cancelled(s.cause));
    } else if (verdict.state() != decision::undecided) {
      verdict.add(outcome::cancelled(verdict.cause()));
    } else {
      return std::nullopt;  // nothing would ever end it
    }
  }
  const outcome result = verdict.result();
  // Not as CHECK: this runs two million times.
  if (result.origin != braid::outcome_origin::local) FAIL("the origin is the peer's");
  if ((verdict.state() == decision::succeeded) != result.succeeded()) FAIL("state and result differ");
  return judged{result.succeeded(), to_wire(result.code), result.cause, result.partial, result.retryable};
}

// The contract again, from the complete list of what happened.
class restated {
 public:
  explicit restated(const scenario& s) : s_(s), n_(static_cast<int>(s.word.size())) {
    fail_limit_ = std::clamp(s.limits.fail_limit.value_or(n_), 1, n_);
    needed_ = std::max(1, s.limits.success_limit.value_or(1));
  }

  judged result() const {
    if (s_.cause != cancel_cause::none && s_.cause != cancel_cause::deadline)
      return {false, 125, s_.cause, false, false};
    const std::size_t end = decided_after();
    const bool by_limits = s_.cause == cancel_cause::none || end <= s_.before;
    // Whoever still ran when the limits decided took no part.
    std::string took_part = s_.word.substr(0, end);
    for (const char letter : s_.word.substr(end))
      if (letter != still_running || !by_limits) took_part += letter;
    const std::string until = s_.word.substr(0, end);
    const bool ok = row(count_successes(until), count_failures(until));
    const bool any_failed = count_failures(took_part) > 0;
    const bool any_partial = took_part.find(partial_success) != std::string::npos;
    if (ok) return {true, 0, cancel_cause::none, any_failed || any_partial, false};
    if (!by_limits && deadline_decided()) return {false, 1008, cancel_cause::deadline, false, false};
    std::set<int> codes;
    bool all_retryable = true;
    for (const char letter : took_part) {
      if (is_success(letter)) continue;
      all_retryable &= letter == retryable;
      if (letter != local_abort) codes.insert(code_of(letter));
    }
    const int code = codes.empty() ? 125 : codes.size() == 1 ? *codes.begin() : 1005;
    return {false, code, cancel_cause::none, false, all_retryable};
  }

 private:
  static int count_successes(const std::string& word) {
    return static_cast<int>(std::count_if(word.begin(), word.end(), is_success));
  }
  static int count_failures(const std::string& word) {
    return static_cast<int>(word.size()) - count_successes(word);
  }
  bool row(int successes, int failures) const { return successes >= needed_ && failures < fail_limit_; }

  std::size_t decided_after() const {
    for (std::size_t end = 1; end < s_.word.size(); ++end) {
      const std::string until = s_.word.substr(0, end);
      const int failures = count_failures(until);
      const bool enough = s_.limits.success_limit && count_successes(until) >= needed_;
      if (enough || failures >= fail_limit_ || n_ - failures < needed_) return end;
    }
    return s_.word.size();
  }

  // Had those that the deadline ended succeeded instead, would the row be true?
  bool deadline_decided() const {
    std::string otherwise = s_.word;
    for (std::size_t i = s_.before; i < otherwise.size(); ++i)
      if (otherwise[i] == still_running || otherwise[i] == own_deadline) otherwise[i] = success;
    return otherwise != s_.word && row(count_successes(otherwise), count_failures(otherwise));
  }

  const scenario& s_;
  int n_;
  int fail_limit_;
  int needed_;
};

std::vector<std::string> words(std::size_t length, std::string_view letters) {
  std::vector<std::string> all{""};
  for (std::size_t i = 0; i < length; ++i) {
    std::vector<std::string> longer;
    for (const auto& word : all)
      for (const char letter : letters) longer.push_back(word + letter);
    all = std::move(longer);
  }
  return all;
}

std::vector<std::optional<int>> limit_values(std::size_t n) {
  std::vector<std::optional<int>> all{std::nullopt};
  for (int value = -1; value <= static_cast<int>(n) + 1; ++value) all.emplace_back(value);
  return all;
}

template <typename Function>
void for_all_limits(std::size_t n, Function function) {
  for (const auto& fail_limit : limit_values(n))
    for (const auto& success_limit : limit_values(n))
      if (success_limit.value_or(1) <= static_cast<int>(n))
        function(parallel_limits{fail_limit, success_limit});
}

TEST_CASE(
    "outcome, code and partial are those of the contract, for all limits and orders of up to 4 sub calls",
    "[parallel][verdict]") {
  std::size_t compared = 0;
  std::set<int> codes;
  for (std::size_t n = 1; n <= 4; ++n) {
    const auto all_words = words(n, alphabet);
    for_all_limits(n, [&](const parallel_limits& limits) {
      for (const auto& word : all_words) {
        const auto compare = [&](std::size_t before, cancel_cause cause) {
          const scenario s{word, before, cause, limits};
          // Before the cancellation, or without one, a call that runs can only be ended by a limit.
          const auto found = run(s);
          if (!found) return;
          const auto wanted = restated(s).result();
          ++compared;
          codes.insert(found->code);
          if (*found != wanted) {
            INFO(describe(s));
            CHECK(describe(*found) == describe(wanted));
          }
        };
        compare(n, cancel_cause::none);
        for (std::size_t before = 0; before < n; ++before) {
          compare(before, cancel_cause::deadline);
          compare(before, cancel_cause::user);
        }
      }
    });
  }
  CHECK(compared > 500'000);
  CHECK(codes == std::set<int>{0, 111, 125, 1005, 1008, app_a, app_b});
}

TEST_CASE("merging turns successes into failures and the row is judged again", "[parallel][verdict]") {
  std::size_t failed_by_merging = 0;
  std::size_t survived = 0;
  for (std::size_t n = 1; n <= 4; ++n) {
    for_all_limits(n, [&](const parallel_limits& limits) {
      for (const auto& word : words(n, "SPAU")) {
        const int size = static_cast<int>(n);
        const int fail_limit = std::clamp(limits.fail_limit.value_or(size), 1, size);
        const int needed = std::max(1, limits.success_limit.value_or(1));
        parallel_verdict verdict(n, limits);
        bool possible = true;
        int successes = 0;
        int failures = 0;
        for (const char letter : word) {
          if (letter == still_running && verdict.state() == decision::undecided) possible = false;
          if (!possible) break;
          if (is_success(letter)) ++successes;
          if (letter == fails_a) ++failures;
          verdict.add(letter == still_running ? outcome::cancelled(verdict.cause()) : ended_as(letter));
        }
        if (!possible || verdict.state() != decision::succeeded) continue;
        while (successes > 0) {
          --successes;
          ++failures;
          const bool ok = successes >= needed && failures < fail_limit;
          const auto state = verdict.add_merge_failure();
          INFO(word << " with " << failures << " failures");
          REQUIRE((state == decision::succeeded) == ok);
          const auto result = verdict.result();
          REQUIRE(to_wire(result.code) == (ok ? 0 : 2002));
          REQUIRE(result.partial == ok);
          REQUIRE_FALSE(result.retryable);
          REQUIRE(result.cause == cancel_cause::none);
          ++(ok ? survived : failed_by_merging);
          if (!ok) break;
        }
      }
    });
  }
  CHECK(failed_by_merging > 500);
  CHECK(survived > 500);
}

TEST_CASE("fail_all fails a call that had everything", "[parallel][verdict]") {
  parallel_verdict verdict(2, {});
  verdict.add(outcome::success());
  verdict.add(outcome::success());
  REQUIRE(verdict.state() == decision::succeeded);
  CHECK(verdict.merge_failed_all() == decision::failed);
  CHECK(verdict.result().code == errc::bad_response);
}

TEST_CASE("empty is 1, any bad 1003, all skipped 125, success_limit above n 22, in this order",
          "[parallel][verdict]") {
  for (std::size_t channels = 0; channels <= 4; ++channels) {
    for (std::size_t n = 0; n <= channels; ++n) {
      for (const bool any_bad : {false, true}) {
        for (const auto& fail_limit : limit_values(n)) {
          for (const auto& success_limit : limit_values(n)) {
            const bool too_many = success_limit.value_or(0) > static_cast<int>(n);
            const int expected = channels == 0 ? 1 : any_bad ? 1003 : n == 0 ? 125 : too_many ? 22 : 0;
            const auto found = parallel_verdict::check(channels, any_bad, n, {fail_limit, success_limit});
            REQUIRE(to_wire(found) == expected);
          }
        }
      }
    }
  }
  CHECK(parallel_verdict::check(1, false, 0, {}) == boost::asio::error::operation_aborted);
}

TEST_CASE("at fail_limit the rest is cancelled with the cause fail_limit", "[parallel][verdict]") {
  parallel_verdict verdict(3, {.fail_limit = 1});
  CHECK(verdict.cause() == cancel_cause::none);
  CHECK(verdict.add(ended_as(fails_a)) == decision::failed);
  CHECK(verdict.cause() == cancel_cause::fail_limit);
  const auto stopped = outcome::cancelled(cancel_cause::fail_limit);
  CHECK_FALSE(verdict.finished_early(stopped));
  CHECK_FALSE(verdict.is_failure(stopped));
  verdict.add(stopped);
  verdict.add(stopped);
  CHECK(verdict.failures() == 1);
  CHECK(verdict.result().code == from_wire(app_a));
}

TEST_CASE("at success_limit the rest ends with 1006 and is neither success nor failure",
          "[parallel][verdict]") {
  parallel_verdict verdict(3, {.success_limit = 1});
  CHECK(verdict.add(outcome::success()) == decision::succeeded);
  CHECK(verdict.cause() == cancel_cause::success_limit);
  const auto rest = outcome::cancelled(cancel_cause::success_limit);
  CHECK(verdict.finished_early(rest));
  CHECK_FALSE(verdict.is_failure(rest));
  verdict.add(rest);
  verdict.add(rest);
  CHECK(verdict.ended() == 3);
  CHECK(verdict.successes() == 1);
  CHECK(verdict.failures() == 0);
  CHECK(verdict.result().succeeded());
  CHECK_FALSE(verdict.result().partial);
}

TEST_CASE("success_limit that can no longer be reached ends the call with the cause fail_limit",
          "[parallel][verdict]") {
  parallel_verdict verdict(3, {.success_limit = 2});
  CHECK(verdict.add(ended_as(fails_a)) == decision::undecided);
  CHECK(verdict.add(ended_as(fails_a)) == decision::failed);
  CHECK(verdict.cause() == cancel_cause::fail_limit);
  CHECK(verdict.result().code == from_wire(app_a));
}

TEST_CASE("a success_limit from above does not look like one of its own", "[parallel][verdict]") {
  parallel_verdict verdict(2, {.success_limit = 1});
  verdict.parent_cancelled(cancel_cause::success_limit);
  const auto above = outcome::cancelled(cancel_cause::success_limit);
  CHECK_FALSE(verdict.finished_early(above));
  verdict.add(above);
  verdict.add(above);
  CHECK(verdict.result().cause == cancel_cause::success_limit);
  CHECK(verdict.result().code == boost::asio::error::operation_aborted);
}

TEST_CASE("a cancelled call never ends with success, also when it was decided", "[parallel][verdict]") {
  parallel_verdict verdict(2, {.success_limit = 1});
  CHECK(verdict.add(outcome::success()) == decision::succeeded);
  CHECK(verdict.parent_cancelled(cancel_cause::user) == decision::failed);
  verdict.add(outcome::cancelled(cancel_cause::success_limit));
  CHECK(verdict.result().cause == cancel_cause::user);
  CHECK(verdict.result().code == boost::asio::error::operation_aborted);
}

TEST_CASE("the first cancellation of a parallel call is the one that counts", "[parallel][verdict]") {
  parallel_verdict verdict(1, {});
  verdict.parent_cancelled(cancel_cause::none);
  verdict.parent_cancelled(cancel_cause::shutdown);
  verdict.parent_cancelled(cancel_cause::user);
  CHECK(verdict.result().cause == cancel_cause::shutdown);
}

TEST_CASE("the deadline decided it when the other failures alone would not have", "[parallel][verdict]") {
  const auto late = outcome::cancelled(cancel_cause::deadline);
  SECTION("fail_limit reached with the deadline's failures: 1008") {
    parallel_verdict verdict(3, {.fail_limit = 2});
    verdict.add(ended_as(fails_a));
    verdict.parent_cancelled(cancel_cause::deadline);
    verdict.add(late);
    verdict.add(late);
    CHECK(verdict.result().code == errc::timed_out);
    CHECK(verdict.result().cause == cancel_cause::deadline);
  }
  SECTION("an earlier deadline of one sub call is an ordinary failure") {
    parallel_verdict verdict(3, {.fail_limit = 2});
    verdict.add(late);
    verdict.add(ended_as(fails_a));
    CHECK(verdict.result().code == errc::too_many_fails);
    CHECK(verdict.result().cause == cancel_cause::none);
  }
  SECTION("all sub calls with earlier deadlines: 1008, but not this call's deadline") {
    parallel_verdict verdict(2, {});
    verdict.add(late);
    verdict.add(late);
    CHECK(verdict.result().code == errc::timed_out);
    CHECK(verdict.result().cause == cancel_cause::none);
  }
  SECTION("what succeeded nevertheless counts") {
    parallel_verdict verdict(2, {});
    verdict.parent_cancelled(cancel_cause::deadline);
    verdict.add(late);
    verdict.add(outcome::success(true));
    CHECK(verdict.result().succeeded());
    CHECK(verdict.result().partial);
  }
  SECTION("a deadline after the decision changes nothing") {
    parallel_verdict verdict(2, {.success_limit = 1});
    verdict.add(outcome::success());
    CHECK(verdict.parent_cancelled(cancel_cause::deadline) == decision::succeeded);
    verdict.add(outcome::cancelled(cancel_cause::success_limit));
    CHECK(verdict.result().succeeded());
    CHECK_FALSE(verdict.result().partial);
  }
}

TEST_CASE("a peer's own 125 is a failure like any other, a local one is left out", "[parallel][verdict]") {
  parallel_verdict of_peer(2, {});
  of_peer.add(outcome::peer_failure(from_wire(125)));
  of_peer.add(ended_as(fails_a));
  CHECK(of_peer.result().code == errc::too_many_fails);
  parallel_verdict local(2, {});
  local.add(ended_as(local_abort));
  local.add(ended_as(fails_a));
  CHECK(local.result().code == from_wire(app_a));
}

TEST_CASE("the text names index, peer, number and text of each failure", "[parallel][verdict]") {
  failure_text text;
  CHECK(text.str(3).empty());
  text.add(0, "10.0.0.1:8000", boost::asio::error::connection_refused, "");
  text.add(2, "", errc::timed_out, "no answer in 50 ms");
  CHECK(text.str(3) ==
        "2 of 3 sub calls failed: #0 10.0.0.1:8000: 111 Connection refused; #2: 1008 no answer in 50 ms");
}

TEST_CASE("the text stays short however many fail and however much they say", "[parallel][verdict]") {
  failure_text text;
  const std::string huge(100'000, 'x');
  for (std::size_t i = 0; i < 1000; ++i) text.add(i, huge, from_wire(app_a), huge);
  const std::string all = text.str(1000);
  CHECK(all.size() < 16 * 440 + 100);
  CHECK(all.find("#15 ") != std::string::npos);
  CHECK(all.find("#16 ") == std::string::npos);
  CHECK(all.ends_with("; and 984 more"));
}

TEST_CASE("a long text is cut between characters", "[parallel][verdict]") {
  std::string umlauts = "x";
  while (umlauts.size() < 300) umlauts += "\xc3\xa4";
  failure_text text;
  text.add(0, "", from_wire(app_a), umlauts);
  const std::string all = text.str(1);
  CHECK(all.ends_with("x" + umlauts.substr(1, 198)));
}

}  // namespace
