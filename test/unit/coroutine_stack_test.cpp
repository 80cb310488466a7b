#include <braid/testing/simulation.hpp>

#include "core/environment.hpp"
#include "core/loop.hpp"
#include "core/runtime_core.hpp"
#include "coroutine_fixture.hpp"
#include "unit/kernel_guards.hpp"

#include <catch2/catch.hpp>

#include <unistd.h>

#include <fstream>

using namespace std::chrono_literals;
using namespace coroutine_fixture;

namespace {

std::size_t lines_of(const char* file) {
  std::ifstream in(file);
  std::size_t lines = 0;
  for (std::string line; std::getline(in, line);) ++lines;
  return lines;
}

std::size_t resident_bytes() {
  std::ifstream in("/proc/self/statm");
  std::size_t total = 0;
  std::size_t resident = 0;
  in >> total >> resident;
  return resident * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

[[gnu::noinline]] void touch_stack(unsigned char value) {
  volatile unsigned char used[2048];
  for (auto& byte : used) byte = value;
}

#if defined(__SANITIZE_THREAD__)
// ThreadSanitizer gives each stack that it knows a slot of its thread table, which has about 8,000.
constexpr int coroutines = 2'000;
#elif defined(__SANITIZE_ADDRESS__)
// AddressSanitizer poisons and unpoisons each stack, which makes the full number slow.
constexpr int coroutines = 20'000;
#else
constexpr int coroutines = 200'000;
#endif

}  // namespace

TEST_CASE("stacks: 200,000 live coroutines fit into the kernel's mappings and into 12 KiB each") {
  braid::runtime rt({.loops = 1});
  const auto count = static_cast<std::size_t>(coroutines);
  const std::size_t lines_before = lines_of("/proc/self/maps");
  const std::size_t resident_before = resident_bytes();
  int resumed = 0;
  int ended = 0;
  bool correct = true;
  std::size_t lines_during = 0;
  std::size_t resident_during = 0;
  get(braid::spawn(
      rt,
      [&](yield_context yield) {
        int waiting = 0;
        for (int i = 0; i < coroutines; ++i) {
          braid::spawn(
              yield,
              [&, i](yield_context self) {
                touch_stack(static_cast<unsigned char>(i));
                ++waiting;
                const int mine = i;
                error_code ec;
                braid::sleep_for(1h, self[ec]);
                correct = correct && ec == aborted && mine == i;
                ++resumed;
              },
              [&](error_code) { ++ended; });
          if (i % 1000 == 0) asio::post(yield.get_executor(), yield);
        }
        while (waiting < coroutines) asio::post(yield.get_executor(), yield);
        lines_during = lines_of("/proc/self/maps");
        resident_during = resident_bytes();
        rt.stop();
        while (ended < coroutines) asio::post(yield.get_executor(), yield);
      },
      asio::use_future));
  CHECK(resumed == coroutines);
  CHECK(correct);
  CHECK(lines_during < lines_before + (kernel_installs_guards() ? 10'000 : 55'000));
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  CHECK((resident_during - resident_before) / count < std::size_t{12} << 10);
  // Beyond the few that the pool keeps warm, the pages went back.
  CHECK(resident_bytes() < resident_before + (resident_during - resident_before) / 4);
#else
  CHECK(resident_during >= resident_before + count * 2048);
#endif
}

TEST_CASE("stacks: coroutines one after the other use one stack again") {
  in_coroutine([](yield_context yield) {
    auto& stacks = braid::core::loop::current()->stacks();
    for (int i = 0; i < 1000; ++i)
      braid::spawn(
          yield, [](yield_context) {}, yield);
    CHECK(stacks.stats().live == 1);
    CHECK(stacks.stats().warm == 1);
  });
}

TEST_CASE("stacks: a coroutine's stack is as large as the option says") {
  braid::runtime rt({.loops = 1, .stack_size = 1 << 20});
  const auto used = get(braid::spawn(
      rt,
      [](yield_context yield) {
        volatile char large[900 * 1024];
        large[0] = 1;
        asio::post(yield.get_executor(), yield);
        large[sizeof large - 1] = 1;
        return large[0] + large[sizeof large - 1];
      },
      asio::use_future));
  CHECK(used == 2);
}

TEST_CASE("stacks: on an older kernel a runtime says once that it has no guards left, and goes on") {
  braid::testing::simulation sim(1);
  auto kernel = std::make_shared<braid::core::environment>(*sim.environment());
  kernel->most_protected_stacks = 10;
  log_lines lines;
  auto options = sim.node_options();
  options.loops = 2;
  options.log = lines.sink();
  options.environment = kernel;
  braid::runtime rt(options);
  std::size_t ended = 0;
  const auto run = [&](std::size_t count) {
    ended = 0;
    for (std::size_t i = 0; i < count; ++i) {
      braid::spawn(rt, [&](yield_context yield) {
        braid::sleep_for(1s, yield);
        ++ended;
      });
    }
    REQUIRE(sim.run_until([&] { return ended == count; }));
  };
  run(5);
  CHECK(lines.count("without a guard page") == 0);
  run(1000);
  CHECK(lines.count("warning: coroutines run on stacks without a guard page") == 1);
}
