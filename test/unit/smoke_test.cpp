#include <braid/config.hpp>

#include <catch2/catch.hpp>

TEST_CASE("smoke") { REQUIRE(BOOST_VERSION >= 108100); }
