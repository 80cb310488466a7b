#include "program.hpp"

#include <catch2/catch.hpp>

#include <regex>
#include <string>

using demo_test::program;

namespace {

int number_in(const std::string& output, const std::string& pattern) {
  std::smatch found;
  return std::regex_search(output, found, std::regex(pattern)) ? std::stoi(found[1]) : -1;
}

}  // namespace

TEST_CASE("cascade_echo shows a deadline and a cancellation at the far end of three servers") {
  program demo("cascade_echo", {});
  const int status = demo.ends();
  const std::string& output = demo.output();
  INFO(output);
  CHECK(status == 0);
  CHECK(output.find("client got \"hello\" back") != std::string::npos);
  const auto second = output.find("2. A deadline");
  const auto third = output.find("3. A cancelled call");
  REQUIRE(second != std::string::npos);
  REQUIRE(third != std::string::npos);
  const std::string by_deadline = output.substr(second, third - second);
  const int left = number_in(by_deadline, "far +got \"slow\", ([0-9]+) ms left");
  CHECK(left > 0);
  CHECK(left <= 300);
  CHECK(by_deadline.find("far    stopped waiting: deadline") != std::string::npos);
  CHECK(by_deadline.find("(1008)") != std::string::npos);
  const std::string by_client = output.substr(third);
  CHECK(std::regex_search(by_client, std::regex("far +stopped waiting: [a-z_]+")));
  CHECK(by_client.find("stopped waiting: none") == std::string::npos);
  CHECK(by_client.find("(125)") != std::string::npos);
}

TEST_CASE("offload shows that a heavy handler on a pool does not hold up the others") {
  program demo("offload", {"--milliseconds", "300"});
  const int status = demo.ends();
  const std::string& output = demo.output();
  INFO(output);
  CHECK(status == 0);
  CHECK(output.find("heavy handler on the loop: ") != std::string::npos);
  CHECK(number_in(output, "on a pool  : [0-9]+ primes found; ([0-9]+) pings answered meanwhile") > 0);
}
