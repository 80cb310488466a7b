#include <braid/channel_base.hpp>

#include "client/awaited_elsewhere.hpp"
#include "client/blocking_call.hpp"
#include "client/call_target.hpp"
#include "client/root_call.hpp"
#include "client/start_elsewhere.hpp"
#include "core/cancel_handle.hpp"
#include "core/coroutine.hpp"

#include <boost/asio/post.hpp>
#include <boost/asio/system_executor.hpp>

#include <utility>

namespace braid {
namespace client {
namespace {

/// A call that a coroutine waits for; it lies in the coroutine's frame.
class awaited_call final : public detail::await_base, public root_call {
 public:
  awaited_call(yield_context yield, const call_request& wanted)
      : await_base(yield), root_call(yield.owner().home(), wanted, nullptr) {}

 private:
  void ended() noexcept override { completed_later(); }
};

/// Why a coroutine that was cancelled starts no more calls; success when it was not.
outcome refusal(yield_context yield, const controller& control) {
  detail::await_base attempted(yield);
  if (control.detached() || attempted.may_start()) return outcome::success();
  attempted.refuse();
  return outcome::cancelled(yield.owner().node().cause());
}

/// A closure on its way to a loop, or, when that is gone, to the system's threads.
class posted_closure {
 public:
  explicit posted_closure(google::protobuf::Closure* done) noexcept : done_(done) {}
  posted_closure(posted_closure&& other) noexcept : done_(std::exchange(other.done_, nullptr)) {}
  posted_closure& operator=(posted_closure&&) = delete;
  ~posted_closure() {
    if (done_) boost::asio::post(boost::asio::system_executor(), [done = done_] { done->Run(); });
  }
  void operator()() { std::exchange(done_, nullptr)->Run(); }

 private:
  google::protobuf::Closure* done_;
};

/// The `done` of a protobuf call.
class closure_completion final : public detail::call_completion {
 public:
  explicit closure_completion(google::protobuf::Closure* done) noexcept : done_(done) {}
  void complete(const detail::loop_executor& home, error_code) override {
    try {
      take()->Run();
    } catch (...) {
      detail::throw_from_run(home);
    }
  }
  void complete_without_loop(error_code) override {
    boost::asio::post(boost::asio::system_executor(), [done = take()] { done->Run(); });
  }

 private:
  google::protobuf::Closure* take() {
    google::protobuf::Closure* done = done_;
    delete this;
    return done;
  }
  google::protobuf::Closure* done_;
};

}  // namespace
}  // namespace client

using client::call_request;

channel_base::channel_base(std::shared_ptr<client::call_target> target) noexcept
    : target_(std::move(target)) {}
channel_base::~channel_base() = default;

channel_base::executor_type channel_base::get_executor() const noexcept {
  return target_->runtime().home().executor();
}

bool channel_base::usable() const noexcept { return target_->usable(); }
int channel_base::capacity() const noexcept { return target_->capacity(); }

void channel_base::start_call(controller* control, const google::protobuf::MethodDescriptor& method,
                              const google::protobuf::Message& request, google::protobuf::Message& response,
                              detail::call_completion* completion,
                              std::shared_ptr<detail::cancel_handle> cancel) {
  const call_request wanted{&method, &request, &response, control};
  if (core::loop* const here = target_->runtime().current()) {
    auto* const started = client::async_root_call::create(*here, wanted, completion, std::move(cancel));
    started->set_request_borrowed();
    started->begin(target_);
  } else {
    client::start_elsewhere(target_, wanted, completion, std::move(cancel));
  }
}

void channel_base::await_call(controller* control, const google::protobuf::MethodDescriptor& method,
                              const google::protobuf::Message& request, google::protobuf::Message& response,
                              yield_context yield) {
  controller own;
  controller& used = control ? *control : own;
  const call_request wanted{&method, &request, &response, &used};
  if (const outcome refused = client::refusal(yield, used); !refused.succeeded()) {
    used.refuse_call(refused, "the coroutine had been cancelled before the call");
  } else if (target_->runtime().current()) {
    client::awaited_call waiting(yield, wanted);
    waiting.begin(target_);
    waiting.wait(false);
  } else {
    client::awaited_elsewhere::run(target_, method, used, request, response, yield);
  }
  if (yield.error_target()) {
    *yield.error_target() = used.error();
  } else if (used.error()) {
    throw detail::describe_failure(used);
  }
}

void channel_base::call(const google::protobuf::MethodDescriptor& method, controller& control,
                        const google::protobuf::Message& request, google::protobuf::Message& response,
                        error_code& ec) {
  core::loop* const here = core::loop::current();
  if (detail::coroutine* const caller = here ? here->running_coroutine() : nullptr) {
    await_call(&control, method, request, response, yield_context(*caller)[ec]);
    return;
  }
  if (here || target_->runtime().runs_here()) {
    control.refuse_call(outcome::local_failure({EPERM, boost::system::system_category()}),
                        "a synchronous call on a loop outside of a coroutine would wait for itself");
  } else {
    client::blocking_call::run(target_, method, control, request, response);
  }
  ec = control.error();
}

void channel_base::call(const google::protobuf::MethodDescriptor& method, controller& control,
                        const google::protobuf::Message& request, google::protobuf::Message& response) {
  error_code ec;
  call(method, control, request, response, ec);
  if (ec) throw detail::describe_failure(control);
}

void channel_base::call(const google::protobuf::MethodDescriptor& method,
                        const google::protobuf::Message& request, google::protobuf::Message& response) {
  controller control;
  call(method, control, request, response);
}

void channel_base::call(const google::protobuf::MethodDescriptor& method,
                        const google::protobuf::Message& request, google::protobuf::Message& response,
                        error_code& ec) {
  controller control;
  call(method, control, request, response, ec);
}

void channel_base::CallMethod(const google::protobuf::MethodDescriptor* method,
                              google::protobuf::RpcController* control,
                              const google::protobuf::Message* request, google::protobuf::Message* response,
                              google::protobuf::Closure* done) {
  auto* const ours = dynamic_cast<controller*>(control);
  if (control && !ours) {
    control->SetFailed("braid: the controller of a call on a channel must be a braid::controller");
    if (done) target_->runtime().home().post(client::posted_closure(done));
    return;
  }
  if (done) {
    start_call(ours, *method, *request, *response, new client::closure_completion(done), nullptr);
    return;
  }
  controller own;
  error_code ec;
  call(*method, ours ? *ours : own, *request, *response, ec);
}

}  // namespace braid
