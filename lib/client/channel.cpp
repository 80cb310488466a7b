#include <braid/channel.hpp>

#include "client/attempt.hpp"
#include "client/call_target.hpp"
#include "client/connection_table.hpp"
#include "client/intercepted_call.hpp"
#include "core/runtime_core.hpp"
#include "net/transport.hpp"
#include "wire/frame.hpp"

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

/// The server behind a channel, with a connection for each call.
class short_lived_server final : public call_target {
 public:
  short_lived_server(std::shared_ptr<core::runtime_core> runtime, const endpoint& server,
                     const channel_options& options)
      : call_target(std::move(runtime), options.timeout), settings_(server, options) {}

  void start(call& started, const std::shared_ptr<call_target>&) noexcept override {
    attempt::start(started, started.home().service<connection_table>().make_short_lived(settings_));
  }
  bool serialises_at_start() const noexcept override { return true; }

 private:
  const connection_settings settings_;
};

/// The server behind a channel: for each loop, the way to it.
class single_server final : public call_target {
 public:
  single_server(std::shared_ptr<core::runtime_core> runtime, const endpoint& server,
                const channel_options& options)
      : call_target(std::move(runtime), options.timeout),
        settings_(server, options),
        routes_(this->runtime().loop_count()) {}

  ~single_server() override {
    for (route* each : routes_) {
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
    route*& mine = routes_[started.home().index()];
    if (!mine) {
      mine = &started.home().service<connection_table>().find(settings_);
      mine->add_user();
    }
    attempt::start(started, *mine);
  }
  bool serialises_at_start() const noexcept override { return true; }

 private:
  const connection_settings settings_;
  std::vector<route*> routes_;  // by the loop's index, each touched by its loop only
};

error_code check(const channel_options& options, std::string& why) {
  const net::transport_options transport{.keepalive = options.keepalive,
                                         .user_timeout = options.tcp_user_timeout};
  why = wire::wrong_body_limit(options.max_body_size);
  if (why.empty()) why = transport.wrong();
  if (why.empty() && (options.connection_type > connection_type::short_lived ||
                      options.connection_type < connection_type::per_loop)) {
    why = fmt::format("connection_type {} is none of per_loop, single, short_lived",
                      static_cast<int>(options.connection_type));
  }
  return why.empty() ? error_code() : error_code(EINVAL, boost::system::system_category());
}

std::shared_ptr<call_target> make_target(std::shared_ptr<core::runtime_core> runtime, const endpoint& server,
                                         const channel_options& options) {
  if (options.connection_type == connection_type::short_lived)
    return std::make_shared<short_lived_server>(std::move(runtime), server, options);
  return std::make_shared<single_server>(std::move(runtime), server, options);
}

error_code parse_server(std::string_view address, endpoint& server, std::string& why) {
  auto parsed = endpoint::parse(address, why);
  if (!parsed) return parsed.error();
  server = std::move(*parsed);
  if (server.type() != endpoint::kind::unix_path && server.port() == 0) {
    why = "port 0 cannot be connected to";
    return {EINVAL, boost::system::system_category()};
  }
  return {};
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
  if (dynamic_cast<const client::no_server*>(target().get()) == nullptr) {
    ec = {EINVAL, boost::system::system_category()};
    why = "the channel was initialised before";
    return;
  }
  endpoint server;
  ec = client::parse_server(address, server, why);
  if (!ec) ec = client::check(options, why);
  if (ec) return;
  std::shared_ptr<client::call_target> target = client::make_target(runtime_, server, options);
  if (!options.interceptors.empty())
    target = std::make_shared<client::intercepted_target>(std::move(target), options.interceptors);
  replace_target(std::move(target));
}

}  // namespace braid
