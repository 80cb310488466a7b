#pragma once

#include <cstddef>

namespace test_memory {

/// Bytes that operator new has given out and that were not given back, in the whole test program.
std::size_t live() noexcept;
/// The most that live() has been since the last restart_peak().
std::size_t peak() noexcept;
void restart_peak() noexcept;

}  // namespace test_memory
