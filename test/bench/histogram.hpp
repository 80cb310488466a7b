#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace bench {

/// A log-linear histogram of nanoseconds: 128 buckets for each power of two, so less than 0.8 % off.
class histogram {
 public:
  void add(std::uint64_t value) noexcept {
    ++counts_[index_of(value)];
    ++count_;
    sum_ += value;
    if (value > max_) max_ = value;
  }

  void merge(const histogram& other) noexcept {
    for (std::size_t i = 0; i < counts_.size(); ++i) counts_[i] += other.counts_[i];
    count_ += other.count_;
    sum_ += other.sum_;
    if (other.max_ > max_) max_ = other.max_;
  }

  std::uint64_t count() const noexcept { return count_; }
  double mean_us() const noexcept {
    return count_ ? static_cast<double>(sum_) / static_cast<double>(count_) / 1000 : 0;
  }
  double max_us() const noexcept { return static_cast<double>(max_) / 1000; }

  /// The value below which `share` (0 to 1) of all lie.
  double percentile_us(double share) const noexcept {
    const auto wanted = static_cast<std::uint64_t>(share * static_cast<double>(count_));
    std::uint64_t seen = 0;
    for (std::size_t i = 0; i < counts_.size(); ++i) {
      seen += counts_[i];
      if (seen > wanted) return static_cast<double>(value_of(i)) / 1000;
    }
    return max_us();
  }

 private:
  static constexpr std::size_t buckets = 128;
  static constexpr std::size_t powers = 40;

  static std::size_t index_of(std::uint64_t value) noexcept {
    if (value < buckets) return value;
    const auto shift = static_cast<std::size_t>(std::bit_width(value)) - 8;
    const std::size_t index = (shift + 1) * buckets + ((value >> shift) - buckets);
    return index < buckets * powers ? index : buckets * powers - 1;
  }
  static std::uint64_t value_of(std::size_t index) noexcept {
    if (index < buckets) return index;
    const std::size_t shift = index / buckets - 1;
    return ((index % buckets + buckets) << shift) + ((std::uint64_t{1} << shift) >> 1);
  }

  std::vector<std::uint64_t> counts_ = std::vector<std::uint64_t>(buckets * powers);
  std::uint64_t count_ = 0;
  std::uint64_t sum_ = 0;
  std::uint64_t max_ = 0;
};

}  // namespace bench
