#include <braid/completion.hpp>

#include <array>
#include <cstddef>
#include <new>
#include <utility>

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

struct node {
  node* next;
};
struct free_list {
  node* head;
  std::size_t count;
};
/// The free lists of one thread. Memory comes from operator new, so that any thread may give it back. A plain
/// aggregate: it can be reached without a guard, also by destructors that run after the lists were emptied.
struct thread_cache {
  std::array<free_list, classes + 1> lists;
  bool emptied_at_exit;
  bool closed;
};
constinit thread_local thread_cache cache{};

struct empty_at_exit {
  empty_at_exit() noexcept { cache.emptied_at_exit = true; }
  empty_at_exit(const empty_at_exit&) = delete;
  empty_at_exit& operator=(const empty_at_exit&) = delete;
  ~empty_at_exit() {
    cache.closed = true;
    for (auto& list : cache.lists) {
      while (list.head) ::operator delete(std::exchange(list.head, list.head->next));
    }
  }
};

void* take(std::size_t size_class) noexcept {
  free_list& from = cache.lists[size_class];
  node* taken = from.head;
  if (!taken) return nullptr;
  from.head = taken->next;
  --from.count;
  return taken;
}

bool give(void* memory, std::size_t size_class) noexcept {
  free_list& to = cache.lists[size_class];
  if (to.count == kept_per_class || cache.closed) return false;
  if (!cache.emptied_at_exit) static thread_local empty_at_exit registered;
  to.head = ::new (memory) node{to.head};
  ++to.count;
  return true;
}

}  // namespace

void* pool_allocate(std::size_t size) {
  const std::size_t size_class = class_of(size);
  if (!recycle || size_class > classes) return ::operator new(size);
  if (void* memory = take(size_class)) return memory;
  return ::operator new(size_class* granularity);
}

void pool_deallocate(void* memory, std::size_t size) noexcept {
  const std::size_t size_class = class_of(size);
  if (recycle && size_class <= classes && give(memory, size_class)) return;
  ::operator delete(memory);
}

}  // namespace braid::detail
