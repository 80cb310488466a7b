#include "client/start_elsewhere.hpp"

#include "core/loop.hpp"

#include <string>
#include <utility>

namespace braid::client {
namespace {

/// A call on its way to its loop. One that never gets there ends.
class call_on_its_way {
 public:
  call_on_its_way(async_root_call& started, std::shared_ptr<call_target> target, call_origin origin) noexcept
      : started_(&started), target_(std::move(target)), origin_(std::move(origin)) {}
  call_on_its_way(call_on_its_way&& other) noexcept
      : started_(std::exchange(other.started_, nullptr)),
        target_(std::move(other.target_)),
        origin_(std::move(other.origin_)) {}
  call_on_its_way& operator=(call_on_its_way&&) = delete;
  ~call_on_its_way() {
    if (started_) started_->end_without_loop();
  }
  void operator()() { std::exchange(started_, nullptr)->begin_later(target_, origin_); }

 private:
  async_root_call* started_;
  std::shared_ptr<call_target> target_;
  call_origin origin_;
};

}  // namespace

void start_elsewhere(const std::shared_ptr<call_target>& target, const call_request& wanted,
                     detail::call_completion* completion, std::shared_ptr<detail::cancel_handle> cancel,
                     std::optional<call_origin> origin) {
  core::loop& home = target->runtime().home();
  auto* const started = async_root_call::create(home, wanted, completion, std::move(cancel));
  if (!started->control().request_outlives_call()) {
    std::string why;
    // A request that cannot be serialised is copied, to fail on the loop as any other call does.
    if (!target->serialises_at_start() || !started->serialise(why)) started->copy_request();
  }
  if (!origin) origin = call_origin::here(started->control(), home);
  home.post(call_on_its_way(*started, target, *std::move(origin)));
}

}  // namespace braid::client
