#include "core/stack_pool.hpp"

#include "unit/kernel_guards.hpp"

#include <catch2/catch.hpp>

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#if defined(BOOST_USE_ASAN)
#include <sanitizer/asan_interface.h>
#endif

using braid::core::carve;
using braid::core::contains;
using braid::core::stack_pool;

namespace {

std::size_t page_size() { return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)); }

std::uintptr_t number(const void* p) { return reinterpret_cast<std::uintptr_t>(p); }

std::size_t count_mappings() {
  std::ifstream maps("/proc/self/maps");
  std::size_t count = 0;
  for (std::string line; std::getline(maps, line);) ++count;
  return count;
}

bool resident(const void* address) {
  unsigned char state = 0;
  auto* page = reinterpret_cast<void*>(number(address) / page_size() * page_size());
  return ::mincore(page, page_size(), &state) == 0 && (state & 1) != 0;
}

// Runs `body` in a child process, without a core file and with the default action on SIGSEGV; returns the
// status that waitpid() reports.
template <typename Body>
int status_of_child(Body body) {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const rlimit no_core{0, 0};
    ::setrlimit(RLIMIT_CORE, &no_core);
    std::signal(SIGSEGV, SIG_DFL);
    ::_exit(body());
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return status;
}

// Whether writing one byte there kills a process.
bool write_is_fatal(char* address) {
  const int status = status_of_child([address] {
    *const_cast<volatile char*>(address) = 1;
    return 0;
  });
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV;
}

// Whether AddressSanitizer would report a use of the address; false without it.
bool poisoned([[maybe_unused]] const char* address) {
#if defined(BOOST_USE_ASAN)
  return __asan_address_is_poisoned(address) != 0;
#else
  return false;
#endif
}

std::vector<stack_pool::stack> take(stack_pool& pool, std::size_t count) {
  std::vector<stack_pool::stack> stacks;
  for (std::size_t i = 0; i < count; ++i) {
    stacks.push_back(pool.allocate());
    REQUIRE(stacks.back());
  }
  return stacks;
}

}  // namespace

TEST_CASE("a stack is 64 KiB by default, writable from end to end", "[core][stack_pool]") {
  stack_pool pool;
  CHECK(pool.usable() == 64 * 1024);
  const auto stack = pool.allocate();
  REQUIRE(stack);
  CHECK(stack.size > pool.usable() - 1024);
  CHECK(stack.size <= pool.usable());
  CHECK(number(stack.top) == number(stack.bottom) + stack.size);
  CHECK(number(stack.bottom) % page_size() == 0);
  std::memset(stack.bottom, 0x5a, stack.size);
  CHECK(pool.stats().live == 1);
  CHECK(pool.stats().slabs == 1);
  pool.release(stack);
  CHECK(pool.stats().live == 0);
}

TEST_CASE("a released stack is handed out again whole", "[core][stack_pool]") {
  stack_pool pool;
  const auto stack = pool.allocate();
  auto* last = static_cast<char*>(stack.top) - 1;
  CHECK_FALSE(poisoned(last));
  pool.release(stack);
#if defined(BOOST_USE_ASAN)
  CHECK(poisoned(last));
#endif
  CHECK(pool.allocate().top == stack.top);
  CHECK_FALSE(poisoned(last));
  std::memset(stack.bottom, 0x5a, stack.size);
  pool.release(stack);
}

