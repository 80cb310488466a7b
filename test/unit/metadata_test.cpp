#include <braid/metadata.hpp>

#include <catch2/catch.hpp>

#include <string>

namespace {

using braid::metadata;

TEST_CASE("a user field that was never set is nothing, not an empty text", "[metadata]") {
  metadata data;
  CHECK_FALSE(data.user_field("tenant").has_value());
  data.set_user_field("tenant", "");
  REQUIRE(data.user_field("tenant").has_value());
  CHECK(data.user_field("tenant")->empty());
}

TEST_CASE("setting a user field again replaces its value in place", "[metadata]") {
  metadata data;
  data.set_user_field("a", "1");
  data.set_user_field("b", "2");
  data.set_user_field("a", "3");
  CHECK(data.user_fields == metadata::fields{{"a", "3"}, {"b", "2"}});
  CHECK(data.user_field("a") == "3");
  CHECK(data.user_field("b") == "2");
}

TEST_CASE("user fields hold any bytes", "[metadata]") {
  const std::string bytes{"\0\xff \n", 4};
  metadata data;
  data.set_user_field(bytes, bytes);
  CHECK(data.user_field(bytes) == bytes);
  CHECK_FALSE(data.user_field(bytes.substr(0, 3)).has_value());
}

TEST_CASE("a field may be set from its own value", "[metadata]") {
  metadata data;
  data.set_user_field("k", "a value too long for the small string of any library");
  data.set_user_field("k", *data.user_field("k"));
  CHECK(data.user_field("k") == "a value too long for the small string of any library");
}

TEST_CASE("a copy of metadata changes without the original", "[metadata]") {
  metadata parent;
  parent.set_user_field("k", "parent");
  parent.attachment = braid::buffer{"bytes"};
  metadata sub = parent;
  sub.set_user_field("k", "sub");
  sub.attachment.append("more");
  CHECK(parent.user_field("k") == "parent");
  CHECK(parent.attachment.to_string() == "bytes");
  CHECK(sub.attachment.to_string() == "bytesmore");
}

TEST_CASE("metadata is empty at first", "[metadata]") {
  const metadata data;
  CHECK(data.user_fields.empty());
  CHECK_FALSE(data.log_id.has_value());
  CHECK_FALSE(data.trace_id.has_value());
  CHECK_FALSE(data.request_code.has_value());
  CHECK(data.request_id.empty());
  CHECK(data.attachment.empty());
}

}  // namespace
