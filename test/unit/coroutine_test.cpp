#include <braid/spawn.hpp>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_future.hpp>
#include <catch2/catch.hpp>

#include <future>

using namespace std::chrono_literals;
namespace asio = boost::asio;

TEST_CASE("coroutine: a spawned function returns its value to the token") {
  braid::runtime rt({.loops = 1});
  auto result = braid::spawn(rt, [](braid::yield_context) { return 42; }, asio::use_future);
  CHECK(result.get() == 42);
}

TEST_CASE("coroutine: an await of a foreign timer suspends and resumes") {
  braid::runtime rt({.loops = 1});
  auto result = braid::spawn(
      rt,
      [](braid::yield_context yield) {
        asio::steady_timer timer(yield.get_executor());
        timer.expires_after(1ms);
        timer.async_wait(yield);
        braid::sleep_for(1ms, yield);
        asio::post(yield.get_executor(), yield);
        return 7;
      },
      asio::use_future);
  CHECK(result.get() == 7);
}