TEST_CASE("a stack's size is rounded up to pages and to the minimum", "[core][stack_pool]") {
  CHECK(stack_pool({.usable = 1}).usable() == 16 * 1024);
  CHECK(stack_pool({.usable = 20'001}).usable() == (20'001 + page_size() - 1) / page_size() * page_size());
}

TEST_CASE("the stack released last is handed out first", "[core][stack_pool]") {
  stack_pool pool;
  const auto stacks = take(pool, 3);
  pool.release(stacks[1]);
  pool.release(stacks[0]);
  pool.release(stacks[2]);
  CHECK(pool.allocate().bottom == stacks[2].bottom);
  CHECK(pool.allocate().bottom == stacks[0].bottom);
  CHECK(pool.allocate().bottom == stacks[1].bottom);
  for (const auto& stack : stacks) pool.release(stack);
}

TEST_CASE("live stacks do not overlap", "[core][stack_pool]") {
  stack_pool pool({.stacks_per_slab = 8});
  const auto stacks = take(pool, 50);
  std::set<std::uintptr_t> bottoms;
  for (const auto& stack : stacks) bottoms.insert(number(stack.bottom));
  REQUIRE(bottoms.size() == 50);
  std::uintptr_t last = 0;
  for (const auto bottom : bottoms) {
    CHECK(bottom - last >= pool.usable() + page_size());
    last = bottom;
  }
  CHECK(pool.stats().slabs == 7);
  for (const auto& stack : stacks) pool.release(stack);
}

TEST_CASE("stack tops are coloured in steps of a cache line", "[core][stack_pool]") {
  stack_pool pool;
  const auto stacks = take(pool, 16);
  std::set<std::uintptr_t> offsets;
  for (const auto& stack : stacks) offsets.insert(number(stack.top) % page_size());
  CHECK(offsets.size() == 16);
  for (const auto offset : offsets) CHECK(offset % 64 == 0);
  for (const auto& stack : stacks) pool.release(stack);
}

TEST_CASE("free stacks beyond the mark give their pages back and keep their guard", "[core][stack_pool]") {
  stack_pool pool({.keep_warm = 2, .stacks_per_slab = 8});
  const auto stacks = take(pool, 5);
  for (const auto& stack : stacks) std::memset(stack.bottom, 1, stack.size);
  for (std::size_t i = 0; i < 4; ++i) pool.release(stacks[i]);
  CHECK(pool.stats().warm == 2);
  CHECK(pool.stats().free == 7);
  CHECK(resident(stacks[0].bottom));
  CHECK(resident(stacks[1].bottom));
  CHECK_FALSE(resident(stacks[2].bottom));
  CHECK_FALSE(resident(stacks[3].bottom));
  CHECK(resident(stacks[4].bottom));
  CHECK(write_is_fatal(static_cast<char*>(stacks[3].bottom) - 1));
  pool.release(stacks[4]);
}

TEST_CASE("slabs wholly free beyond the mark are unmapped", "[core][stack_pool]") {
  stack_pool pool({.keep_warm = 16, .stacks_per_slab = 8});
  auto stacks = take(pool, 80);
  CHECK(pool.stats().slabs == 10);
  for (const auto& stack : stacks) pool.release(stack);
  CHECK(pool.stats().live == 0);
  CHECK(pool.stats().slabs == 2);
  CHECK(pool.stats().free == 16);
  // What is left is sound.
  stacks = take(pool, 40);
  for (const auto& stack : stacks) std::memset(stack.bottom, 2, stack.size);
  CHECK(pool.stats().slabs == 5);
  for (auto i = stacks.rbegin(); i != stacks.rend(); ++i) pool.release(*i);
  CHECK(pool.stats().free == 16);
}

TEST_CASE("a pool that keeps nothing and one that keeps everything", "[core][stack_pool]") {
  stack_pool nothing({.keep_warm = 0, .stacks_per_slab = 4});
  for (const auto& stack : take(nothing, 9)) nothing.release(stack);
  CHECK(nothing.stats().slabs == 0);
  CHECK(nothing.stats().free == 0);
  stack_pool everything({.keep_warm = SIZE_MAX, .stacks_per_slab = 4});
  for (const auto& stack : take(everything, 9)) everything.release(stack);
  CHECK(everything.stats().slabs == 3);
  CHECK(everything.stats().warm == 9);
}

TEST_CASE("a slab with one live stack stays, whatever else is released", "[core][stack_pool]") {
  stack_pool pool({.keep_warm = 0, .stacks_per_slab = 4});
  const auto stacks = take(pool, 12);
  for (std::size_t i = 0; i < stacks.size(); ++i) {
    if (i != 5) pool.release(stacks[i]);
  }
  CHECK(pool.stats().slabs == 1);
  std::memset(stacks[5].bottom, 3, stacks[5].size);
  pool.release(stacks[5]);
  CHECK(pool.stats().slabs == 0);
}

TEST_CASE("the guard below a stack faults", "[core][stack_pool]") {
  const auto guard = GENERATE(stack_pool::guard_kind::automatic, stack_pool::guard_kind::protect);
  stack_pool pool({.guard = guard});
  const auto stacks = take(pool, 2);
  for (const auto& stack : stacks) {
    auto* bottom = static_cast<char*>(stack.bottom);
    CHECK_FALSE(write_is_fatal(bottom));
    CHECK(write_is_fatal(bottom - 1));
    CHECK(write_is_fatal(bottom - page_size()));
  }
  CHECK(pool.stats().unguarded == 0);
  for (const auto& stack : stacks) pool.release(stack);
}

TEST_CASE("stacks without a guard are counted", "[core][stack_pool]") {
  stack_pool pool({.keep_warm = 0, .stacks_per_slab = 4, .guard = stack_pool::guard_kind::none});
  const auto stacks = take(pool, 3);
  CHECK(pool.stats().unguarded == 3);
  for (const auto& stack : stacks) pool.release(stack);
  CHECK(pool.stats().unguarded == 0);
}

TEST_CASE("at the kernel's limit of mappings a stack comes without a guard", "[core][stack_pool]") {
  std::size_t limit = 0;
  std::ifstream("/proc/sys/vm/max_map_count") >> limit;
  if (limit == 0 || limit > 200'000) {
    SUCCEED("the limit of mappings is too high to be reached here");
    return;
  }
  const int status = status_of_child([limit] {
    stack_pool pool({.guard = stack_pool::guard_kind::protect, .most_protected = SIZE_MAX});
    for (std::size_t i = 0; i < limit; ++i) {
      const auto stack = pool.allocate();
      if (!stack) return 1;
      if (pool.stats().unguarded == 0) continue;
      std::memset(stack.bottom, 1, stack.size);
      return pool.stats().unguarded == 1 ? 0 : 2;
    }
    return 3;
  });
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("beyond the bound for the process stacks come without a guard, and cost no mapping each",
          "[core][stack_pool]") {
  constexpr std::size_t bound = 100;
  int told = 0;
  const stack_pool::options options{
      .keep_warm = 0, .guard = stack_pool::guard_kind::protect, .most_protected = bound, .on_unguarded = [&] {
        ++told;
      }};
  stack_pool first(options);
  const auto some = take(first, 60);
  CHECK(first.stats().unguarded == 0);
  CHECK(told == 0);
  {
    stack_pool second(options);
    const auto rest = take(second, 64);
    CHECK(second.stats().unguarded == 24);
    CHECK(told == 1);
    const std::size_t before = count_mappings();
    const auto many = take(second, 64 * 100);
    CAPTURE(before);
    CHECK(count_mappings() - before <= 2 * 100);  // one a slab, and what a sanitizer adds to it
    CHECK(second.stats().unguarded == 24 + many.size());
    CHECK(told == 1);
    CHECK(write_is_fatal(static_cast<char*>(rest[39].bottom) - 1));
    CHECK_FALSE(write_is_fatal(static_cast<char*>(rest[40].bottom) - 1));
    for (const auto& stack : rest) second.release(stack);
    for (const auto& stack : many) second.release(stack);
    CHECK(second.stats().unguarded == 0);
  }
  // Those of the pool that is gone are free again.
  const auto more = take(first, 41);
  CHECK(first.stats().unguarded == 1);
  CHECK(told == 2);
  for (const auto& stack : some) first.release(stack);
  for (const auto& stack : more) first.release(stack);
}

TEST_CASE("the bound for the process leaves the program mappings, however many stacks there are",
          "[core][stack_pool]") {
  const int status = status_of_child([] {
    const std::size_t before = count_mappings();
    stack_pool pool({.guard = stack_pool::guard_kind::protect});
    for (std::size_t i = 0; i < 40'000; ++i)
      if (!pool.allocate()) return 1;
    if (pool.stats().unguarded != 40'000 - stack_pool::default_most_protected) return 2;
    return count_mappings() - before < 50'000 ? 0 : 3;
  });
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("20,000 stacks need no mapping each", "[core][stack_pool]") {
  if (!kernel_installs_guards()) {
    SUCCEED("this kernel has no MADV_GUARD_INSTALL; the count of mappings is not checked");
    return;
  }
  const std::size_t before = count_mappings();
  stack_pool pool;
  const auto stacks = take(pool, 20'000);
  for (const auto& stack : stacks) std::memset(static_cast<char*>(stack.top) - 64, 4, 64);
  const std::size_t grown = count_mappings() - before;
  CAPTURE(before, grown);
  CHECK(pool.stats().slabs == 313);
  CHECK(pool.stats().unguarded == 0);
  CHECK(grown < 1000);  // one a slab where the kernel merges none; some sanitizers add one for their own use
  for (const auto& stack : stacks) pool.release(stack);
  CHECK(pool.stats().slabs == 16);
}

TEST_CASE("a pool at its limit returns an empty stack until one is released", "[core][stack_pool]") {
  stack_pool pool({.max_stacks = 2});
  const auto stacks = take(pool, 2);
  CHECK_FALSE(pool.allocate());
  CHECK(pool.stats().live == 2);
  pool.release(stacks[0]);
  const auto again = pool.allocate();
  CHECK(again.bottom == stacks[0].bottom);
  CHECK_FALSE(pool.allocate());
  pool.release(again);
  pool.release(stacks[1]);
}

TEST_CASE("sizes that cannot be mapped give an empty stack", "[core][stack_pool]") {
  stack_pool too_large({.usable = std::size_t{1} << 50});
  CHECK_FALSE(too_large.allocate());
  stack_pool overflowing({.usable = SIZE_MAX});
  CHECK_FALSE(overflowing.allocate());
  CHECK(overflowing.stats().live == 0);
  CHECK(overflowing.stats().slabs == 0);
}

TEST_CASE("carve cuts an aligned block off the top", "[core][stack_pool]") {
  stack_pool pool;
  const auto whole = pool.allocate();
  const auto alignment = GENERATE(std::size_t{1}, std::size_t{16}, std::size_t{64}, std::size_t{256});
  const auto cut = carve(whole, 200, alignment);
  REQUIRE(cut.block != nullptr);
  CHECK(number(cut.block) % alignment == 0);
  CHECK(number(cut.block) + 200 <= number(whole.top));
  CHECK(cut.rest.top == cut.block);
  CHECK(number(cut.rest.top) % 16 == 0);
  CHECK(cut.rest.bottom == whole.bottom);
  CHECK(number(cut.rest.top) == number(cut.rest.bottom) + cut.rest.size);
  pool.release(cut.rest);
  CHECK(pool.stats().live == 0);
}

TEST_CASE("carve refuses what would leave no stack", "[core][stack_pool]") {
  stack_pool pool({.usable = 16 * 1024});
  const auto whole = pool.allocate();
  CHECK(carve(whole, whole.size - 4096 - 16, 16).block != nullptr);
  CHECK(carve(whole, whole.size - 4096, 16).block == nullptr);
  CHECK(carve(whole, SIZE_MAX, 16).block == nullptr);
  CHECK(carve(whole, 16, std::size_t{1} << 20).block == nullptr);
  pool.release(whole);
}

TEST_CASE("contains knows the addresses of a stack", "[core][stack_pool]") {
  stack_pool pool;
  const auto stack = pool.allocate();
  auto* bottom = static_cast<char*>(stack.bottom);
  CHECK(contains(stack, bottom));
  CHECK(contains(stack, bottom + stack.size - 1));
  CHECK_FALSE(contains(stack, bottom + stack.size));
  CHECK_FALSE(contains(stack, bottom - 1));
  CHECK_FALSE(contains(stack, __builtin_frame_address(0)));
  CHECK_FALSE(contains(stack_pool::stack{}, nullptr));
  pool.release(stack);
}
