#include "coroutine_fixture.hpp"

#include <catch2/catch.hpp>

#include <exception>
#include <stdexcept>

using namespace std::chrono_literals;
using namespace coroutine_fixture;

TEST_CASE("exceptions: coroutines suspended in catch blocks rethrow their own") {
  in_coroutine([](yield_context yield) {
    std::string seen;
    int running = 3;
    for (const std::string name : {"a", "b", "c"}) {
      braid::spawn(yield, [&, name](yield_context self) {
        for (int i = 0; i < 3; ++i) {
          try {
            throw std::runtime_error(name);
          } catch (...) {
            asio::post(self.get_executor(), self);
            try {
              throw std::logic_error("inner " + name);
            } catch (const std::exception& inner) {
              asio::post(self.get_executor(), self);
              CHECK(inner.what() == "inner " + name);
            }
            try {
              throw;
            } catch (const std::exception& mine) {
              seen += mine.what() == name ? "." : "X";
            }
          }
        }
        CHECK(std::uncaught_exceptions() == 0);
        CHECK_FALSE(std::current_exception());
        --running;
      });
    }
    while (running > 0) {
      CHECK_FALSE(std::current_exception());
      asio::post(yield.get_executor(), yield);
    }
    CHECK(seen == ".........");
  });
}

TEST_CASE("exceptions: one that leaves a coroutine is told to the token by code and to the log by text") {
  log_lines lines;
  braid::runtime rt({.loops = 1, .log = lines.sink()});
  const auto code_of = [&](auto thrown) {
    std::promise<error_code> ended;
    auto result = ended.get_future();
    braid::spawn(
        rt, [thrown](yield_context) { throw thrown; }, [&](error_code ec) { ended.set_value(ec); });
    return get(std::move(result));
  };
  CHECK(code_of(boost::system::system_error(refused, "first text")) == refused);
  CHECK(code_of(std::runtime_error("second text")) == braid::errc::internal);
  CHECK(code_of(7) == braid::errc::internal);
  CHECK(code_of(boost::system::system_error(error_code(), "a success")) == braid::errc::internal);
  CHECK(lines.count("first text") == 1);
  CHECK(lines.count("second text") == 1);
  CHECK(lines.count("no std::exception") == 1);
  CHECK(lines.count("a success") == 1);
  CHECK(lines.count("error: the coroutine spawned at ") == 4);
  CHECK(lines.count("coroutine_exception_test.cpp") == 4);
}

TEST_CASE("exceptions: without a token they are logged, and the loop lives on") {
  log_lines lines;
  braid::runtime rt({.loops = 1, .log = lines.sink()});
  braid::spawn(rt, [](yield_context self) {
    asio::post(self.get_executor(), self);
    throw std::runtime_error("nobody waits");
  });
  lines.wait_for("nobody waits", 1);
  CHECK(get(braid::spawn(
            rt, [](yield_context) { return 3; }, asio::use_future)) == 3);
}

TEST_CASE("exceptions: the end by a cancellation is no error in the log, the same code without one is") {
  log_lines lines;
  {
    braid::runtime rt({.loops = 1, .log = lines.sink()});
    braid::spawn(rt, [](yield_context self) { braid::sleep_for(1h, self); });
    get(asio::post(rt.get_executor(), asio::use_future));
  }
  CHECK(lines.all().empty());
  braid::runtime rt({.loops = 1, .log = lines.sink()});
  braid::spawn(rt, [](yield_context) { throw boost::system::system_error(aborted); });
  lines.wait_for("error: ", 1);
  CHECK(lines.all().size() == 1);
}

TEST_CASE("exceptions: the function is destroyed on its coroutine, before its token hears of the end") {
  for (const bool throwing : {false, true}) {
    log_lines lines;
    braid::runtime rt({.loops = 1, .log = lines.sink()});
    std::string trace;
    std::promise<void> ended;
    auto result = ended.get_future();
    // Made as a shared object, so that only the copy inside the coroutine is counted.
    auto function = [kept = std::shared_ptr<std::string>(&trace, [](std::string* t) { *t += "destroyed "; }),
                     throwing](yield_context) {
      if (throwing) throw std::runtime_error("thrown");
    };
    braid::spawn(rt, std::move(function), [&](error_code) {
      trace += "told";
      ended.set_value();
    });
    get(std::move(result));
    CHECK(trace == "destroyed told");
  }
}

TEST_CASE("exceptions: unwinding through a suspension point keeps its own exception") {
  in_coroutine([](yield_context yield) {
    // Not a suspension in a destructor, which is forbidden: the switches happen in the handlers between.
    for (int i = 0; i < 3; ++i) {
      bool caught = false;
      try {
        asio::post(yield.get_executor(), yield);
        throw std::runtime_error("x");
      } catch (const std::runtime_error&) {
        const auto mine = std::current_exception();
        braid::sleep_for(1ms, yield);
        caught = std::current_exception() == mine;
      }
      CHECK(caught);
    }
  });
}
