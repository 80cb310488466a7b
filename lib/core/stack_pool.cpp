#include "core/stack_pool.hpp"

#include "core/valgrind_stack.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <memory>
#include <new>
#include <utility>

#if defined(BOOST_USE_ASAN)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, size) (static_cast<void>(0))
#define ASAN_UNPOISON_MEMORY_REGION(address, size) (static_cast<void>(0))
#endif

namespace braid::core {
namespace {

constexpr std::size_t colour_step = 64;
constexpr std::size_t colours = 16;
constexpr std::size_t minimum_usable = std::size_t{16} << 10;
constexpr std::size_t minimum_rest = std::size_t{4} << 10;
constexpr int madv_guard_install = 102;  // absent from the headers of older systems

/// Stacks of the process with a guard by mprotect.
std::atomic<std::size_t> protected_stacks{0};

std::size_t page_size() noexcept { return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)); }

std::uintptr_t number(const void* p) noexcept { return reinterpret_cast<std::uintptr_t>(p); }

std::byte* map_slab(std::size_t bytes) noexcept {
  void* base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (base == MAP_FAILED) return nullptr;
  ::madvise(base, bytes, MADV_NOHUGEPAGE);  // fails only where there are no huge pages
  return static_cast<std::byte*>(base);
}

}  // namespace

struct stack_pool::slot {
  enum class state : std::uint8_t { cold, warm, live };
  enum class guarding : std::uint8_t { untried, by_advice, by_protection, none };

  slot* previous = nullptr;
  slot* next = nullptr;
  slab* owner = nullptr;
  std::byte* guard = nullptr;  // the lowest byte of the guard page
  state where = state::cold;
  guarding guarded = guarding::untried;
  bool poisoned = false;
  [[no_unique_address]] valgrind_stack announced;
};

struct stack_pool::slab {
  slab* previous = nullptr;
  slab* next = nullptr;
  std::byte* base = nullptr;
  std::size_t live = 0;
  std::unique_ptr<slot[]> slots;
};

void stack_pool::slot_list::push(slot* s) noexcept {
  s->previous = nullptr;
  s->next = head;
  if (head) head->previous = s;
  head = s;
  ++count;
}

void stack_pool::slot_list::remove(slot* s) noexcept {
  if (s->previous) {
    s->previous->next = s->next;
  } else {
    head = s->next;
  }
  if (s->next) s->next->previous = s->previous;
  --count;
}

