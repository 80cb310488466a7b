#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>

/// Whether this kernel can guard a stack without a mapping of its own (Linux 6.13).
inline bool kernel_installs_guards() {
  const auto page_size = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  void* page = ::mmap(nullptr, page_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const bool can = ::madvise(page, page_size, 102) == 0;
  ::munmap(page, page_size);
  return can;
}
