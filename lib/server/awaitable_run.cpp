#include "server/awaitable_run.hpp"

#include "core/scoped_executor.hpp"
#include "server/running_call.hpp"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/post.hpp>

#include <utility>
#include <variant>

namespace braid::server_side {

/// The handler of the coroutine's end. Destroyed without a call: what the coroutine waited for has dropped
/// it, and it is gone.
class awaitable_run::completion {
 public:
  explicit completion(std::shared_ptr<awaitable_run> run) noexcept : run_(std::move(run)) {}
  completion(completion&&) noexcept = default;
  completion& operator=(completion&&) = delete;
  ~completion() {
    if (!run_) return;
    const boost::system::system_error dropped(boost::asio::error::operation_aborted,
                                              "what the handler waited for was destroyed");
    run_->ended(std::make_exception_ptr(dropped));
  }
  void operator()(const std::exception_ptr& thrown) noexcept { std::exchange(run_, nullptr)->ended(thrown); }

 private:
  std::shared_ptr<awaitable_run> run_;
};

awaitable_run::awaitable_run(running_call& call, core::loop* where) : handler_run(call, where) {
  if (!where) strand_.emplace(call.entry().run_on.executor());
}

boost::asio::any_io_executor awaitable_run::executor() {
  if (where()) return core::scoped_executor(where()->executor(), self());
  const std::lock_guard lock(mutex_);
  if (!strand_) return {};
  return core::scoped_executor(*strand_, self());
}

void awaitable_run::let_go() noexcept {
  std::optional<strand> dropped;
  const std::lock_guard lock(mutex_);
  dropped.swap(strand_);
}

void awaitable_run::begin() noexcept {
  const auto keep = std::static_pointer_cast<awaitable_run>(self());
  if (where()) where()->add_live(*this);
  std::exception_ptr thrown;
  try {
    const entered inside(this);
    const auto& handler = std::get<detail::awaitable_handler>(call().entry().handler);
    boost::asio::co_spawn(executor(), handler(call(), call().request(), call().response()),
                          boost::asio::bind_cancellation_slot(signal_.slot(), completion(keep)));
  } catch (...) {
    thrown = std::current_exception();
  }
  if (thrown) ended(thrown);
}

// Posted, since an awaitable goes on inside the emit; and after begin(), which is on its way already.
void awaitable_run::on_cancel(cancel_cause) noexcept {
  const auto where_it_runs = executor();
  if (!where_it_runs) return;  // it has ended
  boost::asio::post(where_it_runs,
                    [keep = std::static_pointer_cast<awaitable_run>(self())] { keep->emit(); });
}

void awaitable_run::emit() noexcept {
  if (over_) return;
  emitting_ = true;
  signal_.emit(boost::asio::cancellation_type::terminal);
  emitting_ = false;
  if (over_) signal_.slot().clear();
}

void awaitable_run::ended(const std::exception_ptr& thrown) noexcept {
  if (std::exchange(over_, true)) return;
  unlink();
  // What is in the slot has the executor and so this very object; inside an emit it is still in use.
  if (!emitting_) signal_.slot().clear();
  let_go();
  if (!thrown) {
    call().handler_returned(true);
    return;
  }
  try {
    std::rethrow_exception(thrown);
  } catch (...) {
    call().handler_threw(detail::describe_current_exception());
  }
}

std::string awaitable_run::describe() const { return call().describe(); }

}  // namespace braid::server_side
