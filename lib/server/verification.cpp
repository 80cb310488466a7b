#include "server/verification.hpp"

#include <fmt/format.h>

#include <utility>

namespace braid::server_side {
namespace {

using finding = boost::system::result<auth_context>;

std::string why_refused(core::coroutine_end how, const std::string& thrown, const finding& found) {
  switch (how) {
    case core::coroutine_end::returned:
      return found ? std::string() : found.error().message();
    case core::coroutine_end::threw:
      return thrown;
    case core::coroutine_end::timed_out:
      return "it took longer than auth_timeout";
    case core::coroutine_end::refused:
      return "no memory for a coroutine";
  }
  return {};
}

}  // namespace

void verification::start(core::loop& home, const server_options& options, std::string_view credential,
                         const endpoint& client, listener decided) {
  auto found = std::make_shared<finding>(error_code(errc::auth_failed));
  auto check = [by = options.auth, shown = std::string(credential), client, found](yield_context yield) {
    *found = by->verify_credential(shown, client, yield);
  };
  auto ended = [found, decided = std::move(decided)](core::coroutine_end how, const std::string& thrown) {
    const bool accepted = how == core::coroutine_end::returned && found->has_value();
    decided(accepted ? std::make_shared<const auth_context>(std::move(**found)) : nullptr,
            why_refused(how, thrown, *found));
  };
  const auto limit = options.auth_timeout;
  checking_.start(home, fmt::format("checking the credential of {}", client.to_string()),
                  limit.count() > 0 ? home.after(limit) : core::time_point::max(), std::move(check),
                  std::move(ended));
}

}  // namespace braid::server_side
