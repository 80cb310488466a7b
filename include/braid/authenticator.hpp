#pragma once

/// \file
/// Credentials: how a client makes them, and how a server checks them.

#include <braid/config.hpp>
#include <braid/coroutine.hpp>
#include <braid/endpoint.hpp>
#include <braid/error.hpp>

#include <boost/system/result.hpp>

#include <any>
#include <string>
#include <string_view>

namespace braid {

/// Who a client is, as the server's authenticator found. Handlers see it as server_call::auth().
///
/// Thread safety: not changed once the authenticator has returned it; may be read from any thread.
struct auth_context {
  std::string user{};       ///< The name of the user; may be empty.
  std::string group{};      ///< The user's group.
  std::string roles{};      ///< The user's roles, in a form of the authenticator's.
  std::string starter{};    ///< Who started the client's process.
  bool is_service = false;  ///< Whether the client is a program and no person.
  std::any details{};       ///< Whatever else the authenticator wants handlers to know.
};

/// Makes and checks the credentials of connections.
///
/// What it does: a channel with an authenticator (channel_options::auth) asks it for credentials once for
/// each connection, after connecting, and sends them with the first request; calls wait for that inside their
/// deadlines. A server with one (server_options::auth) has the credentials of each connection checked once,
/// before the first request runs; later requests of the connection wait for the verdict. Credentials that are
/// missing or refused: that request, and what was read behind it, is answered errc::auth_failed, and the
/// connection is closed.
///
/// Both functions run in a coroutine on the connection's loop, so they may suspend: call another service,
/// sleep. An authenticator of one side overrides one of them.
///
/// Errors: a code in the result, or an exception. The client's calls then end with errc::auth_failed and the
/// text; the server logs the reason, and tells the client no more than that it was refused.
///
/// Deadlines: channel_options::auth_timeout, server_options::auth_timeout. A function that goes on beyond it
/// is cancelled and no longer waited for. So is one whose connection ends.
///
/// Object lifetimes: channels and servers share it, and so does each run of its functions. What the views
/// refer to lives until the function returns.
///
/// Thread safety: its functions are called on all loops of the runtime, several at once.
class authenticator {
 public:
  authenticator() = default;
  authenticator(const authenticator&) = delete;
  authenticator& operator=(const authenticator&) = delete;
  virtual ~authenticator() = default;

  /// Client: the credentials for a new connection to `server`, at most 32 KiB, and never logged. The default
  /// has none: errc::auth_failed.
  virtual boost::system::result<std::string> generate_credential(const endpoint& server, yield_context yield);

  /// Server: who has sent `credential`. The default lets nobody in: errc::auth_failed.
  virtual boost::system::result<auth_context> verify_credential(std::string_view credential,
                                                                const endpoint& client, yield_context yield);
};

}  // namespace braid
