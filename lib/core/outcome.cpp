#include <braid/outcome.hpp>

#include <boost/asio/error.hpp>

namespace braid {
namespace {

// Failures of one server or of the way to it: another server, or a new connection, may do better. Not among
// them are 61 and 112 for want of a server, which only another sub channel or scheme can help.
bool local_retryable(std::int32_t number) noexcept {
  switch (number) {
    case 32:   // EPIPE
    case 104:  // ECONNRESET
    case 110:  // ETIMEDOUT: connecting took too long
    case 111:  // ECONNREFUSED
    case static_cast<std::int32_t>(errc::socket_failed):
    case static_cast<std::int32_t>(errc::overcrowded):
    case static_cast<std::int32_t>(errc::eof):
      return true;
    default:
      return false;
  }
}

}  // namespace

outcome outcome::cancelled(cancel_cause cause) noexcept {
  outcome result{.cause = cause};
  if (cause == cancel_cause::deadline) {
    result.code = errc::timed_out;
  } else {
    result.code = boost::asio::error::operation_aborted;
  }
  return result;
}

outcome outcome::local_failure(const error_code& code) noexcept {
  const std::int32_t number = to_wire(code);
  return {.code = from_wire(number), .retryable = local_retryable(number)};
}

outcome outcome::peer_failure(const error_code& code) noexcept {
  return {
      .code = code, .origin = outcome_origin::peer, .retryable = code == errc::logoff || code == errc::limit};
}

}  // namespace braid
