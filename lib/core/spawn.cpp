#include <braid/spawn.hpp>

#include "core/coroutine.hpp"
#include "core/runtime_core.hpp"

#include <boost/asio/error.hpp>
#include <fmt/format.h>

namespace braid::detail {
namespace {

const error_code no_memory{ENOMEM, boost::system::system_category()};

void start_or_refuse(core::loop& home, coroutine_body* body, const coroutine_context& context, start_mode mode,
                     std::shared_ptr<cancel_handle> handle) {
  if (!coroutine::start(home, *body, context, mode, std::move(handle))) body->refused(no_memory);
}

}  // namespace

void start_coroutine(const runtime& where, std::unique_ptr<coroutine_body> body,
                     std::shared_ptr<cancel_handle> handle) {
  core::loop& home = where.core()->home();
  coroutine_body* started = body.release();
  const bool accepted = home.post([&home, started, handle = std::move(handle)]() mutable {
    if (home.stopping()) {
      started->refused(boost::asio::error::operation_aborted);
      return;
    }
    start_or_refuse(home, started, {}, start_mode::now, std::move(handle));
  });
  if (!accepted) started->refused(boost::asio::error::operation_aborted);
}

void start_coroutine(const yield_context& parent, std::unique_ptr<coroutine_body> body,
                     std::shared_ptr<cancel_handle> handle) {
  coroutine& above = parent.owner();
  start_or_refuse(above.home(), body.release(), {&above.own_node(), above.deadline()}, start_mode::soon,
                  std::move(handle));
}

void report_failure(const failure& why, const std::string& who) noexcept {
  core::loop* here = core::loop::current();
  if (here) here->log().log(log_level::error, fmt::format("{} was ended by an exception: {}", who, why.text), {});
}

std::string describe_location(const std::source_location& where) {
  return fmt::format("the coroutine spawned at {}:{}", where.file_name(), where.line());
}

}  // namespace braid::detail
