#include "server/server_core.hpp"

#include "core/run_on.hpp"
#include "net/loop_network.hpp"

#include <fmt/format.h>

namespace braid::server_side {

server_core::server_core(std::shared_ptr<core::runtime_core> runtime, const server_options& options)
    : runtime_(std::move(runtime)), options_(options) {}

void server_core::make_parts() {
  if (started_) return;
  started_ = true;
  for (std::size_t i = 0; i < runtime_->loop_count(); ++i) {
    core::loop& home = runtime_->at(i);
    parts_.push_back(std::make_shared<loop_part>(home, shared_from_this()));
    home.post([part = parts_.back(), &home] { home.service<loop_parts>().add(part); });
  }
}

void server_core::start(std::string_view address, error_code& ec, std::string& why) {
  auto at = endpoint::parse(address, why);
  if (!at) {
    ec = at.error();
    return;
  }
  if (!at->is_literal()) {
    ec = error_code(EINVAL, boost::system::system_category());
    why = "a server listens on a literal address";
    return;
  }
  make_parts();
  core::loop& home = runtime_->home();
  const bool ran = core::run_on(home, [&] {
    const net::transport_options options{.keepalive = options_.keepalive, .user_timeout = options_.tcp_user_timeout};
    auto listening = net::network_of(home).listen(home, *at, options, ec);
    if (!listening) {
      why = ec.message();
      return;
    }
    {
      const std::lock_guard lock(mutex_);
      endpoints_.push_back(listening->local());
    }
    listening->start(*this);
    parts_[home.index()]->add(std::move(listening));
  });
  if (!ran) {
    ec = error_code(ECANCELED, boost::system::system_category());
    why = "the runtime has stopped";
  }
}

std::vector<endpoint> server_core::endpoints() const {
  const std::lock_guard lock(mutex_);
  return endpoints_;
}

core::loop& server_core::next_loop() { return runtime_->at(next_++ % runtime_->loop_count()); }

void server_core::on_accepted(core::loop& home, std::unique_ptr<net::transport> accepted) {
  auto part = parts_[home.index()];
  if (home.is_current()) {
    part->add(std::move(accepted));
    return;
  }
  // The transport may only be touched, or destroyed, on its own loop.
  home.post([part, transport = std::shared_ptr<net::transport>(std::move(accepted))]() mutable {
    part->add(std::move(transport));
  });
}

void server_core::on_accept_failed(const error_code& why) {
  runtime_->log().log(log_level::warning, fmt::format("accepting a connection failed: {}", why.message()), {});
}

void server_core::stop(const stop_options& how, stop_handler stopped) {
  struct gathering {
    std::mutex mutex;
    std::size_t left;
    std::vector<std::string> names;
    stop_handler stopped;
  };
  auto all = std::make_shared<gathering>();
  all->left = parts_.size();
  all->stopped = std::move(stopped);
  const auto part_stopped = [all](std::vector<std::string> names) {
    std::unique_lock lock(all->mutex);
    all->names.insert(all->names.end(), names.begin(), names.end());
    if (--all->left != 0) return;
    lock.unlock();
    all->stopped(std::move(all->names));
  };
  if (parts_.empty()) {
    all->stopped({});
    return;
  }
  for (auto& part : parts_) {
    const bool accepted = part->home().post([part, how, part_stopped] { part->stop(how, part_stopped); });
    if (!accepted) part_stopped({});
  }
}

}  // namespace braid::server_side
