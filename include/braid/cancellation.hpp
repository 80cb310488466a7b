#pragma once

/// \file
/// The cancellation tree: every call, sub call, attempt and coroutine is a node of it.

#include <braid/config.hpp>

#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/cancellation_type.hpp>
#include <boost/intrusive/list.hpp>

#include <cstdint>
#include <string_view>

namespace braid {

/// Why a node of the tree was cancelled. It is copied unchanged to every node below the one that was
/// cancelled.
enum class cancel_cause : std::uint8_t {
  none,           ///< Not cancelled.
  deadline,       ///< The call's deadline came.
  user,           ///< The caller asked for it: its slot, a call_id, its coroutine.
  fail_limit,     ///< Enough sibling sub calls had failed.
  success_limit,  ///< Enough sibling sub calls had succeeded.
  sibling_won,    ///< Another attempt of the same call answered first.
  peer_gone,      ///< The client of the server call above has gone.
  shutdown,       ///< The runtime or the server is stopping.
};

/// The name of a cause, for logs.
std::string_view to_string(cancel_cause cause) noexcept;

/// A node of the cancellation tree.
///
/// What it does: cancel() reaches this node and every node below it, once each; the first cause wins. A node
/// that is attached below a cancelled one is cancelled at once.
///
/// Order: the nodes below, in the order of their attachment, then the node itself.
///
/// Object lifetimes: destroying a node takes it out of the tree; nodes below it become roots. A node may be
/// destroyed inside its own on_cancel().
///
/// Thread safety: none. A tree lives on one loop; cancelling from elsewhere is posted to that loop.
class cancel_node {
 public:
  cancel_node() = default;
  cancel_node(const cancel_node&) = delete;
  cancel_node& operator=(const cancel_node&) = delete;
  virtual ~cancel_node();

  /// Puts this node below `parent`, taking it from where it was.
  void attach(cancel_node& parent) noexcept;

  /// Makes this node a root. The nodes below stay below it.
  void detach() noexcept;

  /// Makes every node directly below this one a root.
  void detach_children() noexcept;

  /// Puts every node directly below this one below its parent; without one they become roots.
  void hand_up_children() noexcept;

  /// Cancels this node and all below. Returns false when it was cancelled already (nothing happens then).
  bool cancel(cancel_cause cause) noexcept;

  /// Whether this node was cancelled, by itself or from above.
  bool cancelled() const noexcept { return cause_ != cancel_cause::none; }
  /// Why; cancel_cause::none when it was not.
  cancel_cause cause() const noexcept { return cause_; }
  /// Whether it is below no other node.
  bool is_root() const noexcept { return !hook_.is_linked(); }

  /// Whether a byte of a request of this node's, or of one below, was handed to a transport. Asked for
  /// `total` cancellation.
  virtual bool anything_sent() const noexcept;

 protected:
  /// Called once, when the node is cancelled. It must not run user code and must not throw.
  virtual void on_cancel(cancel_cause cause) noexcept = 0;

  /// Forgets an earlier cancellation, for a node that is used again.
  void reset_cause() noexcept { cause_ = cancel_cause::none; }

 private:
  using hook = boost::intrusive::list_member_hook<boost::intrusive::link_mode<boost::intrusive::auto_unlink>>;

  void cancel_children() noexcept;

  hook hook_;
  cancel_cause cause_ = cancel_cause::none;

  using children =
      boost::intrusive::list<cancel_node,
                             boost::intrusive::member_hook<cancel_node, hook, &cancel_node::hook_>,
                             boost::intrusive::constant_time_size<false>>;
  children children_;
};

/// A node that passes its cancellation on to an Asio operation, as `terminal`.
class signal_node : public cancel_node {
 public:
  /// The slot to give to the operation that is waited for.
  boost::asio::cancellation_slot slot() noexcept { return signal_.slot(); }

  /// Emits `terminal` to what is connected to the slot now.
  void emit() noexcept { signal_.emit(boost::asio::cancellation_type::terminal); }

 protected:
  void on_cancel(cancel_cause) noexcept override { emit(); }

 private:
  boost::asio::cancellation_signal signal_;
};

}  // namespace braid
