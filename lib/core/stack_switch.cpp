#include "core/stack_switch.hpp"

#include <boost/context/preallocated.hpp>
#include <boost/context/stack_context.hpp>

#include <memory>
#include <utility>

namespace braid::core {
namespace {

// The stack is the caller's and may hold the switch itself, so the end of the fiber frees nothing.
struct borrowed_stack {
  boost::context::stack_context allocate() const noexcept { return {}; }
  void deallocate(boost::context::stack_context&) const noexcept {}
};

}  // namespace

void stack_switch::create(const stack_pool::stack& stack, void (*entry)(void*), void* argument) {
  boost::context::stack_context context;
  context.sp = stack.top;
  context.size = stack.size;
  const boost::context::preallocated place(stack.top, stack.size, context);
  exceptions_ = {};
  finished_ = false;
  keep(fiber(std::allocator_arg, place, borrowed_stack{}, [this, entry, argument](fiber&& caller) {
    keep(std::move(caller));
    entry(argument);
    return std::move(*peer());
  }));
}

}  // namespace braid::core
