#include "client/caller_link.hpp"

#include "core/runtime_core.hpp"

#include <utility>

namespace braid::client {

/// Belongs to the coroutine's loop.
class caller_link::place final : public cancel_node {
 public:
  explicit place(std::shared_ptr<detail::cancel_handle> call) noexcept : call_(std::move(call)) {}

 private:
  void on_cancel(cancel_cause cause) noexcept override { call_->request(cause); }

  const std::shared_ptr<detail::cancel_handle> call_;
};

caller_link::caller_link(detail::coroutine& caller)
    : home_(caller.home()),
      keep_home_(home_.owner().shared_from_this()),
      handle_(detail::make_cancel_handle()),
      place_(std::make_unique<place>(handle_)) {
  place_->attach(caller.node());
}

// A loop that takes no more has no node left that this could be below.
caller_link::~caller_link() {
  home_.post([place = std::move(place_)] {});
}

}  // namespace braid::client
