#include <braid/error.hpp>

#include <boost/asio/error.hpp>
#include <catch2/catch.hpp>

#include <cerrno>
#include <cstring>
#include <limits>
#include <set>
#include <string>
#include <system_error>
#include <type_traits>

namespace {

using braid::errc;
using braid::error_code;

constexpr errc all_named[] = {errc::no_service,
                              errc::no_method,
                              errc::bad_request,
                              errc::auth_failed,
                              errc::too_many_fails,
                              errc::parallel_finished,
                              errc::backup_request,
                              errc::timed_out,
                              errc::socket_failed,
                              errc::http,
                              errc::overcrowded,
                              errc::eof,
                              errc::ssl,
                              errc::rejected,
                              errc::internal,
                              errc::bad_response,
                              errc::logoff,
                              errc::limit,
                              errc::closed};

constexpr int wire_errnos[] = {1, 11, 12, 22, 32, 61, 104, 110, 111, 112, 125};

TEST_CASE("the named errors have the numbers of the wire", "[error]") {
  const int numbers[] = {1001, 1002, 1003, 1004, 1005, 1006, 1007, 1008, 1009, 1010,
                         1011, 1014, 1016, 1018, 2001, 2002, 2003, 2004, 2005};
  REQUIRE(std::size(numbers) == std::size(all_named));
  for (std::size_t i = 0; i < std::size(numbers); ++i) {
    CHECK(static_cast<int>(all_named[i]) == numbers[i]);
    CHECK(braid::from_wire(numbers[i]) == all_named[i]);
    CHECK(braid::to_wire(all_named[i]) == numbers[i]);
  }
}

TEST_CASE("every named error has a message of its own", "[error]") {
  std::set<std::string> seen;
  for (auto value : all_named) {
    const error_code ec = value;
    CHECK(&ec.category() == &braid::rpc_category());
    CHECK_FALSE(ec.message().empty());
    CHECK(ec.message().find("its own error") == std::string::npos);
    seen.insert(ec.message());
  }
  CHECK(seen.size() == std::size(all_named));
  CHECK(std::string{braid::rpc_category().name()} == "braid");
}

TEST_CASE("0 from the wire is success, and success is 0 whatever its category", "[error]") {
  CHECK_FALSE(braid::from_wire(0).failed());
  CHECK(braid::to_wire({}) == 0);
  CHECK(braid::to_wire({0, braid::rpc_category()}) == 0);
  CHECK(braid::to_wire({0, boost::asio::error::get_misc_category()}) == 0);
}

TEST_CASE("errno values of the contract are system errors in both directions", "[error]") {
  for (int number : wire_errnos) {
    CAPTURE(number);
    const auto ec = braid::from_wire(number);
    CHECK(ec.category() == boost::system::system_category());
    CHECK(ec.value() == number);
    CHECK(braid::to_wire(ec) == number);
    CHECK(braid::to_wire({number, boost::system::generic_category()}) == number);
  }
  CHECK(braid::from_wire(125) == boost::asio::error::operation_aborted);
  CHECK(braid::from_wire(111) == boost::asio::error::connection_refused);
  CHECK(braid::to_wire(boost::asio::error::operation_aborted) == 125);
  CHECK(EHOSTDOWN == 112);
}

TEST_CASE("any other number is the application's own and passes unchanged", "[error]") {
  for (int number : {-1, 2, 5, 9, 113, 1000, 1012, 1013, 1019, 2006, 4711, std::numeric_limits<int>::max(),
                     std::numeric_limits<int>::min()}) {
    CAPTURE(number);
    const auto ec = braid::from_wire(number);
    CHECK(ec.failed());
    CHECK(ec.category() == braid::rpc_category());
    CHECK(braid::to_wire(ec) == number);
    CHECK(ec.message() == "The service failed with its own error " + std::to_string(number));
  }
}

TEST_CASE("local errors without a number of their own become socket_failed", "[error]") {
  CHECK(braid::to_wire({EBADF, boost::system::system_category()}) == 1009);
  CHECK(braid::to_wire({EHOSTUNREACH, boost::system::generic_category()}) == 1009);
  CHECK(braid::to_wire(boost::asio::error::already_open) == 1009);
  CHECK(braid::to_wire(std::make_error_code(std::io_errc::stream)) == 1009);
}

TEST_CASE("end of file, name lookup and errors of std have their numbers", "[error]") {
  CHECK(braid::to_wire(boost::asio::error::eof) == 1014);
  CHECK(braid::to_wire(boost::asio::error::host_not_found) == 112);
  CHECK(braid::to_wire(boost::asio::error::service_not_found) == 112);
  CHECK(braid::to_wire(std::make_error_code(std::errc::connection_reset)) == 104);
  CHECK(braid::to_wire(std::make_error_code(std::errc::bad_file_descriptor)) == 1009);
}

TEST_CASE("errors of OpenSSL and of TLS streams become ssl", "[error]") {
  struct named_category final : boost::system::error_category {
    explicit named_category(const char* n) : n_(n) {}
    const char* name() const noexcept override { return n_; }
    std::string message(int) const override { return "made up"; }
    const char* n_;
  };
  const named_category ssl{"asio.ssl"}, stream{"asio.ssl.stream"}, other{"asio.sslx"};
  CHECK(braid::to_wire({7, ssl}) == 1016);
  CHECK(braid::to_wire({1, stream}) == 1016);
  CHECK(braid::to_wire({7, other}) == 1009);
}

TEST_CASE("a passed deadline equals the condition timed_out and nothing else does", "[error]") {
  for (auto value : all_named) {
    const error_code ec = value;
    CAPTURE(ec);
    CHECK((ec == boost::system::errc::timed_out) == (value == errc::timed_out));
    CHECK((static_cast<std::error_code>(ec) == std::errc::timed_out) == (value == errc::timed_out));
  }
  CHECK(braid::from_wire(110) == boost::system::errc::timed_out);
  CHECK(braid::from_wire(110) != errc::timed_out);
}

TEST_CASE("a message fits the buffer it is given", "[error]") {
  char buffer[8];
  std::memset(buffer, 'x', sizeof(buffer));
  CHECK(std::string{braid::rpc_category().message(4711, buffer, 5)} == "The ");
  CHECK(buffer[5] == 'x');
  CHECK(braid::rpc_category().message(4711, buffer, 0) == buffer);
}

TEST_CASE("a call_error carries text, peer and attempts, and copies share them", "[error]") {
  static_assert(std::is_nothrow_copy_constructible_v<braid::call_error>);
  const braid::call_error error{errc::limit, "busy", "10.0.0.1:8000", 3};
  const auto copy = error;
  CHECK(copy.code() == errc::limit);
  CHECK(copy.text() == "busy");
  CHECK(copy.peer() == "10.0.0.1:8000");
  CHECK(copy.attempts() == 3);
  const std::string what = copy.what();
  for (auto part : {"busy", "10.0.0.1:8000", "3 attempts", "at its limit", "2004"}) {
    CAPTURE(what, part);
    CHECK(what.find(part) != std::string::npos);
  }
  CHECK_THROWS_AS(throw error, boost::system::system_error);
}

TEST_CASE("a call_error without details still says what happened", "[error]") {
  const braid::call_error error{errc::timed_out};
  CHECK(error.text().empty());
  CHECK(error.peer().empty());
  CHECK(error.attempts() == 0);
  CHECK(std::string{error.what()}.find("The deadline passed") == 0);
}

}  // namespace