stack_pool::stack_pool(options opts) noexcept
    : page_(page_size()),
      usable_(std::max(opts.usable, minimum_usable)),
      stride_(0),
      keep_warm_(opts.keep_warm),
      max_stacks_(opts.max_stacks),
      stacks_per_slab_(std::clamp(opts.stacks_per_slab, std::size_t{1}, std::size_t{65'536})),
      guard_(opts.guard),
      most_protected_(opts.most_protected),
      on_unguarded_(std::move(opts.on_unguarded)) {
  if (usable_ > SIZE_MAX / stacks_per_slab_ - 2 * page_) return;
  usable_ = (usable_ + page_ - 1) / page_ * page_;
  stride_ = usable_ + page_;
}

stack_pool::~stack_pool() {
  for (slab* s = slabs_; s != nullptr;) {
    slab* next = s->next;
    if (s->live == 0) {
      for (std::size_t i = 0; i < stacks_per_slab_; ++i) s->slots[i].announced.withdraw();
      ASAN_UNPOISON_MEMORY_REGION(s->base, stride_ * stacks_per_slab_);
      if (::munmap(s->base, stride_ * stacks_per_slab_) == 0) forget_guards(*s);
      delete s;
    }
    s = next;
  }
}

stack_pool::stack stack_pool::allocate() noexcept {
  if (live_ >= max_stacks_) return {};
  slot* s = take();
  if (s == nullptr) return {};
  s->where = slot::state::live;
  ++s->owner->live;
  ++live_;
  std::byte* bottom = s->guard + page_;
  if (s->poisoned) ASAN_UNPOISON_MEMORY_REGION(bottom, usable_);
  s->poisoned = false;
  const auto index = static_cast<std::size_t>(s - s->owner->slots.get());
  const std::size_t size = usable_ - index % colours * colour_step;
  return {bottom + size, bottom, size, s};
}

stack_pool::slot* stack_pool::take() noexcept {
  if (slot* s = warm_.head) {
    warm_.remove(s);
    return s;
  }
  if (cold_.head == nullptr && !grow()) return nullptr;
  slot* s = cold_.head;
  cold_.remove(s);
  if (s->guarded == slot::guarding::untried) {
    install_guard(s);
    s->announced.announce(s->guard + page_, s->guard + stride_);
  }
  return s;
}

bool stack_pool::grow() noexcept {
  if (stride_ == 0) return false;
  std::unique_ptr<slab> made(new (std::nothrow) slab);
  if (!made) return false;
  made->slots.reset(new (std::nothrow) slot[stacks_per_slab_]);
  if (!made->slots) return false;
  made->base = map_slab(stride_ * stacks_per_slab_);
  if (made->base == nullptr) return false;
  slab* owner = made.release();
  owner->next = slabs_;
  if (slabs_) slabs_->previous = owner;
  slabs_ = owner;
  ++slab_count_;
  for (std::size_t i = stacks_per_slab_; i-- > 0;) {
    slot* s = &owner->slots[i];
    s->owner = owner;
    s->guard = owner->base + i * stride_;
    cold_.push(s);
  }
  return true;
}

void stack_pool::install_guard(slot* s) noexcept {
  if (guard_ == guard_kind::automatic) {
    if (::madvise(s->guard, page_, madv_guard_install) == 0) {
      s->guarded = slot::guarding::by_advice;
      return;
    }
    if (errno == EINVAL) guard_ = guard_kind::protect;  // an older kernel, or locked memory
  }
  if (guard_ != guard_kind::none && protect(s)) {
    s->guarded = slot::guarding::by_protection;
    return;
  }
  // A stack without a guard is better than none.
  s->guarded = slot::guarding::none;
  ++unguarded_;
  if (const auto tell = std::exchange(on_unguarded_, nullptr)) tell();
}

bool stack_pool::protect(slot* s) noexcept {
  if (protected_stacks.fetch_add(1, std::memory_order_relaxed) < most_protected_ &&
      ::mprotect(s->guard, page_, PROT_NONE) == 0)
    return true;
  protected_stacks.fetch_sub(1, std::memory_order_relaxed);
  return false;
}

void stack_pool::forget_guards(const slab& unmapped) noexcept {
  for (std::size_t i = 0; i < stacks_per_slab_; ++i) {
    const slot::guarding was = unmapped.slots[i].guarded;
    if (was == slot::guarding::by_protection) protected_stacks.fetch_sub(1, std::memory_order_relaxed);
    if (was == slot::guarding::none) --unguarded_;
  }
}

void stack_pool::release(const stack& released) noexcept {
  slot* s = released.origin;
  slab* owner = s->owner;
  --live_;
  --owner->live;
  if (warm_.count < keep_warm_) {
    s->where = slot::state::warm;
    warm_.push(s);
  } else {
    give_back_pages(s);
    s->where = slot::state::cold;
    cold_.push(s);
  }
  ASAN_POISON_MEMORY_REGION(s->guard + page_, usable_);
  s->poisoned = true;
  if (owner->live == 0) maybe_unmap(owner);
}

void stack_pool::give_back_pages(slot* s) noexcept {
  ::madvise(s->guard + page_, usable_, MADV_DONTNEED);  // leaves the guard in place
}

void stack_pool::maybe_unmap(slab* owner) noexcept {
  const std::size_t others = warm_.count + cold_.count - stacks_per_slab_;
  if (others < keep_warm_) return;
  // Unmapping a piece out of a larger mapping can itself need one mapping more, and then fail.
  ASAN_UNPOISON_MEMORY_REGION(owner->base, stride_ * stacks_per_slab_);
  if (::munmap(owner->base, stride_ * stacks_per_slab_) != 0) return;
  unlink_slab(owner);
  delete owner;
}

void stack_pool::unlink_slab(slab* owner) noexcept {
  for (std::size_t i = 0; i < stacks_per_slab_; ++i) {
    slot* s = &owner->slots[i];
    (s->where == slot::state::warm ? warm_ : cold_).remove(s);
    s->announced.withdraw();
  }
  forget_guards(*owner);
  if (owner->previous) {
    owner->previous->next = owner->next;
  } else {
    slabs_ = owner->next;
  }
  if (owner->next) owner->next->previous = owner->previous;
  --slab_count_;
}

stack_pool::statistics stack_pool::stats() const noexcept {
  return {live_, warm_.count + cold_.count, warm_.count, slab_count_, unguarded_};
}

carved carve(const stack_pool::stack& from, std::size_t bytes, std::size_t alignment) noexcept {
  const std::uintptr_t bottom = number(from.bottom);
  const std::uintptr_t top = number(from.top);
  alignment = std::max(alignment, std::size_t{16});
  if (top - bottom < bytes || top - bottom - bytes < minimum_rest + alignment) return {};
  const std::uintptr_t offset = ((top - bytes) & ~(alignment - 1)) - bottom;
  std::byte* block = static_cast<std::byte*>(from.bottom) + offset;
  return {block, {block, from.bottom, offset, from.origin}};
}

}  // namespace braid::core
