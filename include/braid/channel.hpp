#pragma once

/// \file
/// The channel to a server.

#include <braid/channel_base.hpp>
#include <braid/config.hpp>
#include <braid/error.hpp>
#include <braid/interceptor.hpp>
#include <braid/runtime.hpp>

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace braid {

class authenticator;

/// How many connections a channel's calls have, and who shares them.
enum class connection_type {
  /// One to each server for each loop. A call takes no lock and touches no other loop.
  per_loop,
  /// One to each server for the process, kept by one of its loops. Calls of the other loops stay on their
  /// loops; their requests and answers are posted to and fro, those of a turn together. For servers that
  /// must not have many connections; a call from another loop costs two changes of thread more.
  single,
  /// One for each call, closed after it. For servers that answer one call on a connection.
  short_lived,
};

/// The settings of a channel.
struct channel_options {
  /// How long a call may take, from its start to its completion: connecting, queueing and waiting included.
  /// Negative: no limit. A controller's own timeout goes before it; below a combo the parent's deadline does.
  std::chrono::nanoseconds timeout = std::chrono::milliseconds(500);

  /// How long one attempt to connect may take; the call's deadline ends it earlier. Negative: no limit of its
  /// own.
  std::chrono::nanoseconds connect_timeout = std::chrono::milliseconds(200);

  /// See braid::connection_type.
  braid::connection_type connection_type = braid::connection_type::per_loop;

  /// Channels to the same address with the same settings share their connections, except short-lived ones.
  /// Channels with different groups do not.
  std::string connection_group{};

  /// A response whose body is larger fails its call with errc::bad_response, a request with
  /// errc::bad_request. Bytes, from 1 to 2 GiB - 1.
  std::size_t max_body_size = std::size_t{64} * 1024 * 1024;

  /// Bytes that may wait to be sent on one connection; a call that would add to more fails with
  /// errc::overcrowded. 0: no limit.
  std::size_t max_unsent_bytes = std::size_t{256} * 1024 * 1024;

  /// Idle time before TCP keepalive probes; zero: off. Of no meaning to unix sockets.
  std::chrono::seconds keepalive{30};
  /// How long sent bytes may stay unacknowledged before the connection is given up; zero: the system's
  /// default.
  std::chrono::milliseconds tcp_user_timeout{30'000};
  /// How long each KiB of a response that has begun may take to arrive, and the rest of it, before the
  /// connection is given up and its calls fail with 110. Zero or negative: no limit.
  std::chrono::milliseconds progress_timeout{10'000};

  /// Makes the credentials of this channel's connections. Channels with different ones share no connection.
  /// Null: none are sent.
  std::shared_ptr<authenticator> auth{};
  /// How long it may take, beside the deadlines of the calls that wait for it, before they fail with
  /// errc::auth_failed and the next call begins anew. Negative: no limit of its own.
  std::chrono::nanoseconds auth_timeout = std::chrono::seconds(10);
  /// Functions around each call, the first outermost. Empty: none.
  std::vector<client_interceptor> interceptors{};
};

/// A channel to one server.
///
/// What it does: each loop keeps one connection to the server, made when a call needs it and within that
/// call's deadline, and shared by all channels with the same address and settings; other arrangements are
/// chosen by channel_options::connection_type. When a connection breaks, all its calls fail at once, and the
/// next call connects again.
///
/// Cancellation: with connection_type::single, a `total` cancellation of a call whose loop does not have the
/// connection works until the request is posted there, at the end of the turn that started the call.
///
/// Errors of a call: a refused connection 111, no connection within connect_timeout 110, as is one that
/// progress_timeout ends, an unknown host name 112, credentials that could not be made or were refused 1004,
/// a connection closed by the server 1014, a reset 104; see error.hpp.
class channel : public channel_base {
 public:
  /// A channel whose calls run on the loops of `rt`; to be named a server by init().
  explicit channel(const runtime& rt) noexcept;
  ~channel() override;

  /// Names the server: "host:port", "1.2.3.4:port", "[v6]:port", "unix:path", "unix:@name". Throws a
  /// system_error whose text names what is wrong. Once, before the first call; a call before it fails
  /// with 22.
  void init(std::string_view address, channel_options options = {});
  /// The same; what is wrong goes to `ec`.
  void init(std::string_view address, channel_options options, error_code& ec);

 private:
  void init(std::string_view address, const channel_options& options, error_code& ec, std::string& why);

  std::shared_ptr<core::runtime_core> runtime_;
};

}  // namespace braid
