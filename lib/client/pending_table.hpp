#pragma once

#include <cstdint>
#include <vector>

namespace braid::client {

class attempt;

/// The attempts that wait for an answer on one connection, by the id that the answer will carry.
///
/// An id is a slot's index and the number of times that the slot was used, so that looking up costs one
/// comparison and the answer to a forgotten attempt is never taken for another's. No id is 0, and all fit a
/// positive int64.
class pending_table {
 public:
  /// \param first_generation of every slot; for tests of what happens when generations run out.
  explicit pending_table(std::uint32_t first_generation = 1) noexcept : first_generation_(first_generation) {}

  std::uint64_t insert(attempt& waiting) {
    if (free_ == none) {
      slots_.push_back({.generation = first_generation_});
      free_ = static_cast<std::uint32_t>(slots_.size() - 1);
    }
    const std::uint32_t index = free_;
    slot& taken = slots_[index];
    free_ = taken.next_free;
    taken.waiting = &waiting;
    ++size_;
    return (std::uint64_t{taken.generation} << 32) | index;
  }

  /// Takes the attempt of this id out; null when there is none.
  attempt* remove(std::uint64_t id) noexcept {
    const auto index = static_cast<std::uint32_t>(id);
    if (index >= slots_.size()) return nullptr;
    slot& found = slots_[index];
    if (!found.waiting || found.generation != id >> 32) return nullptr;
    attempt* waiting = found.waiting;
    found.waiting = nullptr;
    found.generation = found.generation == last_generation ? 1 : found.generation + 1;
    found.next_free = free_;
    free_ = index;
    --size_;
    return waiting;
  }

  /// Takes some attempt out, in no particular order of ids but always the same; null when it is empty.
  attempt* remove_any() noexcept {
    for (; size_ != 0; ++sweep_) {
      if (sweep_ >= slots_.size()) sweep_ = 0;
      if (slots_[sweep_].waiting) return remove((std::uint64_t{slots_[sweep_].generation} << 32) | sweep_);
    }
    return nullptr;
  }

  bool empty() const noexcept { return size_ == 0; }
  std::size_t size() const noexcept { return size_; }

 private:
  static constexpr std::uint32_t none = ~std::uint32_t{0};
  static constexpr std::uint32_t last_generation = 0x7fffffff;

  struct slot {
    attempt* waiting = nullptr;
    std::uint32_t generation = 1;
    std::uint32_t next_free = none;
  };

  std::uint32_t first_generation_;
  std::vector<slot> slots_;
  std::uint32_t free_ = none;
  std::size_t sweep_ = 0;
  std::size_t size_ = 0;
};

}  // namespace braid::client
