#include "client/intercepted_call.hpp"

#include "client/sub_calls.hpp"
#include "core/coroutine.hpp"

#include <boost/asio/error.hpp>
#include <fmt/format.h>

#include <stdexcept>
#include <utility>

namespace braid {

const google::protobuf::MethodDescriptor& client_next::method() const noexcept { return call_.method(); }
const google::protobuf::Message& client_next::request() const noexcept { return call_.request(); }
google::protobuf::Message& client_next::response() noexcept { return call_.response(); }
void client_next::succeed() noexcept { call_.succeed(); }

void client_next::operator()(yield_context yield) {
  if (std::exchange(called_, true)) throw std::logic_error("braid: an interceptor called next twice");
  call_.run_from(index_, yield);
}

namespace client {

intercepted_target::intercepted_target(std::shared_ptr<call_target> behind, client_interceptors chain)
    : call_target(behind->shared_runtime(), behind->timeout()),
      behind_(std::move(behind)),
      chain_(std::move(chain)) {}

void intercepted_target::start(call& started, const std::shared_ptr<call_target>& self) noexcept {
  intercepted_call::start(started, std::static_pointer_cast<const intercepted_target>(self));
}

/// The coroutine's wait for the call behind the interceptors.
class intercepted_call::pause final : public detail::await_base {
 public:
  using await_base::await_base;
};

intercepted_call::intercepted_call(call& of, std::shared_ptr<const intercepted_target> target)
    : home_(of.home()),
      call_(&of),
      target_(std::move(target)),
      method_(of.method()),
      deadline_(of.deadline()),
      request_(of.request().New()),
      response_(of.response().New()) {
  request_->CopyFrom(of.request());
  sub_calls::inherit_metadata(control_, of.control());
  attach(of);
  of.set_runner(*this);
}

intercepted_call::~intercepted_call() = default;

void intercepted_call::start(call& of, std::shared_ptr<const intercepted_target> target) noexcept {
  auto* const started = new intercepted_call(of, std::move(target));  // ended() takes it back
  if (detail::coroutine::start(started->home_, *started, {.parent = started, .deadline = started->deadline_},
                               detail::start_mode::now))
    return;
  started->control_.set_failed({ENOMEM, boost::system::system_category()},
                               "no memory for the interceptors' coroutine");
  started->settle();
  delete started;
}

void intercepted_call::run_from(std::size_t index, yield_context yield) {
  if (index == target_->chain().size()) {
    run_call(yield);
    return;
  }
  client_next next(*this, index + 1);
  try {
    target_->chain()[index](control_, next, yield);
  } catch (...) {
    failed(detail::describe_current_exception());
  }
}

void intercepted_call::run_call(yield_context yield) {
  inner_.emplace(home_, method_, *request_, *response_, control_, static_cast<call_listener&>(*this));
  inner_->inherit_deadline(home_.now(), deadline_);
  inner_->attach(*this);
  if (!inner_->settled()) target_->behind()->start(*inner_, target_->behind());
  while (!inner_->settled()) {
    pause waiting(yield);
    waiting_ = &waiting;
    waiting.wait(false);
  }
}

void intercepted_call::on_settled(call&) noexcept {
  if (waiting_) std::exchange(waiting_, nullptr)->completed_later();
}

// What a cancelled interceptor throws is most often the "aborted" of its last wait.
void intercepted_call::failed(detail::failure why) noexcept {
  if (cancelled()) {
    const outcome ended = outcome::cancelled(cause());
    control_.set_failed(ended.code, {});
    return;
  }
  detail::report_failure(why, describe());
  control_.set_failed(errc::internal, fmt::format("{} failed", describe()));
}

void intercepted_call::succeed() noexcept { call::clear_failure(control_); }

void intercepted_call::call_settled() noexcept {
  call_ = nullptr;
  detach();
}

void intercepted_call::ended(const detail::loop_executor&) noexcept {
  settle();
  delete this;
}

// The call's own outcome, unless an interceptor has said otherwise.
outcome intercepted_call::result() const noexcept {
  const error_code& said = control_.error();
  if (inner_ && said == inner_->result().code) return inner_->result();
  if (!said) return outcome::success();
  if (cancelled()) {
    const outcome ended = outcome::cancelled(cause());
    if (said == boost::asio::error::operation_aborted || said == ended.code) return ended;
  }
  outcome failed;
  failed.code = said;
  return failed;
}

void intercepted_call::settle() noexcept {
  call* const of = call_;
  if (!of) return;
  of->copy_up(control_);
  if (of->cancelled() && of->cause() != cancel_cause::deadline) {
    of->settle_cancelled();
    return;
  }
  const outcome ended = is_late() ? outcome::cancelled(cancel_cause::deadline) : result();
  if (ended.succeeded()) {
    google::protobuf::Message& target = of->response();
    target.GetReflection()->Swap(&target, response_.get());
  }
  const bool told = control_.Failed() && control_.error() == ended.code;
  of->settle(ended, told ? control_.ErrorText() : std::string());
}

// What ends after the deadline's instant is late, though the loop was too busy to say so.
bool intercepted_call::is_late() const noexcept { return !cancelled() && home_.now() >= deadline_; }

std::string intercepted_call::describe() const {
  return fmt::format("an interceptor of {}", method_.full_name());
}

}  // namespace client
}  // namespace braid
