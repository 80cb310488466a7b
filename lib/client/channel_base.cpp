#include <braid/channel_base.hpp>

#include "client/call_target.hpp"
#include "client/root_call.hpp"
#include "core/coroutine.hpp"

#include <boost/asio/error.hpp>

#include <condition_variable>
#include <mutex>
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
  void ended() noexcept override { completed(); }
};

/// A foreign thread's wait.
class blocking_completion final : public detail::erased_completion<error_code> {
 public:
  void complete(const detail::loop_executor&, error_code) override { notify(); }
  void complete_without_loop(error_code) override { notify(); }
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return done_; });
  }

 private:
  void notify() {
    const std::lock_guard lock(mutex_);
    done_ = true;
    changed_.notify_one();  // under the lock: the waiter destroys this object
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
};

/// The `done` of a protobuf call.
class closure_completion final : public detail::erased_completion<error_code> {
 public:
  explicit closure_completion(google::protobuf::Closure* done) noexcept : done_(done) {}
  void complete(const detail::loop_executor&, error_code) override { run(); }
  void complete_without_loop(error_code) override { run(); }

 private:
  void run() {
    google::protobuf::Closure* done = done_;
    delete this;
    done->Run();
  }
  google::protobuf::Closure* done_;
};

/// What the thread that starts a call brings along: the deadline of the coroutine that it runs, on whatever loop.
core::time_point callers_deadline(const controller* control) noexcept {
  core::loop* const here = core::loop::current();
  detail::coroutine* const caller = here ? here->running_coroutine() : nullptr;
  return caller && !(control && control->detached()) ? caller->deadline() : core::time_point::max();
}

/// Whether the request may be gone before the loop gets to it.
enum class request_lifetime : bool { initiation, call };

void start_elsewhere(const std::shared_ptr<call_target>& target, const call_request& wanted,
                     request_lifetime lifetime, detail::erased_completion<error_code>* completion,
                     std::shared_ptr<detail::cancel_handle> cancel) {
  core::loop& home = target->runtime().home();
  const core::time_point latest = callers_deadline(wanted.control);
  auto* const started = async_root_call::create(home, wanted, completion, std::move(cancel));
  if (lifetime == request_lifetime::initiation && !started->control().request_outlives_call()) {
    std::string why;
    // A request that cannot be serialised is copied, to fail on the loop as any other call does.
    if (!target->serialises_at_start() || !started->serialise(why)) started->copy_request();
  }
  const bool accepted = home.post([started, target, latest] { started->begin(target, latest); });
  if (!accepted) started->end_without_loop();
}

}  // namespace
}  // namespace client

using client::call_request;

channel_base::channel_base(std::shared_ptr<client::call_target> target) noexcept : target_(std::move(target)) {}
channel_base::~channel_base() = default;

channel_base::executor_type channel_base::get_executor() const noexcept {
  return target_->runtime().home().executor();
}

bool channel_base::usable() const noexcept { return target_->usable(); }
int channel_base::capacity() const noexcept { return target_->capacity(); }

void channel_base::start_call(controller* control, const google::protobuf::MethodDescriptor& method,
                              const google::protobuf::Message& request, google::protobuf::Message& response,
                              detail::erased_completion<error_code>* completion,
                              std::shared_ptr<detail::cancel_handle> cancel) {
  const call_request wanted{&method, &request, &response, control};
  if (core::loop* const here = target_->runtime().current()) {
    auto* const started = client::async_root_call::create(*here, wanted, completion, std::move(cancel));
    started->set_request_borrowed();
    started->begin(target_, core::time_point::max());
  } else {
    client::start_elsewhere(target_, wanted, client::request_lifetime::initiation, completion, std::move(cancel));
  }
}

void channel_base::await_call(controller* control, const google::protobuf::MethodDescriptor& method,
                              const google::protobuf::Message& request, google::protobuf::Message& response,
                              yield_context yield) {
  controller own;
  controller& used = control ? *control : own;
  if (target_->runtime().current()) {
    client::awaited_call waiting(yield, {&method, &request, &response, &used});
    waiting.begin(target_, core::time_point::max());
    waiting.wait(false);
  } else {
    // The channel's loops are another runtime's: the call runs there and reports back by post.
    error_code ec;
    boost::asio::async_initiate<const yield_context, void(error_code)>(
        [&](auto handler) {
          auto cancel = detail::connect_slot(handler.get_cancellation_slot());
          client::start_elsewhere(target_, {&method, &request, &response, &used}, client::request_lifetime::call,
                                  detail::handler_completion<decltype(handler), error_code>::create(
                                      std::move(handler)),
                                  std::move(cancel));
        },
        yield[ec]);
    if (ec && !used.error()) used.fail_without_call(ec, "the coroutine was cancelled before the call");
  }
  if (yield.error_target()) {
    *yield.error_target() = used.error();
  } else if (used.error()) {
    throw call_error(used.error(), used.ErrorText(), used.remote_side().to_string(), used.attempts());
  }
}

void channel_base::call(const google::protobuf::MethodDescriptor& method, controller& control,
                        const google::protobuf::Message& request, google::protobuf::Message& response,
                        error_code& ec) {
  if (core::loop* const here = core::loop::current()) {
    detail::coroutine* const caller = here->running_coroutine();
    if (!caller) {
      control.fail_without_call({EPERM, boost::system::system_category()},
                                "a synchronous call on a loop outside of a coroutine would wait for itself");
      ec = control.error();
      return;
    }
    await_call(&control, method, request, response, yield_context(*caller)[ec]);
    return;
  }
  client::blocking_completion waiting;
  client::start_elsewhere(target_, {&method, &request, &response, &control}, client::request_lifetime::call, &waiting,
                          nullptr);
  waiting.wait();
  ec = control.error();
}

void channel_base::call(const google::protobuf::MethodDescriptor& method, controller& control,
                        const google::protobuf::Message& request, google::protobuf::Message& response) {
  error_code ec;
  call(method, control, request, response, ec);
  if (ec) throw call_error(ec, control.ErrorText(), control.remote_side().to_string(), control.attempts());
}

void channel_base::call(const google::protobuf::MethodDescriptor& method, const google::protobuf::Message& request,
                        google::protobuf::Message& response) {
  controller control;
  call(method, control, request, response);
}

void channel_base::CallMethod(const google::protobuf::MethodDescriptor* method,
                              google::protobuf::RpcController* control, const google::protobuf::Message* request,
                              google::protobuf::Message* response, google::protobuf::Closure* done) {
  auto* const ours = dynamic_cast<controller*>(control);
  if (control && !ours) {
    control->SetFailed("braid: the controller of a call on a channel must be a braid::controller");
    if (done) done->Run();
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
