// The installed libstdc++ counts the references to an exception without ThreadSanitizer seeing it. So the
// thread that drops the last one, as with its end of a std::promise, would seem to race with one that has
// caught the exception before. A build with ThreadSanitizer drops references here, where that is seen.
#if defined(__SANITIZE_THREAD__)

#include <cxxabi.h>
#include <dlfcn.h>

#include <cstddef>
#include <exception>

namespace {

// Before the exception lies a header, and that begins with the count: the layout of the C++ ABI in GCC, which
// no release may change.
constexpr std::ptrdiff_t header_size = 128;

template <typename Function>
Function in_libstdcxx(const char* name) noexcept {
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

}  // namespace

namespace std::__exception_ptr {

void exception_ptr::_M_release() noexcept {
  static const auto release =
      in_libstdcxx<void (*)(exception_ptr*)>("_ZNSt15__exception_ptr13exception_ptr10_M_releaseEv");
  auto* const count = reinterpret_cast<int*>(static_cast<char*>(_M_exception_object) - header_size);
  int references = __atomic_load_n(count, __ATOMIC_ACQUIRE);
  while (references != 1) {
    if (__atomic_compare_exchange_n(count, &references, references - 1, false, __ATOMIC_ACQ_REL,
                                    __ATOMIC_ACQUIRE)) {
      _M_exception_object = nullptr;
      return;
    }
  }
  release(this);  // nobody else has one any more: destroys the exception
}

}  // namespace std::__exception_ptr

extern "C" void __cxxabiv1::__cxa_end_catch() {
  static const auto end_catch = in_libstdcxx<void (*)()>("__cxa_end_catch");
  const std::exception_ptr one_more = std::current_exception();  // so that the last one is dropped above
  end_catch();
}

#endif
