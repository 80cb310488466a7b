#include <catch2/catch.hpp>

#include <braid/config.hpp>

TEST_CASE("smoke") { REQUIRE(BOOST_VERSION >= 108100); }
