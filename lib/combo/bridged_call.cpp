#include "combo/bridged_call.hpp"

#include <braid/call_completion.hpp>

#include "client/start_elsewhere.hpp"
#include "client/sub_calls.hpp"
#include "core/cancel_handle.hpp"
#include "core/runtime_core.hpp"

#include <google/protobuf/message.h>

#include <chrono>
#include <string>
#include <utility>

namespace braid::combo {

/// What the call on the other runtime uses; it lives until both sides have done with it.
class bridged_call::far_side final : public detail::call_completion {
 public:
  explicit far_side(client::call& sub)
      : home_(sub.home()),
        keep_home_(home_.owner().shared_from_this()),
        response_(sub.response().New()),
        cancel_(detail::make_cancel_handle()) {
    // Copied: another thread reads it from now on. The deadline is the sub call's, not the channel's own
    // timeout.
    control_.mutable_request_metadata() = sub.request_metadata();
    control_.set_timeout(std::chrono::nanoseconds(-1));
  }

  /// On the sub call's loop.
  void start(const std::shared_ptr<far_side>& self, client::call& sub,
             const std::shared_ptr<client::call_target>& on) {
    core::loop& there = on->runtime().home();
    self_ = self;
    client::start_elsewhere(on, {&sub.method(), &sub.request(), response_.get(), &control_}, this, cancel_,
                            client::call_origin{.latest = deadline_there(sub, there)});
  }

  /// On the sub call's loop: nobody waits any more.
  void abandon(cancel_cause cause) noexcept {
    near_ = nullptr;
    cancel_->request(cause);
  }

  void complete(const detail::loop_executor&, error_code) override { post_back(); }
  void complete_without_loop(error_code) override { post_back(); }

  bridged_call* near_ = nullptr;  // touched by the sub call's loop only
  controller control_;

  google::protobuf::Message& response() noexcept { return *response_; }

 private:
  // The clocks of the two may differ, in tests.
  static core::time_point deadline_there(const client::call& sub, core::loop& there) noexcept {
    if (sub.deadline() == core::time_point::max()) return core::time_point::max();
    return there.after(sub.deadline() - sub.home().now());
  }

  void post_back() noexcept {
    const std::shared_ptr<far_side> self = std::move(self_);
    home_.post([self] {
      if (self->near_) self->near_->far_side_ended();
    });
  }

  core::loop& home_;
  const std::shared_ptr<core::runtime_core> keep_home_;
  std::unique_ptr<google::protobuf::Message> response_;
  const std::shared_ptr<detail::cancel_handle> cancel_;
  std::shared_ptr<far_side> self_;  // while the call runs there
};

void bridged_call::start(client::call& sub, const std::shared_ptr<client::call_target>& on) {
  auto far = std::make_shared<far_side>(sub);
  auto* const near = new bridged_call(sub, far);
  far->near_ = near;
  near->attach(sub);
  far->start(far, sub, on);
}

void bridged_call::far_side_ended() noexcept {
  client::call& sub = sub_;
  if (sub.home().now() >= sub.deadline()) {  // late
    sub.cancel(cancel_cause::deadline);
    return;
  }
  const std::shared_ptr<far_side> far = std::move(far_);
  delete this;
  sub.copy_up(far->control_);
  if (auto subs = client::sub_calls::take(far->control_)) sub.set_sub_calls(std::move(subs));
  const outcome& result = far->control_.result();
  if (result.succeeded()) sub.response().GetReflection()->Swap(&sub.response(), &far->response());
  sub.settle(result, result.succeeded() ? std::string() : far->control_.ErrorText());
}

void bridged_call::on_cancel(cancel_cause cause) noexcept {
  client::call& sub = sub_;
  far_->abandon(cause);
  delete this;
  sub.settle_cancelled();
}

}  // namespace braid::combo
