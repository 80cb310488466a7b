// The global allocation functions, counting, so that tests can say how much was stored.
#include "unit/live_memory.hpp"

#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>

namespace test_memory {
namespace {

std::atomic<std::size_t> live_bytes{0};
std::atomic<std::size_t> peak_bytes{0};

std::atomic<std::size_t> least_refused{0};
std::atomic<std::size_t> most_refused{0};  // 0: none is

bool refused(std::size_t size) noexcept {
  return size <= most_refused.load(std::memory_order_relaxed) &&
         size >= least_refused.load(std::memory_order_relaxed);
}

void* counted(void* memory) {
  if (!memory) throw std::bad_alloc();
  const std::size_t size = ::malloc_usable_size(memory);
  const std::size_t now = live_bytes.fetch_add(size, std::memory_order_relaxed) + size;
  if (now > peak_bytes.load(std::memory_order_relaxed)) peak_bytes.store(now, std::memory_order_relaxed);
  return memory;
}

void give_back(void* memory) noexcept {
  if (memory) live_bytes.fetch_sub(::malloc_usable_size(memory), std::memory_order_relaxed);
  std::free(memory);
}

}  // namespace

std::size_t live() noexcept { return live_bytes.load(std::memory_order_relaxed); }
std::size_t peak() noexcept { return peak_bytes.load(std::memory_order_relaxed); }
void restart_peak() noexcept { peak_bytes.store(live(), std::memory_order_relaxed); }

shortage::shortage(std::size_t least, std::size_t most) noexcept {
  least_refused.store(least, std::memory_order_relaxed);
  most_refused.store(most, std::memory_order_relaxed);
}
shortage::~shortage() { most_refused.store(0, std::memory_order_relaxed); }

}  // namespace test_memory

void* operator new(std::size_t size) {
  if (size != 0 && test_memory::refused(size)) throw std::bad_alloc();
  return test_memory::counted(std::malloc(size == 0 ? 1 : size));
}
void* operator new(std::size_t size, std::align_val_t alignment) {
  const auto to = static_cast<std::size_t>(alignment);
  return test_memory::counted(std::aligned_alloc(to, (size + to - 1) / to * to));
}
// The forms that do not throw too: a sanitizer would bring its own, and then find that they do not match.
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  try {
    return operator new(size);
  } catch (...) {
    return nullptr;
  }
}
void* operator new[](std::size_t size) { return operator new(size); }
void* operator new[](std::size_t size, const std::nothrow_t& quiet) noexcept {
  return operator new(size, quiet);
}
void operator delete[](void* memory) noexcept { test_memory::give_back(memory); }
void operator delete[](void* memory, std::size_t) noexcept { test_memory::give_back(memory); }
void operator delete(void* memory) noexcept { test_memory::give_back(memory); }
void operator delete(void* memory, std::size_t) noexcept { test_memory::give_back(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { test_memory::give_back(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { test_memory::give_back(memory); }
