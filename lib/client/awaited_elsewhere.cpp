#include "client/awaited_elsewhere.hpp"

#include "core/coroutine.hpp"
#include "core/runtime_core.hpp"

#include <utility>

namespace braid::client {

/// The coroutine's wait, in its frame. It leaves the call some time after the coroutine was cancelled, or
/// after the call should have ended.
class awaited_elsewhere::pause final : public detail::await_base {
 public:
  explicit pause(yield_context yield)
      : await_base(yield), home_(yield.owner().home()), began_(home_.now()), node_(yield.owner().node()) {}

  void wait_for(awaited_elsewhere& call, core::time_point limit, bool detached) {
    call_ = &call;
    home_.arm(timer_, core::saturating_add(limit, patience));
    if (!detached) node_.slot().assign([this](boost::asio::cancellation_type) { leave_soon(); });
    wait(false);
    if (left_) call.leave(why_, home_.now() - began_);
  }

  using await_base::called;

 private:
  // The call has been told by the coroutine's node. No timer fires any more on a context that ends.
  void leave_soon() noexcept {
    why_ = node_.cancelled() ? node_.cause() : cancel_cause::user;
    if (home_.context_gone()) return leave();
    home_.arm(timer_, home_.after(patience));
  }
  void leave() noexcept {
    if (left_ || !call_->give_up()) return;  // it is being handed over
    left_ = true;
    completed_later();
  }

  struct leave_timer : core::timer_node {
    explicit leave_timer(pause& of) noexcept : timer_node(&leave_timer::fire), owner(of) {}
    static void fire(timer_node& node) { static_cast<leave_timer&>(node).owner.leave(); }
    pause& owner;
  };

  core::loop& home_;
  const core::time_point began_;
  signal_node& node_;
  awaited_elsewhere* call_ = nullptr;
  leave_timer timer_{*this};
  cancel_cause why_ = cancel_cause::deadline;
  bool left_ = false;
};

awaited_elsewhere::awaited_elsewhere(controller& control, google::protobuf::Message& response, pause& caller)
    : leavable_call(control, response), caller_(caller) {}

void awaited_elsewhere::handed_over() noexcept { caller_.called(); }

void awaited_elsewhere::run(const std::shared_ptr<call_target>& target,
                            const google::protobuf::MethodDescriptor& method, controller& control,
                            const google::protobuf::Message& request, google::protobuf::Message& response,
                            yield_context yield) {
  pause waiting(yield);
  auto origin = call_origin::here(control, target->runtime().home());
  const core::time_point limit = end_of_call(control, *target, origin, yield.owner().home().now());
  const auto call = std::make_shared<awaited_elsewhere>(control, response, waiting);
  call->start(call, target, method, request, std::move(origin));
  waiting.wait_for(*call, limit, control.detached());
}

}  // namespace braid::client
