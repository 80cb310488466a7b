// Debian's Boost.Context library has the assembly switch only. The ucontext switch, which the sanitizers can
// follow, needs these few definitions besides its header; a sanitizer build takes them from here.
#if defined(BOOST_USE_UCONTEXT)

#include <boost/context/fiber.hpp>

namespace boost::context::detail {
namespace {

// The record of the thread's own stack, and the one that is running on the thread.
struct thread_records {
  fiber_activation_record base;
  fiber_activation_record* running = &base;
};

}  // namespace

fiber_activation_record*& fiber_activation_record::current() noexcept {
  static thread_local thread_records records;
  return records.running;
}

}  // namespace boost::context::detail

#endif
