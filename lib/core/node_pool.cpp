#include <braid/completion.hpp>

#include <array>
#include <new>

namespace braid::detail {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool recycle = false;  // so that the sanitizers see each use of freed memory
#else
constexpr bool recycle = true;
#endif

constexpr std::size_t granularity = 64;
constexpr std::size_t classes = 32;  // up to 2 KiB
constexpr std::size_t kept_per_class = 256;

constexpr std::size_t class_of(std::size_t size) { return (size + granularity - 1) / granularity; }

/// The free lists of one thread. Memory comes from operator new, so that any thread may give it back.
class free_lists {
 public:
  ~free_lists() {
    for (auto& list : lists_) {
      while (list.head) ::operator delete(list.pop());
    }
    closed_ = true;
  }

  void* take(std::size_t size_class) noexcept {
    list& from = lists_[size_class];
    return from.head ? from.pop() : nullptr;
  }

  bool give(void* memory, std::size_t size_class) noexcept {
    list& to = lists_[size_class];
    if (closed_ || to.count == kept_per_class) return false;
    to.push(memory);
    return true;
  }

 private:
  struct node {
    node* next;
  };
  struct list {
    node* head = nullptr;
    std::size_t count = 0;
    void push(void* memory) noexcept {
      head = ::new (memory) node{head};
      ++count;
    }
    void* pop() noexcept {
      node* taken = head;
      head = taken->next;
      --count;
      return taken;
    }
  };
  std::array<list, classes + 1> lists_{};
  bool closed_ = false;
};

thread_local free_lists cache;

}  // namespace

void* pool_allocate(std::size_t size) {
  const std::size_t size_class = class_of(size);
  if (!recycle || size_class > classes) return ::operator new(size);
  if (void* memory = cache.take(size_class)) return memory;
  return ::operator new(size_class * granularity);
}

void pool_deallocate(void* memory, std::size_t size) noexcept {
  const std::size_t size_class = class_of(size);
  if (recycle && size_class <= classes && cache.give(memory, size_class)) return;
  ::operator delete(memory);
}

}  // namespace braid::detail
