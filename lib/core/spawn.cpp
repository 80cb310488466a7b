#include <braid/spawn.hpp>

#include "core/coroutine.hpp"
#include "core/runtime_core.hpp"

#include <boost/asio/error.hpp>
#include <fmt/format.h>

#include <algorithm>

namespace braid::detail {
namespace {

const error_code no_memory{ENOMEM, boost::system::system_category()};

void start_or_refuse(core::loop& home, coroutine_body* body, const coroutine_context& context,
                     start_mode mode, std::shared_ptr<cancel_handle> handle) {
  if (!coroutine::start(home, *body, context, mode, std::move(handle))) {
    body->refused_on(home.executor(), no_memory);
  }
}

/// A coroutine on its way to its loop. One that never gets there is refused.
class pending_start {
 public:
  pending_start(core::loop& home, std::unique_ptr<coroutine_body> body, std::shared_ptr<cancel_handle> handle)
      : home_(home), body_(std::move(body)), handle_(std::move(handle)) {}
  pending_start(pending_start&&) noexcept = default;
  pending_start& operator=(pending_start&&) = delete;
  ~pending_start() {
    if (body_) body_.release()->refused(boost::asio::error::operation_aborted);
  }

  /// On the loop.
  void start(start_mode mode) {
    if (home_.owner().stop_begun()) {
      body_.release()->refused_on(home_.executor(), boost::asio::error::operation_aborted);
    } else {
      start_or_refuse(home_, body_.release(), {}, mode, std::move(handle_));
    }
  }
  void operator()() { start(start_mode::now); }

 private:
  core::loop& home_;
  std::unique_ptr<coroutine_body> body_;
  std::shared_ptr<cancel_handle> handle_;
};

}  // namespace

void start_coroutine(const runtime& where, std::unique_ptr<coroutine_body> body,
                     std::shared_ptr<cancel_handle> handle) {
  core::loop& home = where.core()->home();
  pending_start pending(home, std::move(body), std::move(handle));
  if (home.is_current()) {
    pending.start(start_mode::soon);
  } else {
    home.post(std::move(pending));
  }
}

void start_coroutine(const yield_context& parent, std::unique_ptr<coroutine_body> body,
                     std::shared_ptr<cancel_handle> handle) {
  coroutine& above = parent.owner();
  if (!above.is_running()) throw_outside_coroutine();
  // A shield that is left hands what is below it to the coroutine, whose own deadline then holds.
  const core::time_point deadline = std::max(above.deadline(), above.own_deadline());
  start_or_refuse(above.home(), body.release(), {&above.node(), deadline}, start_mode::soon,
                  std::move(handle));
}

void report_failure(const failure& why, const std::string& who) noexcept {
  core::loop* here = core::loop::current();
  if (!here) return;
  const coroutine* running = here->running_coroutine();
  const bool expected =
      running && running->is_cancelled() && why.code == boost::asio::error::operation_aborted;
  const log_level level = expected ? log_level::debug : log_level::error;
  if (!here->log().enabled(level)) return;
  here->log().log(level, fmt::format("{} was ended by an exception: {}", who, why.text), {});
}

std::string describe_location(const std::source_location& where) {
  return fmt::format("the coroutine spawned at {}:{}", where.file_name(), where.line());
}

}  // namespace braid::detail
