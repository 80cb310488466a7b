#include <braid/outcome.hpp>

#include <boost/asio/error.hpp>
#include <catch2/catch.hpp>

#include <cerrno>
#include <set>
#include <system_error>

namespace {

using braid::cancel_cause;
using braid::errc;
using braid::error_code;
using braid::outcome;
using braid::outcome_origin;

constexpr cancel_cause all_causes[] = {
    cancel_cause::deadline,    cancel_cause::user,      cancel_cause::fail_limit, cancel_cause::success_limit,
    cancel_cause::sibling_won, cancel_cause::peer_gone, cancel_cause::shutdown};

// Every number that section 8 names, an application's own, and some that nobody names.
constexpr int numbers[] = {1,    11,   12,   22,   32,   61,   104,  110,  111,  112,  125,  1001,
                           1002, 1003, 1004, 1005, 1006, 1007, 1008, 1009, 1010, 1011, 1014, 1016,
                           1018, 2001, 2002, 2003, 2004, 2005, 7,    -5,   1012, 4711, 99999};

error_code errno_code(int value) { return {value, boost::system::system_category()}; }

TEST_CASE("a success is retried by nobody", "[outcome]") {
  CHECK(outcome::success().succeeded());
  CHECK_FALSE(outcome::success().partial);
  CHECK(outcome::success(true).partial);
  CHECK_FALSE(outcome::success().retryable);
  CHECK(outcome::success().cause == cancel_cause::none);
}

TEST_CASE("a node cancelled by a deadline is 1008, by any other cause 125", "[outcome]") {
  for (const auto cause : all_causes) {
    CAPTURE(braid::to_string(cause));
    const auto result = outcome::cancelled(cause);
    CHECK_FALSE(result.succeeded());
    CHECK(result.cause == cause);
    CHECK(result.origin == outcome_origin::local);
    CHECK_FALSE(result.retryable);
    CHECK_FALSE(result.partial);
    if (cause == cancel_cause::deadline) {
      CHECK(result.code == errc::timed_out);
      CHECK(result.code != boost::asio::error::operation_aborted);
    } else {
      CHECK(result.code == boost::asio::error::operation_aborted);
      CHECK(result.code != errc::timed_out);
    }
  }
}

TEST_CASE("of local failures exactly 1009, 1014, 110, 32, 111, 104 and 1011 are retryable", "[outcome]") {
  const std::set<int> retryable{1009, 1014, 110, 32, 111, 104, 1011};
  for (const int number : numbers) {
    CAPTURE(number);
    const auto result = outcome::local_failure(braid::from_wire(number));
    CHECK(result.retryable == retryable.contains(number));
    CHECK(result.code == braid::from_wire(number));
    CHECK(result.origin == outcome_origin::local);
    CHECK(result.cause == cancel_cause::none);
  }
}

TEST_CASE("of a peer's answers exactly 2003 and 2004 are retryable", "[outcome]") {
  for (const int number : numbers) {
    CAPTURE(number);
    const auto result = outcome::peer_failure(braid::from_wire(number));
    CHECK(result.retryable == (number == 2003 || number == 2004));
    CHECK(result.code == braid::from_wire(number));
    CHECK(result.origin == outcome_origin::peer);
    CHECK(result.cause == cancel_cause::none);
  }
}

TEST_CASE("a local errno without a number of its own becomes 1009", "[outcome]") {
  for (const int value : {ENETUNREACH, EHOSTUNREACH, EMFILE, EBADF, ENOTCONN}) {
    const auto result = outcome::local_failure(errno_code(value));
    CHECK(result.code == errc::socket_failed);
    CHECK(result.retryable);
  }
}

TEST_CASE("a local failure is the same in whichever category it comes", "[outcome]") {
  CHECK(outcome::local_failure(boost::asio::error::eof).code == errc::eof);
  CHECK(outcome::local_failure(boost::asio::error::eof).retryable);
  CHECK(outcome::local_failure({EPIPE, boost::system::generic_category()}).code == errno_code(EPIPE));
  CHECK(outcome::local_failure(std::make_error_code(std::errc::connection_refused)).code ==
        errno_code(ECONNREFUSED));
  CHECK(outcome::local_failure(boost::asio::error::host_not_found).code == errno_code(EHOSTDOWN));
  CHECK_FALSE(outcome::local_failure(boost::asio::error::host_not_found).retryable);
}

TEST_CASE("a handler's own 125 and 1008 are no cancellation", "[outcome]") {
  CHECK(outcome::peer_failure(braid::from_wire(125)).cause == cancel_cause::none);
  CHECK(outcome::peer_failure(errc::timed_out).cause == cancel_cause::none);
}

}  // namespace
