#include "client/pending_table.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <random>
#include <set>
#include <vector>

namespace {

using braid::client::attempt;
using braid::client::pending_table;

// The table never looks into an attempt.
attempt& fake(std::uintptr_t number) { return *reinterpret_cast<attempt*>(number * 64); }

}  // namespace

TEST_CASE("pending table: an id finds its attempt once", "[client]") {
  pending_table table;
  CHECK(table.empty());
  const std::uint64_t first = table.insert(fake(1));
  const std::uint64_t second = table.insert(fake(2));
  CHECK(first != second);
  CHECK(table.size() == 2);
  CHECK(table.remove(second) == &fake(2));
  CHECK(table.remove(second) == nullptr);
  CHECK(table.remove(first) == &fake(1));
  CHECK(table.empty());
}

TEST_CASE("pending table: the id of a forgotten attempt is not that of the next one in its place",
          "[client]") {
  pending_table table;
  const std::uint64_t old = table.insert(fake(1));
  table.remove(old);
  const std::uint64_t reused = table.insert(fake(2));
  CHECK(reused != old);
  CHECK(table.remove(old) == nullptr);
  CHECK(table.remove(reused) == &fake(2));
}

TEST_CASE("pending table: ids that were never given find nothing", "[client]") {
  pending_table table;
  const std::uint64_t id = table.insert(fake(1));
  for (const std::uint64_t wrong :
       {std::uint64_t{0}, id + 1, id + (std::uint64_t{1} << 32), ~std::uint64_t{0},
        id | (std::uint64_t{1} << 63), std::uint64_t{0xffffffff}})
    CHECK(table.remove(wrong) == nullptr);
  CHECK(table.remove(id) == &fake(1));
}

TEST_CASE("pending table: when the generations run out, no id is 0 or negative", "[client]") {
  pending_table table(0x7ffffffd);
  std::set<std::uint64_t> ids;
  for (std::uintptr_t i = 1; i <= 6; ++i) {
    const std::uint64_t id = table.insert(fake(i));
    CHECK(id != 0);
    CHECK(static_cast<std::int64_t>(id) > 0);
    ids.insert(id);
    CHECK(table.remove(id) == &fake(i));
    CHECK(table.remove(0) == nullptr);
  }
  CHECK(ids.size() == 6);
}

TEST_CASE("pending table: agrees with a map over random inserts and removals", "[client]") {
  std::mt19937 random(7);
  pending_table table;
  std::map<std::uint64_t, attempt*> model;
  std::vector<std::uint64_t> gone;
  for (std::uintptr_t step = 1; step <= 20'000; ++step) {
    if (random() % 5 < 3) {
      const std::uint64_t id = table.insert(fake(step));
      REQUIRE(model.emplace(id, &fake(step)).second);
    } else if (!model.empty()) {
      const auto chosen = std::next(
          model.begin(), static_cast<std::ptrdiff_t>(random() % std::min<std::size_t>(model.size(), 50)));
      REQUIRE(table.remove(chosen->first) == chosen->second);
      gone.push_back(chosen->first);
      model.erase(chosen);
    }
    if (!gone.empty()) REQUIRE(table.remove(gone[random() % gone.size()]) == nullptr);
    REQUIRE(table.size() == model.size());
  }
  while (attempt* next = table.remove_any()) {
    const auto found =
        std::find_if(model.begin(), model.end(), [next](const auto& entry) { return entry.second == next; });
    REQUIRE(found != model.end());
    model.erase(found);
  }
  CHECK(model.empty());
  CHECK(table.empty());
}

TEST_CASE("pending table: what joins while all are taken out is taken out too", "[client]") {
  pending_table table;
  for (std::uintptr_t i = 1; i <= 3; ++i) table.insert(fake(i));
  std::set<attempt*> taken;
  bool added = false;
  while (attempt* next = table.remove_any()) {
    taken.insert(next);
    if (!added) table.insert(fake(4));
    added = true;
  }
  CHECK(taken.size() == 4);
}
