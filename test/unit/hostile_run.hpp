#pragma once

// What the hostile tests of servers and clients, in memory and over sockets, have in common.

#include "golden/hostile_cases.hpp"
#include "unit/hostile_report.hpp"
#include "unit/live_memory.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

/// Every how manieth value of a byte is tried where a sanitizer makes all of them take too long. A prime, so
/// that it meets every byte, and most values in some byte.
constexpr std::size_t sample_stride = 43;

/// The same in memory. There all runs on one thread, so ThreadSanitizer has nothing to find.
#if defined(__SANITIZE_THREAD__)
constexpr std::size_t memory_stride = sample_stride;
#else
constexpr std::size_t memory_stride = 1;
#endif

/// What the hostile peer does when it has sent a case.
enum class ending { stay, half_close, close, reset, silence };

/// What is thrown: the cases of a table that are spoilt in one way, or every so manieth of them.
struct hostile_part {
  const golden::hostile_table& table;
  golden::spoiling how;
  std::size_t stride = 1;

  std::size_t size() const { return (table.size(how) + stride - 1) / stride; }
  golden::hostile_case make(std::size_t n, const golden::hostile_table::rewriter& rewrite = {}) const {
    return table.make(how, n * stride, rewrite);
  }
};

/// Has `on` fire all cases, as many at once as it has lanes.
template <typename Range>
void run_table(Range& on, const hostile_part& part, ending end, hostile_report& report) {
  for (std::size_t n = 0; n < part.size(); n += on.width())
    on.fire(part, n, std::min(on.width(), part.size() - n), end, report);
}

/// Fires all parts, after a few cases that fill the pools, and bounds what is stored. \return how many cases.
template <typename Range>
std::size_t run_bounded(Range& on, const std::vector<hostile_part>& parts, ending end,
                        hostile_report& report) {
  hostile_report warm("");
  for (const hostile_part& each : parts)
    run_table(on, {each.table, each.how, 1 + each.table.size(each.how) / (4 * on.width())}, end, warm);
  const test_memory::watch memory;
  std::size_t cases = 0;
  for (const hostile_part& each : parts) {
    run_table(on, each, end, report);
    cases += each.size();
  }
  CHECK(memory.kept() < 1'000'000);  // in pools, whatever the number of cases
  CHECK(memory.most() < 5'000'000);  // far less than one of the bodies that are only claimed
  return cases;
}
