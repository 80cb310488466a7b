#pragma once

/// \file
/// The channel to a server.

#include <braid/channel_base.hpp>
#include <braid/config.hpp>
#include <braid/error.hpp>
#include <braid/runtime.hpp>

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace braid {

/// The settings of a channel.
struct channel_options {
  /// How long a call may take, from its start to its completion: connecting, queueing and waiting included.
  /// Negative: no limit. A controller's own timeout goes before it; below a combo the parent's deadline does.
  std::chrono::nanoseconds timeout = std::chrono::milliseconds(500);

  /// How long one attempt to connect may take; the call's deadline ends it earlier. Negative: no limit of its
  /// own.
  std::chrono::nanoseconds connect_timeout = std::chrono::milliseconds(200);

  /// Channels to the same address with the same settings share their connections, one for each loop. Channels
  /// with different groups do not.
  std::string connection_group{};

  /// A response whose body is larger fails its call with errc::bad_response, a request with
  /// errc::bad_request. Bytes; at most 2 GiB - 1.
  std::size_t max_body_size = std::size_t{64} * 1024 * 1024;

  /// Bytes that may wait to be sent on one connection; a call that would add to more fails with
  /// errc::overcrowded. 0: no limit.
  std::size_t max_unsent_bytes = std::size_t{256} * 1024 * 1024;

  /// Idle time before TCP keepalive probes; zero: off.
  std::chrono::seconds keepalive{30};
  /// How long sent bytes may stay unacknowledged before the connection is given up; zero: the system's
  /// default.
  std::chrono::milliseconds tcp_user_timeout{30'000};
};

/// A channel to one server.
///
/// What it does: each loop keeps one connection to the server, made when a call needs it and within that
/// call's deadline, and shared by all channels with the same address and settings. When it breaks, all its
/// calls fail at once, and the next call connects again.
///
/// Errors of a call: a refused connection 111, no connection within connect_timeout 110, an unknown host name
/// 112, a connection closed by the server 1014, a reset 104; see error.hpp.
class channel : public channel_base {
 public:
  explicit channel(const runtime& rt) noexcept;
  ~channel() override;

  /// Names the server: "host:port", "1.2.3.4:port", "[v6]:port". Throws a system_error whose text names what
  /// is wrong. Once, before the first call; a call before it fails with 22.
  void init(std::string_view address, channel_options options = {});
  void init(std::string_view address, channel_options options, error_code& ec);

 private:
  void init(std::string_view address, const channel_options& options, error_code& ec, std::string& why);

  std::shared_ptr<core::runtime_core> runtime_;
};

}  // namespace braid
