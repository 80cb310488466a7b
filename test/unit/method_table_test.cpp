#include "server/method_table.hpp"

#include <braid/runtime.hpp>
#include <braid/server.hpp>
#include <braid/testing/simulation.hpp>

#include "unit/server_fixture.hpp"

#include <catch2/catch.hpp>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>

#include <memory>
#include <string>

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

TEST_CASE("server: a method whose messages are not of the program's generated code is refused with 22") {
  google::protobuf::DescriptorPool pool(google::protobuf::DescriptorPool::generated_pool());
  google::protobuf::FileDescriptorProto file;
  file.set_name("made/at/run/time.proto");
  file.set_package("made");
  file.add_dependency(golden::EchoService::descriptor()->file()->name());
  file.add_message_type()->set_name("Note");
  auto& service = *file.add_service();
  service.set_name("Notes");
  const auto add = [&](const char* name, const char* input, const char* output) {
    auto& method = *service.add_method();
    method.set_name(name);
    method.set_input_type(input);
    method.set_output_type(output);
  };
  add("Put", ".made.Note", ".golden.EchoResponse");
  add("Get", ".golden.EchoRequest", ".made.Note");
  add("Echo", ".golden.EchoRequest", ".golden.EchoResponse");
  const auto* const built = pool.BuildFile(file);
  REQUIRE(built);
  braid::testing::simulation sim{1};
  braid::runtime rt{sim.node_options()};
  braid::server server{rt};
  const auto handle = [&](const char* name) {
    server.handle(*built->service(0)->FindMethodByName(name),
                  [](braid::server_call&, const google::protobuf::Message&, google::protobuf::Message&) {});
  };
  for (const char* name : {"Put", "Get"}) {
    CAPTURE(name);
    try {
      handle(name);
      FAIL("it was taken");
    } catch (const boost::system::system_error& refused) {
      CHECK(refused.code() == boost::system::errc::invalid_argument);
      CHECK(std::string(refused.what()).find("not of generated code") != std::string::npos);
    }
  }
  CHECK_NOTHROW(handle("Echo"));
}
