#include "client/start_elsewhere.hpp"

#include "core/coroutine.hpp"
#include "core/loop.hpp"

#include <string>
#include <utility>

namespace braid::client {
namespace {

/// What the thread that starts a call brings along: the deadline of the coroutine that it runs, on whatever
/// loop.
core::time_point callers_deadline(const controller* control) noexcept {
  core::loop* const here = core::loop::current();
  detail::coroutine* const caller = here ? here->running_coroutine() : nullptr;
  return caller && !(control && control->detached()) ? caller->deadline() : core::time_point::max();
}

/// A call on its way to its loop. One that never gets there ends.
class call_on_its_way {
 public:
  call_on_its_way(async_root_call& started, std::shared_ptr<call_target> target,
                  core::time_point latest) noexcept
      : started_(&started), target_(std::move(target)), latest_(latest) {}
  call_on_its_way(call_on_its_way&& other) noexcept
      : started_(std::exchange(other.started_, nullptr)),
        target_(std::move(other.target_)),
        latest_(other.latest_) {}
  call_on_its_way& operator=(call_on_its_way&&) = delete;
  ~call_on_its_way() {
    if (started_) started_->end_without_loop();
  }
  void operator()() { std::exchange(started_, nullptr)->begin_later(target_, latest_); }

 private:
  async_root_call* started_;
  std::shared_ptr<call_target> target_;
  core::time_point latest_;
};

}  // namespace

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
  home.post(call_on_its_way(*started, target, latest));
}

}  // namespace braid::client
