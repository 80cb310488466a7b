#include "server/method_table.hpp"

#include "unit/server_fixture.hpp"

#include <catch2/catch.hpp>

#include <memory>

using braid::errc;
using braid::error_code;
using braid::server_side::method_table;

namespace {

const google::protobuf::MethodDescriptor& echo_method() {
  return *golden::EchoService::descriptor()->FindMethodByName("Echo");
}

}  // namespace

TEST_CASE("method table: a service is found by its full and by its short name") {
  method_table table;
  error_code ec;
  table.add(std::make_shared<server_test::echo_service>(), {}, ec);
  REQUIRE_FALSE(ec);
  CHECK(table.size() == 2);
  const auto* full = table.find("golden.EchoService", "Echo", ec);
  REQUIRE(full);
  CHECK(full->descriptor->full_name() == "golden.EchoService.Echo");
  CHECK(table.find("EchoService", "Echo", ec) == full);
  CHECK(table.find("EchoService", "Missing", ec) != full);
}

TEST_CASE("method table: what is not there is told apart by service and method") {
  method_table table;
  error_code ec;
  table.add(std::make_shared<server_test::echo_service>(), {}, ec);
  for (const char* name : {"", "Echo", "golden", "golden.", "golden.NoSuchService", "other.EchoService"}) {
    ec = {};
    CHECK_FALSE(table.find(name, "Echo", ec));
    CHECK(ec == errc::no_service);
  }
  for (const char* name : {"", "echo", "Echo2", "EchoService"}) {
    ec = {};
    CHECK_FALSE(table.find("golden.EchoService", name, ec));
    CHECK(ec == errc::no_method);
  }
}

TEST_CASE("method table: a method is there once, whether it came with its service or alone") {
  const braid::detail::plain_handler nothing = [](auto&&...) {};
  method_table table;
  error_code ec;
  table.add(echo_method(), nothing, {}, ec);
  REQUIRE_FALSE(ec);
  table.add(*golden::EchoService::descriptor()->FindMethodByName("Missing"), nothing, {}, ec);
  REQUIRE_FALSE(ec);
  table.add(echo_method(), nothing, {}, ec);
  CHECK(ec == boost::system::errc::invalid_argument);
  ec = {};
  table.add(std::make_shared<server_test::echo_service>(), {}, ec);
  CHECK(ec == boost::system::errc::invalid_argument);
  CHECK(table.size() == 2);
}
