#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace braid::core {

/// The coroutine stacks of one loop: a LIFO free list over stacks carved from large mapped slabs.
///
/// Each stack has a guard page below it, so that an overflow faults instead of writing into its
/// neighbour. The guard is installed without splitting the slab's mapping where the kernel can do so
/// (Linux 6.13), because a process has only 65,530 mappings by default. Where it cannot, only so many stacks
/// of the process get one, and the rest go without: the program needs mappings too. Slabs never use huge
/// pages: a suspended coroutine should hold the few pages it touched. The tops are coloured: each lies a
/// different small multiple of 64 bytes below its page boundary, so that the hot frames of many coroutines do
/// not compete for the same cache sets.
///
/// Thread safety: none; a pool belongs to one loop and is used on its thread only.
class stack_pool {
  struct slab;
  struct slot;

 public:
  /// How the page below a stack is made to fault.
  enum class guard_kind : std::uint8_t {
    automatic,  ///< MADV_GUARD_INSTALL, else `protect`. The default.
    protect,    ///< mprotect; costs two mappings for each stack.
    none,       ///< No guard; every stack counts as unguarded.
  };

  /// Stacks of a process that get a guard by mprotect: three quarters of the mappings that it has by default.
  static constexpr std::size_t default_most_protected = 24'000;

  struct options {
    /// Bytes of one stack, rounded up to whole pages. Default 64 KiB, minimum 16 KiB. Up to 1 KiB of it is
    /// lost to colouring.
    std::size_t usable = std::size_t{64} << 10;
    /// Free stacks whose pages are kept; a stack released beyond it gives its pages back to the system, and
    /// a slab that becomes wholly free beyond it is unmapped. Default 1024; 0 keeps none.
    std::size_t keep_warm = 1024;
    /// Stacks live at once beyond which allocate() returns an empty stack. Default: no limit.
    std::size_t max_stacks = SIZE_MAX;
    /// Stacks in one mapping. Default 64, minimum 1, maximum 65,536.
    std::size_t stacks_per_slab = 64;
    guard_kind guard = guard_kind::automatic;
    /// Stacks with a guard by mprotect, of all pools of the process, beyond which this one makes no more.
    std::size_t most_protected = default_most_protected;
    /// Called inside allocate() when a stack of this pool has to do without a guard for the first time.
    std::function<void()> on_unguarded = nullptr;
  };

  /// One stack, or a part of it. It grows down from `top` to `bottom`; top == bottom + size. A value type
  /// that owns nothing.
  struct stack {
    void* top = nullptr;
    void* bottom = nullptr;
    std::size_t size = 0;
    slot* origin = nullptr;  ///< The pool's own mark; survives carve().

    explicit operator bool() const noexcept { return top != nullptr; }
  };

  struct statistics {
    std::size_t live = 0;       ///< Stacks handed out.
    std::size_t free = 0;       ///< Stacks that can be handed out without a new mapping.
    std::size_t warm = 0;       ///< Those of the free ones that still hold their pages.
    std::size_t slabs = 0;      ///< Mappings made.
    std::size_t unguarded = 0;  ///< Stacks that had to do without a guard page.
  };

  stack_pool() noexcept : stack_pool(options{}) {}
  explicit stack_pool(options opts) noexcept;
  stack_pool(const stack_pool&) = delete;
  stack_pool& operator=(const stack_pool&) = delete;

  /// Unmaps the slabs. A slab with a live stack is left mapped on purpose: an operation that never completed
  /// may still write into the buffers on it.
  ~stack_pool();

  /// Returns a stack, the one released last if there is one, or an empty one when memory, mappings or
  /// `max_stacks` are exhausted. The contents are unspecified.
  stack allocate() noexcept;

  /// Takes a stack (or what carve() left of it) back. Nothing on it may be used any more; under
  /// AddressSanitizer such a use is reported.
  void release(const stack& released) noexcept;

  /// Bytes of one stack before colouring.
  std::size_t usable() const noexcept { return usable_; }

  statistics stats() const noexcept;

 private:
  struct slot_list {
    slot* head = nullptr;
    std::size_t count = 0;

    void push(slot* s) noexcept;
    void remove(slot* s) noexcept;
  };

  slot* take() noexcept;
  bool grow() noexcept;
  void install_guard(slot* s) noexcept;
  bool protect(slot* s) noexcept;
  void forget_guards(const slab& unmapped) noexcept;
  void give_back_pages(slot* s) noexcept;
  void maybe_unmap(slab* owner) noexcept;
  void unlink_slab(slab* owner) noexcept;

  std::size_t page_;
  std::size_t usable_;
  std::size_t stride_;  // 0: the sizes asked for do not fit into the address space
  std::size_t keep_warm_;
  std::size_t max_stacks_;
  std::size_t stacks_per_slab_;
  guard_kind guard_;
  std::size_t most_protected_;
  std::function<void()> on_unguarded_;
  slot_list warm_;
  slot_list cold_;
  slab* slabs_ = nullptr;
  std::size_t slab_count_ = 0;
  std::size_t live_ = 0;
  std::size_t unguarded_ = 0;
};

/// A piece cut off the top of a stack, and what is left below it.
struct carved {
  void* block = nullptr;  ///< Null when the stack is too small.
  stack_pool::stack rest;
};

/// Cuts `bytes`, aligned to `alignment` (a power of two), off the top of `from`, for what must live as long
/// as the stack does. The rest keeps a 16-byte aligned top. Returns a null block when less than 4 KiB would
/// be left.
carved carve(const stack_pool::stack& from, std::size_t bytes, std::size_t alignment) noexcept;

/// Whether an address lies on a stack; ask with __builtin_frame_address(0) whether the caller runs on it.
inline bool contains(const stack_pool::stack& whole, const void* address) noexcept {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  return at >= reinterpret_cast<std::uintptr_t>(whole.bottom) &&
         at < reinterpret_cast<std::uintptr_t>(whole.top);
}

}  // namespace braid::core
