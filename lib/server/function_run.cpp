#include "server/function_run.hpp"

#include "core/runtime_core.hpp"
#include "core/scoped_executor.hpp"
#include "server/running_call.hpp"

#include <fmt/format.h>

#include <optional>
#include <utility>
#include <variant>

namespace braid::server_side {

/// What the copies of a handler's call_done share.
class function_run::done_copies final : public detail::done_target {
 public:
  explicit done_copies(std::shared_ptr<function_run> run) noexcept : run_(std::move(run)) {}
  done_copies(const done_copies&) = delete;
  done_copies& operator=(const done_copies&) = delete;
  ~done_copies() { run_->done_dropped(); }
  void done() noexcept override { run_->done(); }

 private:
  std::shared_ptr<function_run> run_;
};

function_run::function_run(running_call& call, core::loop* where)
    : handler_run(call, where), keep_(call.home().owner().shared_from_this()), method_(call.method()) {}

void function_run::begin() noexcept {
  const auto keep = self();
  std::shared_ptr<done_copies> copies;  // one that outlives what the handler throws
  std::optional<detail::failure> thrown;
  bool answered = false;
  {
    const entered inside(this);
    try {
      answered = invoke(copies);
    } catch (...) {
      thrown = detail::describe_current_exception();
    }
  }
  if (!thrown) {
    copies.reset();
    call().handler_returned(answered);
  } else {
    // Whoever has the call_done of a handler that threw can do nothing with it. If it was called before, that
    // answers, and may still be on its way on another thread.
    const bool fails = !done_used_.exchange(true);
    call().handler_threw(std::move(*thrown), fails);
  }
}

bool function_run::invoke(std::shared_ptr<done_copies>& copies) {
  running_call& of = call();
  const google::protobuf::Message& request = of.request();
  google::protobuf::Message& response = of.response();
  const detail::any_handler& handler = of.entry().handler;
  if (const auto* plain = std::get_if<detail::plain_handler>(&handler)) {
    (*plain)(of, request, response);
    return true;
  }
  if (const auto* generated = std::get_if<detail::generated_handler>(&handler)) {
    (*generated)(of, request, response, of.done());
    return false;
  }
  copies = std::allocate_shared<done_copies>(detail::pool_allocator<done_copies>(),
                                             std::static_pointer_cast<function_run>(self()));
  std::get<detail::callback_handler>(handler)(of, request, response, call_done(copies));
  return false;
}

void function_run::done() noexcept {
  if (!done_used_.exchange(true)) {
    call().done().Run();
    return;
  }
  keep_->log().log(
      log_level::warning,
      fmt::format("the done of the handler of {} was called again: ignored", method_.full_name()), {});
}

void function_run::done_dropped() noexcept {
  if (!done_used_.exchange(true)) call().done_dropped();
}

boost::asio::any_io_executor function_run::executor() {
  if (where()) return core::scoped_executor(where()->executor(), self());
  return core::scoped_executor(foreign_executor(), self());
}

boost::asio::any_io_executor function_run::foreign_executor() const {
  return call().entry().run_on.executor();
}

}  // namespace braid::server_side
