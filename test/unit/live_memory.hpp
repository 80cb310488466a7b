#pragma once

#include <cstddef>

namespace test_memory {

/// Bytes that operator new has given out and that were not given back, in the whole test program.
std::size_t live() noexcept;
/// The most that live() has been since the last restart_peak().
std::size_t peak() noexcept;
void restart_peak() noexcept;

/// While it lives there is no memory for allocations of `least` to `most` bytes. One at a time.
class shortage {
 public:
  shortage(std::size_t least, std::size_t most) noexcept;
  shortage(const shortage&) = delete;
  shortage& operator=(const shortage&) = delete;
  ~shortage();
};

/// What is stored from now on, beyond what was before.
class watch {
 public:
  watch() noexcept { restart_peak(); }
  /// Now; 0 where it is less than before.
  std::size_t kept() const noexcept { return live() < before_ ? 0 : live() - before_; }
  /// At the worst moment.
  std::size_t most() const noexcept { return peak() < before_ ? 0 : peak() - before_; }

 private:
  const std::size_t before_ = live();
};

}  // namespace test_memory
