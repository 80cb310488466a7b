// Preloaded into a benchmark program, it counts what the program allocates, and says so when it ends with
// _exit(): ALLOCATIONS malloc=N bytes=N free=N

#include <dlfcn.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>

namespace {

std::atomic<unsigned long> allocations;
std::atomic<unsigned long> bytes;
std::atomic<unsigned long> frees;

void count(std::size_t size) noexcept {
  allocations.fetch_add(1, std::memory_order_relaxed);
  bytes.fetch_add(size, std::memory_order_relaxed);
}

// dlsym() may allocate before the real function is known: that comes from here, and is never given back.
alignas(std::max_align_t) char early[4096];
std::size_t early_used;

bool is_early(const void* memory) noexcept { return memory >= early && memory < early + sizeof early; }

void* allocate_early(std::size_t size) noexcept {
  constexpr std::size_t alignment = alignof(std::max_align_t);
  const std::size_t at = early_used;
  early_used += (size + alignment - 1) / alignment * alignment;
  return early_used <= sizeof early ? early + at : nullptr;
}

template <typename Function>
Function* next(const char* name, bool& asking) noexcept {
  asking = true;
  auto* const found = reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
  asking = false;
  return found;
}

}  // namespace

extern "C" {

void* malloc(std::size_t size) {
  static bool asking;
  if (asking) return allocate_early(size);
  static auto* const real = next<void*(std::size_t)>("malloc", asking);
  count(size);
  return real(size);
}

void* calloc(std::size_t number, std::size_t size) {
  static bool asking;
  if (asking) return allocate_early(number * size);
  static auto* const real = next<void*(std::size_t, std::size_t)>("calloc", asking);
  count(number * size);
  return real(number, size);
}

void* realloc(void* memory, std::size_t size) {
  static bool asking;
  static auto* const real = next<void*(void*, std::size_t)>("realloc", asking);
  count(size);
  return real(memory, size);
}

int posix_memalign(void** memory, std::size_t alignment, std::size_t size) {
  static bool asking;
  static auto* const real = next<int(void**, std::size_t, std::size_t)>("posix_memalign", asking);
  count(size);
  return real(memory, alignment, size);
}

void* aligned_alloc(std::size_t alignment, std::size_t size) {
  static bool asking;
  static auto* const real = next<void*(std::size_t, std::size_t)>("aligned_alloc", asking);
  count(size);
  return real(alignment, size);
}

void free(void* memory) {
  static bool asking;
  static auto* const real = next<void(void*)>("free", asking);
  if (!memory || is_early(memory)) return;
  frees.fetch_add(1, std::memory_order_relaxed);
  real(memory);
}

[[noreturn]] void _exit(int status) {
  char text[128];
  const int size = std::snprintf(text, sizeof text, "ALLOCATIONS malloc=%lu bytes=%lu free=%lu\n",
                                 allocations.load(), bytes.load(), frees.load());
  [[maybe_unused]] const auto written = write(STDERR_FILENO, text, static_cast<std::size_t>(size));
  syscall(SYS_exit_group, status);
  __builtin_unreachable();
}

}  // extern "C"
