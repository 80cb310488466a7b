#pragma once

#include <braid/cancellation.hpp>
#include <braid/completion.hpp>

#include "core/environment.hpp"

#include <boost/intrusive/list.hpp>

#include <memory>
#include <mutex>

namespace braid::core {

class loop;
class scope_link;

/// What the calls inherit that are made for a server call, on whatever thread: its deadline and, as long as
/// it lasts, its cancellation.
///
/// Calls on the scope's own loop hang below its node, as any node of the tree does. Calls on other loops are
/// told by a request to their loop.
class call_scope : public std::enable_shared_from_this<call_scope> {
 public:
  using hook = boost::intrusive::list_base_hook<boost::intrusive::link_mode<boost::intrusive::auto_unlink>>;

  /// `home`: the loop that node() belongs to; null: there is none.
  call_scope(time_point deadline, loop* home) noexcept : deadline_(deadline), home_(home) {}
  call_scope(const call_scope&) = delete;
  call_scope& operator=(const call_scope&) = delete;
  virtual ~call_scope();

  time_point deadline() const noexcept { return deadline_; }

  /// The scope of the code that this thread runs outside of coroutines; null: none.
  static call_scope* current() noexcept;

  /// On its loop: what calls there hang below from now on; null: nothing.
  void set_node(cancel_node* node) noexcept { node_ = node; }

  /// From any thread, once: cancels every call of this scope. Calls on its loop are those of its node.
  void cancel(cancel_cause cause) noexcept;
  /// Why it was cancelled; from any thread.
  cancel_cause cause() noexcept {
    const std::lock_guard lock(mutex_);
    return cause_;
  }
  /// The server call is over: what still runs goes on by itself.
  void end() noexcept;

  /// Makes a scope the thread's current one while it lives; null: none.
  class entered {
   public:
    explicit entered(call_scope* scope) noexcept;
    entered(const entered&) = delete;
    entered& operator=(const entered&) = delete;
    ~entered();

   private:
    call_scope* const outer_;
  };

 protected:
  /// The server call has been cancelled; on the thread that did.
  virtual void on_cancel(cancel_cause /*cause*/) noexcept {}
  /// The server call is over; on its loop, unless that has ended.
  virtual void on_end() noexcept { node_ = nullptr; }

 private:
  friend class scope_link;

  const time_point deadline_;
  loop* const home_;
  cancel_node* node_ = nullptr;

  std::mutex mutex_;  // guards what is below
  boost::intrusive::list<scope_link, boost::intrusive::base_hook<hook>,
                         boost::intrusive::constant_time_size<false>>
      links_;
  cancel_cause cause_ = cancel_cause::none;
  bool ended_ = false;
};

/// A call's place in a scope, from its start to its end. On the call's loop.
class scope_link : public call_scope::hook {
 public:
  explicit scope_link(std::shared_ptr<call_scope> scope) noexcept : scope_(std::move(scope)) {}
  scope_link(const scope_link&) = delete;
  scope_link& operator=(const scope_link&) = delete;
  ~scope_link() { release(); }

  /// May cancel `call` at once.
  void attach(cancel_node& call, loop& home) noexcept;
  void release() noexcept;

 private:
  friend class call_scope;

  std::shared_ptr<call_scope> scope_;
  std::shared_ptr<braid::detail::cancel_handle> handle_;
};

}  // namespace braid::core
