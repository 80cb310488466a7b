#pragma once

#include <cstddef>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace braid::server_side {

/// What the parts of a server have said of a stop. Used from all their loops and from who waits.
class stop_report {
 public:
  using handler = std::function<void(std::vector<std::string>)>;

  /// `stopped` is called once all parts have stopped, with the names of the handlers left behind.
  stop_report(std::size_t parts, handler stopped) : waiting_(parts, true), stopped_(std::move(stopped)) {}

  /// Part `index` has stopped, but for these handlers. What it says again does not count.
  void add(std::size_t index, const std::vector<std::string>& left);

  /// Waits no longer for parts that say nothing, because something holds their loops: returns what is left
  /// behind, with a line for each such loop. Nothing when all have stopped and `stopped` was called, or is.
  std::optional<std::vector<std::string>> give_up();

 private:
  std::mutex mutex_;
  std::vector<bool> waiting_;  // for this part
  std::vector<std::string> left_;
  handler stopped_;  // empty once it was called or given up
};

}  // namespace braid::server_side
