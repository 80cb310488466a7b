// What needs more stack than a coroutine has.

#include "core/base_stack.hpp"

#include "core/coroutine.hpp"
#include "unit/coroutine_fixture.hpp"

#include <catch2/catch.hpp>

#include <stdexcept>
#include <string>
#include <vector>

using namespace coroutine_fixture;
using braid::detail::run_on_base_stack;

namespace {

// More than a coroutine's whole stack.
[[gnu::noinline]] void use_much_stack() {
  volatile unsigned char used[std::size_t{256} << 10];
  for (auto& byte : used) byte = 1;
}

}  // namespace

TEST_CASE("base stack: outside of coroutines the function is called as it is") {
  int calls = 0;
  run_on_base_stack([&] { ++calls; });
  CHECK(calls == 1);
  CHECK_THROWS_WITH(run_on_base_stack([] { throw std::runtime_error("thrown"); }), "thrown");
}

TEST_CASE("base stack: a coroutine's function runs on the thread's own stack, and nothing else meanwhile") {
  braid::runtime rt({.loops = 1});
  std::vector<std::string> order;
  std::future<void> other;
  get(braid::spawn(
      rt,
      [&](yield_context yield) {
        other = braid::spawn(
            yield, [&](yield_context) { order.emplace_back("other"); }, asio::use_future);
        for (int i = 0; i < 2; ++i) {
          run_on_base_stack([&] {
            use_much_stack();
            order.emplace_back(braid::in_coroutine() ? "coroutine" : "base");
            run_on_base_stack([&] { order.emplace_back("nested"); });
          });
          order.emplace_back(braid::in_coroutine() ? "back" : "lost");
        }
      },
      asio::use_future));
  get(std::move(other));
  CHECK(order == std::vector<std::string>{"base", "nested", "back", "base", "nested", "back", "other"});
}

TEST_CASE("base stack: what the function throws comes back, and what the coroutine handles stays") {
  braid::runtime rt({.loops = 1});
  std::string inner, outer;
  get(braid::spawn(
      rt,
      [&](yield_context) {
        try {
          throw std::runtime_error("outer");
        } catch (...) {
          try {
            run_on_base_stack([] { throw std::logic_error("inner"); });
          } catch (const std::logic_error& thrown) {
            inner = thrown.what();
          }
          try {
            throw;
          } catch (const std::runtime_error& thrown) {
            outer = thrown.what();
          }
        }
      },
      asio::use_future));
  CHECK(inner == "inner");
  CHECK(outer == "outer");
}
