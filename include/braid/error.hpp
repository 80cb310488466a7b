#pragma once

/// \file
/// The errors of a call: the named ones, their numbers on the wire, and the exception of the throwing forms.

#include <braid/config.hpp>

#include <boost/system/error_category.hpp>
#include <boost/system/error_code.hpp>
#include <boost/system/system_error.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>

namespace braid {

/// The error type of every operation of this library.
using error_code = boost::system::error_code;

/// The named errors of a call. The numbers are those of the wire and never change.
///
/// A cancelled call is `boost::asio::error::operation_aborted` and a refused connection
/// `boost::asio::error::connection_refused`: errors the operating system has a name for keep it.
enum class errc : int {
  /// The server has no service of that name: check the name, and that this server is the one meant.
  no_service = 1001,
  /// The service has no method of that name: client and server were probably built from different .proto
  /// files.
  no_method = 1002,
  /// The server could not read the request: compare the .proto files, and look for a required field left out.
  bad_request = 1003,
  /// The server did not accept the credentials: check the authenticator of the channel and the server's.
  auth_failed = 1004,
  /// More sub calls failed than `fail_limit` allows: look at the sub calls' own errors for the cause.
  too_many_fails = 1005,
  /// The combo call had its result already, so this sub call was cancelled: nothing needs doing.
  parallel_finished = 1006,
  /// A backup request is to be sent now; internal, never the result of a call.
  backup_request = 1007,
  /// The deadline passed: find out whether the server is slow or the timeout too short.
  timed_out = 1008,
  /// The connection broke, or failed in a way that has no number of its own: the text holds the errno.
  socket_failed = 1009,
  /// The HTTP exchange failed: the text holds the status.
  http = 1010,
  /// Too many bytes wait to be written to this peer: it reads too slowly, or is sent too much.
  overcrowded = 1011,
  /// The peer closed the connection: it restarted, crashed, or closes connections it finds idle.
  eof = 1014,
  /// The TLS layer failed: check certificates, host name and protocol versions.
  ssl = 1016,
  /// The server refused the call before running it, by its own rules (an interceptor): ask its owner.
  rejected = 1018,
  /// The server failed inside: its log holds the reason.
  internal = 2001,
  /// The response could not be read or is larger than the client allows: compare .proto files and limits.
  bad_response = 2002,
  /// The server is shutting down: the call is safe to send to another one.
  logoff = 2003,
  /// The server is at its limit of concurrent calls or of bytes in flight: add capacity or lower the load.
  limit = 2004,
  /// The connection or the channel was closed on purpose while the call was in it.
  closed = 2005,
};

/// The category (named "braid") of `errc` and of the numbers that applications use as errors of their own.
///
/// `errc::timed_out` of this category equals the condition `boost::system::errc::timed_out`.
/// Thread safety: may be called from any thread, also before main().
const boost::system::error_category& rpc_category() noexcept;

/// Makes an `error_code` from a named error; found by the conversion from `errc`.
inline error_code make_error_code(errc value) noexcept { return {static_cast<int>(value), rpc_category()}; }

/// The error that a number received from a peer stands for.
///
/// 0 is success. The errno values 1, 11, 12, 22, 32, 61, 104, 110, 111, 112 and 125 come back in the system
/// category, so that 125 equals `boost::asio::error::operation_aborted`. Everything else, named here or
/// the application's own (also negative numbers), is of `rpc_category()`.
error_code from_wire(std::int32_t number) noexcept;

/// The number that tells a peer of an error: the inverse of `from_wire()` where that exists.
///
/// Numbers of `rpc_category()` and the errno values that `from_wire()` lists pass unchanged. Asio's end of
/// file becomes 1014, a failed name lookup 112, an error of OpenSSL or of a TLS stream 1016. All else becomes
/// 1009; whoever reports the error puts its message in the text.
std::int32_t to_wire(const error_code& ec) noexcept;

/// Thrown by the throwing forms of a call: the error code with the call's text, peer and attempts.
///
/// Copying does not throw. Thread safety: a value; const members may be called from several threads.
class call_error : public boost::system::system_error {
 public:
  /// \param ec        why the call failed.
  /// \param text      what the server or the runtime said about it; may be empty.
  /// \param peer      the server of the last attempt ("10.0.0.1:8000"); empty if none was chosen.
  /// \param attempts  how many attempts were made; see controller::attempts().
  explicit call_error(const error_code& ec, std::string_view text = {}, std::string_view peer = {},
                      int attempts = 0);

  /// What the server or the runtime said; lives as long as this exception or a copy of it.
  const std::string& text() const noexcept { return details_->text; }

  /// The server of the last attempt, or empty; lives as long as this exception or a copy of it.
  const std::string& peer() const noexcept { return details_->peer; }

  /// How many attempts were made; see controller::attempts().
  int attempts() const noexcept { return details_->attempts; }

 private:
  struct details {
    std::string text;
    std::string peer;
    int attempts;
  };
  std::shared_ptr<const details> details_;  // shared, since the copy of an exception must not throw
};

}  // namespace braid

/// \cond
template <>
struct boost::system::is_error_code_enum<braid::errc> : std::true_type {};  // an errc becomes an error_code
/// \endcond
