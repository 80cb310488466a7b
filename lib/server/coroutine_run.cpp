#include "server/coroutine_run.hpp"

#include "core/cancel_handle.hpp"
#include "core/coroutine.hpp"
#include "core/scoped_executor.hpp"
#include "server/running_call.hpp"

#include <utility>

namespace braid::server_side {

coroutine_run::coroutine_run(running_call& call, core::loop& where)
    : handler_run(call, &where), handle_(detail::make_cancel_handle()) {}

void coroutine_run::begin() noexcept {
  handle_->bind(anchor_, *where());
  if (!detail::coroutine::start(*where(), *this, {.parent = &anchor_, .deadline = deadline()},
                                detail::start_mode::now))
    call().handler_refused({ENOMEM, boost::system::system_category()},
                           "no memory for the handler's coroutine");
}

void coroutine_run::run(yield_context yield) { answers_ = call().invoke(yield); }

void coroutine_run::failed(detail::failure why) noexcept { thrown_ = std::move(why); }

void coroutine_run::ended(const detail::loop_executor&) noexcept {
  const auto keep = self();
  if (thrown_) {
    call().handler_threw(std::move(*thrown_));
  } else {
    call().handler_returned(answers_);
  }
}

void coroutine_run::on_cancel(cancel_cause cause) noexcept { handle_->request(cause); }

// Calls that the handler left running go on; they are below the anchor, on its loop.
void coroutine_run::on_end() noexcept {
  where()->post([keep = std::static_pointer_cast<coroutine_run>(self())] {
    keep->handle_->release();
    keep->anchor_.detach_children();
  });
}

std::string coroutine_run::describe() const { return call().describe(); }

boost::asio::any_io_executor coroutine_run::executor() {
  return core::scoped_executor(where()->executor(), self());
}

}  // namespace braid::server_side
