#pragma once

#include <cassert>
#include <cstddef>
#include <new>
#include <type_traits>

namespace braid::net {

/// Memory for the one pending operation of a kind that an object has, so that starting it again never
/// allocates.
class handler_slot {
 public:
  handler_slot() = default;
  handler_slot(const handler_slot&) = delete;
  handler_slot& operator=(const handler_slot&) = delete;

  void* allocate(std::size_t size) {
    if (in_use_ || size > sizeof storage_) return ::operator new(size);
    in_use_ = true;
    return storage_;
  }

  void deallocate(void* memory) noexcept {
    if (memory != storage_) return ::operator delete(memory);
    in_use_ = false;
  }

 private:
  alignas(
      std::max_align_t) std::byte storage_[160];  // Asio's receive operation with a pointer as handler: 136
  bool in_use_ = false;
};

/// The allocator of a handler, over a slot that lives at least as long as the handler.
template <typename T>
class slot_allocator {
 public:
  using value_type = T;

  explicit slot_allocator(handler_slot& slot) noexcept : slot_(&slot) {}
  template <typename U>
  slot_allocator(const slot_allocator<U>& other) noexcept : slot_(other.slot_) {}

  T* allocate(std::size_t n) {
    static_assert(alignof(T) <= alignof(std::max_align_t));
    return static_cast<T*>(slot_->allocate(n * sizeof(T)));
  }
  void deallocate(T* memory, std::size_t) noexcept { slot_->deallocate(memory); }

  template <typename U>
  friend bool operator==(const slot_allocator& a, const slot_allocator<U>& b) noexcept {
    return a.slot_ == b.slot_;
  }

 private:
  template <typename U>
  friend class slot_allocator;

  handler_slot* slot_;
};

}  // namespace braid::net
