#include <braid/endpoint.hpp>

#include <boost/asio/ip/address.hpp>
#include <boost/container_hash/hash.hpp>
#include <catch2/catch.hpp>

#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

namespace {

using braid::endpoint;
using kind = endpoint::kind;
using namespace std::string_literals;
namespace ip = boost::asio::ip;

struct good_row {
  std::string text;
  kind type;
  std::string host;
  std::uint16_t port;
  std::string printed = text;
};

TEST_CASE("an endpoint that is well written is read, and printed so that it reads back", "[endpoint]") {
  const auto row = GENERATE(values<good_row>({
      {"1.2.3.4:80", kind::literal, "1.2.3.4", 80},
      {"0.0.0.0:0", kind::literal, "0.0.0.0", 0},
      {"255.255.255.255:65535", kind::literal, "255.255.255.255", 65535},
      {"[::1]:80", kind::literal, "::1", 80},
      {"[2001:DB8:0:0::1]:443", kind::literal, "2001:db8::1", 443, "[2001:db8::1]:443"},
      {"[::ffff:1.2.3.4]:1", kind::literal, "::ffff:1.2.3.4", 1},
      {"[fe80::1%1]:80", kind::literal, "fe80::1%lo", 80, "[fe80::1%lo]:80"},
      {"localhost:8000", kind::host_name, "localhost", 8000},
      {"Example.ORG:80", kind::host_name, "example.org", 80, "example.org:80"},
      {"example.org.:80", kind::host_name, "example.org.", 80},
      {"a-b_c.1x:80", kind::host_name, "a-b_c.1x", 80},
      {"4.example:080", kind::host_name, "4.example", 80, "4.example:80"},
      {"face:80", kind::host_name, "face", 80},
      {std::string(63, 'a') + ":80", kind::host_name, std::string(63, 'a'), 80},
      {"unix:/run/echo.sock", kind::unix_path, "/run/echo.sock", 0},
      {"unix:relative and:odd", kind::unix_path, "relative and:odd", 0},
      {"unix:80", kind::unix_path, "80", 0},
      {"unix:@echo", kind::unix_path, "@echo", 0},
      {"unix:./@echo", kind::unix_path, "./@echo", 0},
      {"unix:@" + std::string(106, 'n'), kind::unix_path, "@" + std::string(106, 'n'), 0},
      {"unix:" + std::string(107, 'p'), kind::unix_path, std::string(107, 'p'), 0},
  }));
  CAPTURE(row.text);
  std::string why = "untouched";
  const auto parsed = endpoint::parse(row.text, why);
  REQUIRE(parsed.has_value());
  CHECK(why == "untouched");
  CHECK(parsed->type() == row.type);
  CHECK(parsed->is_literal() == (row.type == kind::literal));
  CHECK(parsed->host() == row.host);
  CHECK(parsed->port() == row.port);
  CHECK(parsed->to_string() == row.printed);
  CHECK(endpoint::parse(parsed->to_string()).value() == *parsed);
}

struct bad_row {
  std::string text;
  std::string why;
};

TEST_CASE("an endpoint that is badly written is refused, with what is wrong", "[endpoint]") {
  const auto row = GENERATE(values<bad_row>({
      {"", "the endpoint is empty"},
      {"host", "the port is missing"},
      {"host:", "the port is missing"},
      {"1.2.3.4", "the port is missing"},
      {"[::1]", "the port is missing"},
      {"[::1]:", "the port is missing"},
      {"host:http", "the port is not a number"},
      {"host:-1", "the port is not a number"},
      {"host:+1", "the port is not a number"},
      {"host:65536", "the port is larger than 65535"},
      {"host:99999999999999999999", "the port is larger than 65535"},
      {"host:80x", "there is something behind the port"},
      {"host:80:90", "there is something behind the port"},
      {"host:80/", "there is something behind the port"},
      {"[::1]:80]", "there is something behind the port"},
      {":80", "the host is empty"},
      {"[]:80", "the host is empty"},
      {"[::1:80", "the bracket '[' is not closed"},
      {"[", "the bracket '[' is not closed"},
      {"::1]:80", "there is a bracket where none may be"},
      {"host]:80", "there is a bracket where none may be"},
      {"a[::1]:80", "there is a bracket where none may be"},
      {"[::1]80", "']' must be followed by ':' and the port"},
      {"[[::1]]:80", "what is in brackets is not a valid IPv6 address"},
      {"[1.2.3.4]:80", "what is in brackets is not a valid IPv6 address"},
      {"[host]:80", "what is in brackets is not a valid IPv6 address"},
      {"[1:2:3:4:5:6:7:8:9]:80", "what is in brackets is not a valid IPv6 address"},
      {"[fe80::1%no_such_interface]:80", "the scope of the IPv6 address is not a known interface"},
      {"[fe80::1%1x]:80", "the scope of the IPv6 address is not a known interface"},
      {"[fe80::1%9999999999]:80", "the scope of the IPv6 address is not a known interface"},
      {"[fe80::1%]:80", "the scope of the IPv6 address is not a known interface"},
      {"::1:80", "an IPv6 address must stand in brackets, as in [::1]:80"},
      {"fe80::1", "an IPv6 address must stand in brackets, as in [::1]:80"},
      {" host:80", "there is a space in it"},
      {"host:80 ", "there is a space in it"},
      {"host: 80", "there is a space in it"},
      {"host:80\n", "there is a control character in it"},
      {"\thost:80", "there is a control character in it"},
      {"ho\x7fst:80", "there is a control character in it"},
      {"host\0.org:80"s, "there is a zero byte in it"},
      {"1.2.3.4\0:80"s, "there is a zero byte in it"},
      {"[::1\0]:80"s, "there is a zero byte in it"},
      {"host:80\0"s, "there is a zero byte in it"},
      {"unix:/a\0b"s, "there is a zero byte in it"},
      {"unix:/a\nb", "there is a control character in it"},
      {"unix:", "the path of the unix socket is empty"},
      {"unix:" + std::string(108, 'p'), "the path of the unix socket is longer than 107 bytes"},
      {"unix:@", "the abstract name of the unix socket is empty"},
      {"unix:@" + std::string(107, 'n'), "the path of the unix socket is longer than 107 bytes"},
      {"1.2.3:80", "the host is not a valid IPv4 address"},
      {"256.0.0.1:80", "the host is not a valid IPv4 address"},
      {"1.2.3.4.:80", "the host is not a valid IPv4 address"},
      {"1.2.3.4.5:80", "the host is not a valid IPv4 address"},
      {"80:80", "the host is not a valid IPv4 address"},
      {"0x7f000001:80", "the host is not a valid IPv4 address"},
      {"a..b:80", "the host name has an empty label"},
      {".a:80", "the host name has an empty label"},
      {".:80", "the host name has an empty label"},
      {"a b:80", "there is a space in it"},
      {"http://host:80", "there is a scheme before the host"},
      {"a/b:80", "the host name has a character it may not have"},
      {"b\xc3\xbc"
       "cher:80",
       "the host name has a character it may not have"},
      {std::string(64, 'a') + ":80", "the host name has a label longer than 63 characters"},
  }));
  CAPTURE(row.text);
  std::string why;
  const auto parsed = endpoint::parse(row.text, why);
  REQUIRE(parsed.has_error());
  CHECK(parsed.error() == boost::system::errc::invalid_argument);
  CHECK(parsed.error().value() == 22);
  CHECK(why == row.why);
  CHECK(endpoint::parse(row.text).has_error());
}

TEST_CASE("a host name may have 253 characters and no more", "[endpoint]") {
  std::string name;
  for (int i = 0; i < 126; ++i) name += "a.";
  name += 'a';
  REQUIRE(name.size() == 253);
  CHECK(endpoint::parse(name + ":80").has_value());
  CHECK(endpoint::parse(name + ".:80").has_value());
  std::string why;
  CHECK(endpoint::parse("b" + name + ":80", why).has_error());
  CHECK(why == "the host name is longer than 253 characters");
}

TEST_CASE("no text of a few odd characters does harm, and what is read reads back", "[endpoint]") {
  const std::string alphabet = "[]:.%1a \0x"s;
  std::string text;
  std::size_t read = 0;
  for (std::size_t code = 0; code < 1'000'000; ++code) {
    text.clear();
    for (std::size_t rest = code; rest != 0; rest /= 10) text += alphabet[rest % 10];
    const auto parsed = endpoint::parse(text);
    if (!parsed) continue;
    ++read;
    if (endpoint::parse(parsed->to_string()) != parsed) {
      CAPTURE(text);
      FAIL("does not read back");
    }
  }
  CHECK(read > 100);
}

TEST_CASE("an endpoint made from an address is the one that is parsed", "[endpoint]") {
  const auto v4 = ip::make_address_v4("1.2.3.4");
  const endpoint made{v4, 80};
  CHECK(made == endpoint::parse("1.2.3.4:80").value());
  CHECK(made.address() == v4);
  CHECK(endpoint{made.tcp()} == made);
  CHECK(endpoint{ip::tcp::endpoint{ip::make_address("::1"), 9}}.to_string() == "[::1]:9");
  CHECK(endpoint{}.to_string() == "0.0.0.0:0");
}

TEST_CASE("what is no literal has no address", "[endpoint]") {
  for (auto text : {"localhost:80", "unix:/a"}) {
    const auto e = endpoint::parse(text).value();
    CHECK_FALSE(e.is_literal());
    CHECK(e.address().is_unspecified());
  }
}

TEST_CASE("endpoints order by kind, place and port, and equal ones hash alike", "[endpoint]") {
  const std::vector<std::string> sorted = {"1.2.3.4:80",  "1.2.3.4:81",    "1.2.3.5:1", "[::1]:1",
                                           "[fe80::1]:1", "[fe80::1%1]:1", "a:2",       "a:10",
                                           "b:1",         "unix:/a",       "unix:/b"};
  std::unordered_set<endpoint> set;
  std::unordered_set<endpoint, boost::hash<endpoint>> boost_set;
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    const auto a = endpoint::parse(sorted[i]).value();
    set.insert(a);
    boost_set.insert(a);
    for (std::size_t j = 0; j < sorted.size(); ++j) {
      CAPTURE(sorted[i], sorted[j]);
      const auto b = endpoint::parse(sorted[j]).value();
      CHECK((a == b) == (i == j));
      CHECK((a <=> b) == (i <=> j));
      if (i == j) CHECK(hash_value(a) == hash_value(b));
    }
  }
  CHECK(set.size() == sorted.size());
  CHECK(boost_set.size() == sorted.size());
  CHECK(set.count(endpoint::parse("A:2").value()) == 1);
}

}  // namespace
