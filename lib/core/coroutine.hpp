#pragma once

#include <braid/coroutine.hpp>
#include <braid/spawn.hpp>

#include "core/base_stack.hpp"
#include "core/cancel_handle.hpp"
#include "core/loop.hpp"
#include "core/stack_pool.hpp"
#include "core/stack_switch.hpp"

#include <memory>
#include <string>

namespace braid::detail {

/// How start() begins to run a coroutine.
enum class start_mode : bool {
  now,   ///< Inside the call when it is made on the loop's base stack, else as `soon`.
  soon,  ///< From the ready queue.
};

/// What a coroutine inherits.
struct coroutine_context {
  cancel_node* parent = nullptr;
  core::time_point deadline = core::time_point::max();  ///< `parent` cancels itself then.
};

[[noreturn]] void throw_outside_coroutine();
class coroutine;

/// The coroutine whose stack the caller runs on; null on any other.
coroutine* running_coroutine() noexcept;

/// The control block of one coroutine, at the top of its stack.
class coroutine final : public core::live_node {
 public:
  /// Starts `body` on a stack of `home`; on the loop only. A false return (no memory) leaves the body
  /// untouched.
  static bool start(core::loop& home, coroutine_body& body, const coroutine_context& context, start_mode mode,
                    std::shared_ptr<cancel_handle> handle = nullptr);

  coroutine(const coroutine&) = delete;
  coroutine& operator=(const coroutine&) = delete;

  core::loop& home() noexcept { return loop_; }
  /// The node that the running code is below: the coroutine's own, or that of the innermost shield.
  signal_node& node() noexcept { return *node_; }
  signal_node& exchange_node(signal_node& other) noexcept { return *std::exchange(node_, &other); }
  signal_node& own_node() noexcept { return own_node_; }
  bool is_cancelled() const noexcept { return own_node_.cancelled(); }
  /// When the call that it serves ends, or the innermost shield.
  core::time_point deadline() const noexcept { return deadline_; }
  /// When the call that it serves ends, whatever shields there are.
  core::time_point own_deadline() const noexcept { return own_deadline_; }
  core::time_point exchange_deadline(core::time_point other) noexcept {
    return std::exchange(deadline_, other);
  }
  /// Whether the caller runs on this coroutine's stack; on any thread. Nothing else ever runs there.
  bool is_running() const noexcept { return contains(__builtin_frame_address(0)); }
  bool contains(const void* address) const noexcept { return core::contains(stack_, address); }

  /// From inside: back to the base stack, until wake().
  void suspend() noexcept {
    refusals_ = 0;
    switch_.suspend();
  }
  /// The same, with a wait that nothing will end.
  void suspend_for_good() noexcept { switch_.suspend(); }
  /// From inside: `task` is run by whoever resumed it, which then resumes it at once.
  void have_run(base_stack_task& task) noexcept {
    for_resumer_ = &task;
    switch_.suspend();
  }
  /// Counts an await that was refused; true when too many were refused in a row.
  bool refused_too_often() noexcept { return ++refusals_ > refusals_borne; }
  void keep_refusing() noexcept { refusals_ = refusals_borne; }
  /// Whether it goes on for ever although everything is refused. Where there is no time that could slow it
  /// down it is suspended and never resumed.
  bool is_hopeless() const noexcept { return refusals_ > 1000; }
  /// On the loop: resumes it from the ready queue.
  void wake() noexcept;

  void cancel_for_shutdown() noexcept override;
  std::string describe() const override;

 private:
  coroutine(core::loop& home, coroutine_body& body, const core::stack_pool::stack& whole,
            const coroutine_context& context, std::shared_ptr<cancel_handle> handle);
  ~coroutine() = default;

  static void entry(void* self) noexcept;
  static void run_ready(core::ready_node& node) noexcept;
  void resume() noexcept;
  void end() noexcept;

  struct ready_hook : core::ready_node {
    explicit ready_hook(coroutine& waiting) noexcept
        : core::ready_node(&coroutine::run_ready), owner(waiting) {}
    coroutine& owner;
  };

  core::loop& loop_;
  coroutine_body& body_;
  core::stack_pool::stack stack_;
  core::stack_switch switch_;
  base_stack_task* for_resumer_ = nullptr;
  ready_hook ready_{*this};
  signal_node own_node_;
  signal_node* node_ = &own_node_;
  const core::time_point own_deadline_;
  core::time_point deadline_ = own_deadline_;
  std::shared_ptr<cancel_handle> handle_;

  static constexpr unsigned refusals_borne = 16;
  unsigned refusals_ = 0;
};

}  // namespace braid::detail
