#pragma once

#if !defined(BRAID_NO_VALGRIND) && __has_include(<valgrind/valgrind.h>)
#define BRAID_VALGRIND
#include <valgrind/valgrind.h>
#endif

namespace braid::core {

/// Tells the tools of valgrind that a piece of memory is a stack: else a switch to it looks to them as if the
/// thread's own stack had grown there. Left out where valgrind's headers were not there to build with, or the
/// build option `valgrind` is disabled. Outside of valgrind it costs a few instructions, once for each stack.
class valgrind_stack {
 public:
#if defined(BRAID_VALGRIND)
  void announce(void* bottom, void* top) noexcept {
    if (known_) return;
    id_ = VALGRIND_STACK_REGISTER(bottom, static_cast<char*>(top) - 1);
    known_ = true;
  }
  void withdraw() noexcept {
    if (known_) VALGRIND_STACK_DEREGISTER(id_);
    known_ = false;
  }

 private:
  unsigned id_ = 0;
  bool known_ = false;
#else
  void announce(void*, void*) noexcept {}
  void withdraw() noexcept {}
#endif
};

}  // namespace braid::core
