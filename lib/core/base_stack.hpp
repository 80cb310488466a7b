#pragma once

#include <exception>
#include <memory>

namespace braid::detail {

/// A function for whoever resumed a coroutine, and what it has thrown. It owns nothing.
class base_stack_task {
 public:
  template <typename Function>
  explicit base_stack_task(Function& function) noexcept
      : function_(const_cast<void*>(static_cast<const void*>(std::addressof(function)))),
        call_([](void* called) { (*static_cast<Function*>(called))(); }) {}

  void run() noexcept {
    try {
      call_(function_);
    } catch (...) {
      thrown_ = std::current_exception();
    }
  }
  const std::exception_ptr& thrown() const noexcept { return thrown_; }

 private:
  void* function_;
  void (*call_)(void*);
  std::exception_ptr thrown_;
};

/// False: the caller runs on no coroutine's stack, and nothing was done.
bool run_by_resumer(base_stack_task& task);

/// Calls `function`, which needs more stack than a coroutine has; in a coroutine, on the stack of whoever
/// resumed it. That is no suspension: nothing else runs in between. `function` must not wait. Throws what it
/// throws.
template <typename Function>
void run_on_base_stack(Function&& function) {
  base_stack_task task(function);
  if (!run_by_resumer(task)) {
    function();
  } else if (task.thrown()) {
    std::rethrow_exception(task.thrown());
  }
}

}  // namespace braid::detail
