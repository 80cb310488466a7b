#pragma once

#include <braid/channel.hpp>
#include <braid/endpoint.hpp>

#include <compare>
#include <memory>
#include <string>

namespace braid::client {

/// What makes two channels share a connection.
struct connection_settings {
  endpoint server;
  connection_type type;
  std::chrono::nanoseconds connect_timeout;
  std::string group;
  std::size_t max_body_size;
  std::size_t max_unsent_bytes;
  std::chrono::seconds keepalive;
  std::chrono::milliseconds tcp_user_timeout;
  std::chrono::milliseconds progress_timeout;
  std::shared_ptr<authenticator> auth;  // kept, so that another one cannot have its address
  std::chrono::nanoseconds auth_timeout;

  connection_settings(const endpoint& to, const channel_options& options)
      : server(to),
        type(options.connection_type),
        connect_timeout(options.connect_timeout),
        group(options.connection_group),
        max_body_size(options.max_body_size),
        max_unsent_bytes(options.max_unsent_bytes),
        keepalive(options.keepalive),
        tcp_user_timeout(options.tcp_user_timeout),
        progress_timeout(options.progress_timeout),
        auth(options.auth),
        auth_timeout(options.auth_timeout) {}

  auto operator<=>(const connection_settings&) const = default;
};

}  // namespace braid::client
