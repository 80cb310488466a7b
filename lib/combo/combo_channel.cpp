#include <braid/combo_channel.hpp>

#include "combo/call_group_state.hpp"
#include "combo/combo_run.hpp"

#include <fmt/format.h>
#include <google/protobuf/message.h>

namespace braid {
namespace combo {
namespace {

/// A user's combo channel.
class combo_target final : public client::call_target {
 public:
  combo_target(std::shared_ptr<core::runtime_core> runtime, std::chrono::nanoseconds timeout,
               std::shared_ptr<combo_channel::behaviour> behaviour)
      : call_target(std::move(runtime), timeout), behaviour_(std::move(behaviour)) {}

  void start(client::call& started, const std::shared_ptr<call_target>&) noexcept override {
    combo_run::start(combo_run::make(started, combo_run::keep_request::always),
                     std::make_unique<running>(behaviour_, started.method()));
  }
  bool usable() const noexcept override { return behaviour_->usable(); }
  int capacity() const noexcept override { return behaviour_->capacity(); }

 private:
  class running final : public combo_function {
   public:
    running(std::shared_ptr<combo_channel::behaviour> behaviour,
            const google::protobuf::MethodDescriptor& method)
        : behaviour_(std::move(behaviour)), method_(method) {}
    void run(combo_call& call, yield_context yield) override { behaviour_->run(call, yield); }
    std::string describe() const override { return fmt::format("the combo of {}", method_.full_name()); }

   private:
    std::shared_ptr<combo_channel::behaviour> behaviour_;
    const google::protobuf::MethodDescriptor& method_;
  };

  std::shared_ptr<combo_channel::behaviour> behaviour_;
};

}  // namespace
}  // namespace combo

const google::protobuf::MethodDescriptor& combo_call::method() const noexcept { return run_.method(); }
const google::protobuf::Message& combo_call::request() const noexcept { return run_.request(); }
google::protobuf::Message& combo_call::response() noexcept { return run_.response(); }
const controller& combo_call::control() const noexcept { return run_.control(); }
std::chrono::steady_clock::time_point combo_call::deadline() const noexcept { return run_.deadline(); }

void combo_call::succeed(bool partial) { run_.set_result(outcome::success(partial), {}); }
void combo_call::fail(const error_code& code, std::string_view text) {
  run_.set_result(outcome::local_failure(code ? code : make_error_code(errc::internal)), text);
}
void combo_call::finish(const outcome& result, std::string_view text) { run_.set_result(result, text); }

void combo_call::finish_as(const finished_sub_call& sub) {
  if (run_.of()) run_.of()->copy_up(sub.control);
  if (!sub.result.succeeded()) {
    run_.set_result(sub.result, sub.control.ErrorText());
  } else if (run_.response().GetReflection() != sub.response.GetReflection()) {
    fail(errc::bad_response, "the sub call's response is of another type");
  } else {
    run_.response().GetReflection()->Swap(&run_.response(), &sub.response);
    run_.set_result(sub.result, {});
  }
}

call_group::call_group(combo_call& parent, std::size_t count)
    : state_(std::make_shared<combo::call_group_state>(parent.state(), parent.state().new_subs(count))) {
  parent.state().add(state_);
}

call_group::~call_group() { state_->cancel(cancel_cause::sibling_won); }

void call_group::launch(std::size_t index, channel_base& on, sub_call_request request) {
  state_->launch(index, on.target(), std::move(request));
}

controller& call_group::control(std::size_t index) { return state_->control(index); }
const finished_sub_call* call_group::next(yield_context yield) { return state_->next(yield); }

void call_group::cancel_rest(cancel_cause cause, yield_context yield) {
  state_->cancel(cause);
  state_->join(yield);
}

finished_sub_call call_group::at(std::size_t index) const { return state_->at(index); }
std::size_t call_group::running() const noexcept { return state_->running(); }

combo_channel::combo_channel(const runtime& rt, std::shared_ptr<behaviour> behaviour,
                             std::chrono::nanoseconds timeout)
    : channel_base(std::make_shared<combo::combo_target>(rt.core(), timeout, std::move(behaviour))) {}

combo_channel::~combo_channel() = default;

}  // namespace braid
