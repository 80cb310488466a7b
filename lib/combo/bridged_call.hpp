#pragma once

#include <braid/cancellation.hpp>

#include "client/call.hpp"
#include "client/call_target.hpp"

#include <memory>

namespace braid::combo {

/// A sub call on a channel of another runtime, whose connections are of other loops.
///
/// There it is a root call with messages and a controller of its own. Its end is posted back and settles the
/// sub call. A sub call that is cancelled ends at once; the other side is only told, and what it still says
/// is dropped.
class bridged_call final : public cancel_node {
 public:
  /// On the loop of `sub`, below which it hangs until it settles it. It deletes itself.
  static void start(client::call& sub, const std::shared_ptr<client::call_target>& on);

 private:
  class far_side;

  bridged_call(client::call& sub, std::shared_ptr<far_side> far) noexcept : sub_(sub), far_(std::move(far)) {}
  ~bridged_call() override = default;

  void far_side_ended() noexcept;
  void on_cancel(cancel_cause cause) noexcept override;
  /// Only the other loop could tell.
  bool anything_sent() const noexcept override { return true; }

  client::call& sub_;
  std::shared_ptr<far_side> far_;
};

}  // namespace braid::combo
