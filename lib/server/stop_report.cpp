#include "server/stop_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace braid::server_side {

void stop_report::add(std::size_t index, const std::vector<std::string>& left) {
  std::unique_lock lock(mutex_);
  if (!waiting_[index]) return;
  waiting_[index] = false;
  left_.insert(left_.end(), left.begin(), left.end());
  if (!stopped_ || std::find(waiting_.begin(), waiting_.end(), true) != waiting_.end()) return;
  const handler stopped = std::exchange(stopped_, nullptr);
  std::vector<std::string> all = std::move(left_);
  lock.unlock();
  stopped(std::move(all));
}

std::optional<std::vector<std::string>> stop_report::give_up() {
  const std::lock_guard lock(mutex_);
  if (!stopped_) return std::nullopt;
  stopped_ = nullptr;
  for (std::size_t i = 0; i < waiting_.size(); ++i)
    if (waiting_[i]) left_.push_back(fmt::format("what holds up loop {}", i));
  return std::move(left_);
}

}  // namespace braid::server_side
