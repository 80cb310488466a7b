#include <braid/channel.hpp>

#include "client/attempt.hpp"
#include "client/call_target.hpp"
#include "client/connection.hpp"
#include "core/runtime_core.hpp"

#include <boost/asio/error.hpp>
#include <fmt/format.h>

#include <string>
#include <vector>

namespace braid {
namespace client {
namespace {

/// A channel whose init() has not succeeded.
class no_server final : public call_target {
 public:
  explicit no_server(std::shared_ptr<core::runtime_core> runtime)
      : call_target(std::move(runtime), std::chrono::milliseconds(500)) {}

  void start(call& started, const std::shared_ptr<call_target>&) noexcept override {
    started.settle(outcome::local_failure({EINVAL, boost::system::system_category()}),
                   "the channel was not initialised");
  }
  bool serialises_at_start() const noexcept override { return true; }
  bool usable() const noexcept override { return false; }
};

/// The server behind a channel: for each loop, the connection to it.
class single_server final : public call_target {
 public:
  single_server(std::shared_ptr<core::runtime_core> runtime, const endpoint& server,
                const channel_options& options)
      : call_target(std::move(runtime), options.timeout),
        settings_(server, options),
        connections_(this->runtime().loop_count()) {}

  ~single_server() override {
    for (connection* each : connections_) {
      if (!each) continue;
      core::loop& home = each->home();
      if (home.is_current()) {
        each->remove_user();
      } else {
        home.post([each, keep = shared_runtime()] { each->remove_user(); });
      }
    }
  }

  void start(call& started, const std::shared_ptr<call_target>&) noexcept override {
    connection*& mine = connections_[started.home().index()];
    if (!mine) {
      mine = &started.home().service<connection_table>().find(settings_);
      mine->add_user();
    }
    attempt::start(started, *mine);
  }
  bool serialises_at_start() const noexcept override { return true; }

 private:
  const connection_settings settings_;
  std::vector<connection*> connections_;  // by the loop's index, each touched by its loop only
};

error_code check(const channel_options& options, std::string& why) {
  constexpr std::size_t largest = 0x7fffffff;
  if (options.max_body_size == 0 || options.max_body_size > largest) {
    why = fmt::format("max_body_size {} is not between 1 and {}", options.max_body_size, largest);
  } else if (options.keepalive.count() < 0) {
    why = "keepalive is negative";
  } else if (options.tcp_user_timeout.count() < 0) {
    why = "tcp_user_timeout is negative";
  } else {
    return {};
  }
  return {EINVAL, boost::system::system_category()};
}

error_code parse_server(std::string_view address, endpoint& server, std::string& why) {
  auto parsed = endpoint::parse(address, why);
  if (!parsed) return parsed.error();
  server = std::move(*parsed);
  if (server.type() != endpoint::kind::unix_path && server.port() == 0) {
    why = "port 0 cannot be connected to";
    return {EINVAL, boost::system::system_category()};
  }
  if (server.type() != endpoint::kind::unix_path) return {};
  why = "unix sockets are not supported";
  return {EOPNOTSUPP, boost::system::system_category()};
}

}  // namespace
}  // namespace client

channel::channel(const runtime& rt) noexcept
    : channel_base(std::make_shared<client::no_server>(rt.core())), runtime_(rt.core()) {}

channel::~channel() = default;

void channel::init(std::string_view address, channel_options options, error_code& ec) {
  std::string why;
  init(address, options, ec, why);
}

void channel::init(std::string_view address, channel_options options) {
  error_code ec;
  std::string why;
  init(address, options, ec, why);
  if (ec) throw boost::system::system_error(ec, fmt::format("channel to '{}': {}", address, why));
}

void channel::init(std::string_view address, const channel_options& options, error_code& ec,
                   std::string& why) {
  endpoint server;
  ec = client::parse_server(address, server, why);
  if (!ec) ec = client::check(options, why);
  if (!ec) replace_target(std::make_shared<client::single_server>(runtime_, server, options));
}

}  // namespace braid
