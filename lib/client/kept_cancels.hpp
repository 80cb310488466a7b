#pragma once

#include <braid/cancellation.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace braid::client {

/// The cancels of calls whose server has not been heard yet, so that nobody knows whether it takes them.
///
/// Bounded: a server that is never heard costs no more than `most`, and calls over it end at their own
/// deadlines.
class kept_cancels {
 public:
  struct entry {
    std::int64_t id;
    cancel_cause cause;
  };
  static constexpr std::size_t most = 1024;

  void add(std::int64_t id, cancel_cause cause) {
    if (entries_.size() < most) entries_.push_back({id, cause});
  }
  /// The call has been answered: there is nothing to cancel.
  void drop(std::int64_t id) noexcept {
    std::erase_if(entries_, [id](const entry& each) { return each.id == id; });
  }
  /// Forgets all, and gives the memory back: a server is heard once.
  std::vector<entry> take() noexcept { return std::exchange(entries_, {}); }
  std::size_t size() const noexcept { return entries_.size(); }

 private:
  std::vector<entry> entries_;
};

}  // namespace braid::client
