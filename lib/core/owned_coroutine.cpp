#include "core/owned_coroutine.hpp"

#include "core/coroutine.hpp"

#include <utility>

namespace braid::core {

/// One run. It destroys itself when the coroutine has ended.
class owned_coroutine::one_run final : public braid::detail::coroutine_body, public cancel_node {
 public:
  one_run(owned_coroutine& owner, loop& home, std::string name, time_point deadline, function body,
          listener ended)
      : owner_(&owner),
        home_(home),
        name_(std::move(name)),
        deadline_(deadline),
        body_(std::move(body)),
        ended_(std::move(ended)) {}

  void start() {
    if (deadline_ != time_point::max()) home_.arm(timer_, deadline_);
    const braid::detail::coroutine_context below{.parent = this, .deadline = deadline_};
    if (braid::detail::coroutine::start(home_, *this, below, braid::detail::start_mode::now)) return;
    report(coroutine_end::refused);
    delete this;
  }

  void leave(cancel_cause cause) noexcept {
    release();
    cancel(cause);
  }

 private:
  void run(yield_context yield) override { body_(yield); }
  void failed(braid::detail::failure why) noexcept override {
    end_ = coroutine_end::threw;
    why_ = std::move(why.text);
  }
  void ended(const braid::detail::loop_executor&) noexcept override {
    report(end_);
    delete this;
  }
  void refused(const error_code&) noexcept override {}
  std::string describe() const override { return name_; }
  void on_cancel(cancel_cause) noexcept override {}

  /// The owner has gone, or has been told.
  owned_coroutine* release() noexcept {
    timer_.cancel();
    owned_coroutine* const owner = std::exchange(owner_, nullptr);
    if (owner) owner->running_ = nullptr;
    return owner;
  }
  void report(coroutine_end end) noexcept {
    if (release()) ended_(end, why_);
  }
  void time_is_over() noexcept {
    cancel(cancel_cause::deadline);
    report(coroutine_end::timed_out);
  }

  struct deadline_timer : timer_node {
    explicit deadline_timer(one_run& of) noexcept : timer_node(&deadline_timer::fire), owner(of) {}
    static void fire(timer_node& node) { static_cast<deadline_timer&>(node).owner.time_is_over(); }
    one_run& owner;
  };

  owned_coroutine* owner_;
  loop& home_;
  std::string name_;
  time_point deadline_;
  function body_;
  listener ended_;
  deadline_timer timer_{*this};
  coroutine_end end_ = coroutine_end::returned;
  std::string why_;
};

void owned_coroutine::start(loop& home, std::string name, time_point deadline, function body,
                            listener ended) {
  running_ = new one_run(*this, home, std::move(name), deadline, std::move(body), std::move(ended));
  running_->start();
}

void owned_coroutine::abandon(cancel_cause cause) noexcept {
  if (running_) running_->leave(cause);
}

}  // namespace braid::core
