#include "server/handler_run.hpp"

#include "server/awaitable_run.hpp"
#include "server/coroutine_run.hpp"
#include "server/function_run.hpp"
#include "server/running_call.hpp"

#include <boost/asio/post.hpp>

#include <utility>
#include <variant>

namespace braid::server_side {

/// The handler on its way. An executor that ends without having run it destroys it.
class handler_run::entry {
 public:
  explicit entry(std::shared_ptr<handler_run> run) noexcept : run_(std::move(run)) {}
  entry(entry&&) noexcept = default;
  entry& operator=(entry&&) = delete;
  ~entry() {
    if (run_) run_->not_begun();
  }
  void operator()() noexcept { std::exchange(run_, nullptr)->begin(); }

 private:
  std::shared_ptr<handler_run> run_;
};

handler_run::handler_run(running_call& call, core::loop* where)
    : call_scope(call.deadline(), where == &call.home() ? where : nullptr), call_(call), where_(where) {
  if (where == &call.home()) set_node(&call);
}

std::shared_ptr<handler_run> handler_run::make(running_call& call, core::loop* where) {
  const detail::any_handler& handler = call.entry().handler;
  const detail::pool_allocator<handler_run> memory;
  if (std::holds_alternative<detail::awaitable_handler>(handler))
    return std::allocate_shared<awaitable_run>(memory, call, where);
  const bool in_coroutine = where && !std::holds_alternative<detail::callback_handler>(handler);
  if (in_coroutine) return std::allocate_shared<coroutine_run>(memory, call, *where);
  return std::allocate_shared<function_run>(memory, call, where);
}

std::shared_ptr<handler_run> handler_run::self() {
  return std::static_pointer_cast<handler_run>(shared_from_this());
}

void handler_run::start() noexcept {
  if (where_ == &call_.home()) {
    begin();
    return;
  }
  entry on_its_way(self());
  try {
    if (where_) {
      where_->post(std::move(on_its_way));
    } else {
      boost::asio::post(foreign_executor(), std::move(on_its_way));
    }
  } catch (...) {  // without memory for the post; the entry, wherever it was by then, has told the call
  }
}

void handler_run::not_begun() noexcept {
  let_go();
  call_.handler_refused(errc::logoff, "the executor of the handler takes no more work");
}

}  // namespace braid::server_side
