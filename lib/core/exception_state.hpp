#pragma once

#include <boost/version.hpp>

#include <utility>

#if BOOST_VERSION < 108800
#include <cxxabi.h>
#endif

namespace braid::core {

/// The exceptions that one line of execution has in flight: the stack of those it is handling and the number
/// of those it has thrown and not yet caught.
///
/// The C++ runtime keeps these for each thread, and Boost.Context switches them only from 1.88 on. Without
/// that, two coroutines suspended in catch blocks rethrow each other's exception. From 1.88 on everything
/// here does nothing, as doing it twice would be wrong.
#if BOOST_VERSION >= 108800

class exception_state {
 public:
  struct globals {};
  static globals of_thread() noexcept { return {}; }
  void exchange(globals) noexcept {}
};

#else

class exception_state {
  // The start of __cxxabiv1::__cxa_eh_globals, which the C++ ABI fixes but <cxxabi.h> leaves opaque.
  struct eh_globals {
    void* caught;
    unsigned int uncaught;
#if defined(__ARM_EABI_UNWINDER__)
    void* propagating;
#endif
  };

 public:
  /// The state of the running thread; valid as long as the thread is.
  using globals = eh_globals*;

  static globals of_thread() noexcept {
    return static_cast<globals>(static_cast<void*>(abi::__cxa_get_globals()));
  }

  /// Puts the state held here into force and holds the one that was. A new object holds the empty state.
  void exchange(globals current) noexcept {
    std::swap(held_.caught, current->caught);
    std::swap(held_.uncaught, current->uncaught);
#if defined(__ARM_EABI_UNWINDER__)
    std::swap(held_.propagating, current->propagating);
#endif
  }

 private:
  eh_globals held_{};
};

#endif

}  // namespace braid::core
