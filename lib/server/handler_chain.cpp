#include "server/handler_chain.hpp"

#include "core/coroutine.hpp"
#include "server/running_call.hpp"

#include <fmt/format.h>

#include <stdexcept>
#include <utility>

namespace braid {

const google::protobuf::Message& server_next::request() const noexcept { return chain_.call().request(); }
google::protobuf::Message& server_next::response() noexcept { return chain_.call().response(); }
void server_next::succeed() noexcept {
  if (!chain_.gave_up()) chain_.call().clear_failure();
}

void server_next::operator()(yield_context yield) {
  if (std::exchange(called_, true)) throw std::logic_error("braid: an interceptor called next twice");
  chain_.run(index_, yield);
}

namespace server_side {

/// The coroutine's wait for the handler's answer.
class handler_chain::pause final : public detail::await_base {
 public:
  using await_base::await_base;
};

void handler_chain::run(std::size_t index, yield_context yield) noexcept {
  const auto& interceptors = call_.entry().interceptors;
  if (index == interceptors.size()) {
    run_handler(yield);
    return;
  }
  server_next next(*this, index + 1);
  try {
    interceptors[index](call_, next, yield);
  } catch (...) {
    const auto why = detail::describe_current_exception();
    call_.report(why, "an interceptor");
    if (!gave_up()) call_.fail("an interceptor");
  }
}

void handler_chain::run_handler(yield_context yield) noexcept {
  if (!call_.start_apart()) {
    try {
      if (call_.invoke(yield)) answered_ = true;
    } catch (...) {
      call_.report(detail::describe_current_exception(), "the handler");
      call_.fail("the handler");
      answered_ = true;
    }
  }
  while (!answered_ && !gave_up_) {
    pause waiting(yield);
    waiting_ = &waiting;
    waiting.wait(false);
  }
  left_handler_ = !answered_;
  if (!gave_up()) call_.show_cancellation();
}

void handler_chain::answered() noexcept {
  answered_ = true;
  wake();
}

void handler_chain::give_up() noexcept {
  gave_up_ = true;
  wake();
}

// Queued, and never resumed in here: who runs `done` may hold a lock.
void handler_chain::wake() noexcept {
  if (waiting_) std::exchange(waiting_, nullptr)->completed_later();
}

}  // namespace server_side
}  // namespace braid
