#include <braid/cancellation.hpp>

namespace braid {

std::string_view to_string(cancel_cause cause) noexcept {
  switch (cause) {
    case cancel_cause::none:
      return "none";
    case cancel_cause::deadline:
      return "deadline";
    case cancel_cause::user:
      return "user";
    case cancel_cause::fail_limit:
      return "fail_limit";
    case cancel_cause::success_limit:
      return "success_limit";
    case cancel_cause::sibling_won:
      return "sibling_won";
    case cancel_cause::peer_gone:
      return "peer_gone";
    case cancel_cause::shutdown:
      return "shutdown";
  }
  return "unknown";
}

cancel_node::~cancel_node() { children_.clear(); }

void cancel_node::attach(cancel_node& parent) noexcept {
  hook_.unlink();
  parent.children_.push_back(*this);
  if (parent.cancelled()) cancel(parent.cause_);
}

void cancel_node::detach() noexcept { hook_.unlink(); }

void cancel_node::detach_children() noexcept { children_.clear(); }

// The children get the place of this node in its parent's list: a walk that has reached this node has reached
// them through it.
void cancel_node::hand_up_children() noexcept {
  if (is_root()) {
    detach_children();
  } else if (!children_.empty()) {
    children::node_algorithms::transfer(children::s_iterator_to(*this).pointed_node(),
                                        children_.begin().pointed_node(), children_.end().pointed_node());
  }
}

bool cancel_node::cancel(cancel_cause cause) noexcept {
  if (cancelled() || cause == cancel_cause::none) return false;
  cause_ = cause;
  if (!children_.empty()) cancel_children();
  on_cancel(cause_);  // last: it may destroy this node
  return true;
}

bool cancel_node::anything_sent() const noexcept {
  for (const cancel_node& child : children_)
    if (child.anything_sent()) return true;
  return false;
}

// Nodes may leave the list and join it while it is walked, so each child reached moves behind a mark; what
// joins from now on lands there too and is cancelled by attach().
void cancel_node::cancel_children() noexcept {
  struct walk_mark final : cancel_node {
    void on_cancel(cancel_cause) noexcept override {}
  } mark;
  children_.push_back(mark);
  while (!mark.is_root() && &children_.front() != &mark) {
    cancel_node& child = children_.front();
    children_.pop_front();
    children_.push_back(child);
    child.cancel(cause_);
  }
}

}  // namespace braid
