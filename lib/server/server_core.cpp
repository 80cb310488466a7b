#include "server/server_core.hpp"

#include "core/run_on.hpp"
#include "net/loop_network.hpp"
#include "wire/frame.hpp"

namespace braid::server_side {
namespace {

std::string describe_failure(const endpoint& at, const error_code& ec) {
  if (at.type() == endpoint::kind::unix_path && ec.value() == ENOTSOCK)
    return "the file exists and is no socket, so it is left alone";
  if (ec.value() == EADDRINUSE) return "somebody else listens there";
  return "listening failed";
}

net::transport_options transport_of(const server_options& options) noexcept {
  return {.keepalive = options.keepalive, .user_timeout = options.tcp_user_timeout};
}

std::string wrong_with(const server_options& options) {
  const std::string why = wire::wrong_body_limit(options.max_body_size);
  return why.empty() ? std::string(transport_of(options).wrong()) : why;
}

}  // namespace

server_core::server_core(std::shared_ptr<core::runtime_core> runtime, const server_options& options)
    : settings_(std::make_shared<server_settings>(std::move(runtime), options)) {}

void server_core::make_parts() {
  if (started_) return;
  started_ = true;
  for (std::size_t i = 0; i < runtime().loop_count(); ++i) {
    core::loop& home = runtime().at(i);
    parts_.push_back(std::make_shared<loop_part>(home, settings_));
    const auto add = [part = parts_.back(), &home] { home.service<loop_parts>().add(part); };
    if (home.is_lent()) {
      home.visit(add);  // so that the context's end ends the part, also when nobody ever runs it
    } else {
      home.post(add);
    }
  }
}

void server_core::start(std::string_view address, error_code& ec, std::string& why) {
  auto at = endpoint::parse(address, why);
  if (!at) {
    ec = at.error();
    return;
  }
  if (at->type() == endpoint::kind::host_name) {
    ec = error_code(EINVAL, boost::system::system_category());
    why = "a server listens on a literal address or a unix socket";
    return;
  }
  if (why = wrong_with(settings_->options); !why.empty()) {
    ec = error_code(EINVAL, boost::system::system_category());
    return;
  }
  make_parts();
  core::loop& home = runtime().home();
  if (!core::run_on(home, [&] { listen(home, *at, ec, why); })) {
    ec = error_code(ECANCELED, boost::system::system_category());
    why = "the runtime has stopped";
  }
}

void server_core::listen(core::loop& home, const endpoint& at, error_code& ec, std::string& why) {
  loop_part& part = *parts_[home.index()];
  if (part.stopping()) {
    ec = error_code(ECANCELED, boost::system::system_category());
    why = "the server was stopped";
    return;
  }
  auto listening = net::network_of(home).listen(home, at, transport_of(settings_->options), ec);
  if (!listening) {
    why = describe_failure(at, ec);
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    endpoints_.push_back(listening->local());
  }
  listening->start(*this);
  part.add(std::move(listening), shared_from_this());
}

std::vector<endpoint> server_core::endpoints() const {
  const std::lock_guard lock(mutex_);
  return endpoints_;
}

core::loop& server_core::next_loop() {
  return runtime().at(next_.fetch_add(1, std::memory_order_relaxed) % runtime().loop_count());
}

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
  parts_[runtime().current()->index()]->log_accept_failed(why);
}

namespace {

/// A stop on its way to a part's loop. One that never gets there is over.
class stop_on_its_way {
 public:
  stop_on_its_way(std::shared_ptr<loop_part> part, const stop_options& how,
                  std::shared_ptr<stop_report> report)
      : part_(std::move(part)), how_(how), report_(std::move(report)) {}
  stop_on_its_way(stop_on_its_way&&) noexcept = default;
  stop_on_its_way& operator=(stop_on_its_way&&) = delete;
  ~stop_on_its_way() {
    if (report_) report_->add(part_->home().index(), {});
  }
  void operator()() {
    part_->stop(how_, [report = std::move(report_), index = part_->home().index()](
                          const std::vector<std::string>& names) { report->add(index, names); });
  }

 private:
  std::shared_ptr<loop_part> part_;
  stop_options how_;
  std::shared_ptr<stop_report> report_;
};

/// Tells, on its loop or where that is gone, of a stop that had nothing to end.
class empty_stop {
 public:
  explicit empty_stop(stop_report::handler stopped) : stopped_(std::move(stopped)) {}
  empty_stop(empty_stop&& other) noexcept : stopped_(std::exchange(other.stopped_, nullptr)) {}
  empty_stop& operator=(empty_stop&&) = delete;
  ~empty_stop() {
    if (stopped_) stopped_({});
  }
  void operator()() { std::exchange(stopped_, nullptr)({}); }

 private:
  stop_report::handler stopped_;
};

}  // namespace

std::shared_ptr<stop_report> server_core::stop(const stop_options& how, stop_report::handler stopped,
                                               stop_start start) {
  if (parts_.empty()) {
    empty_stop nothing(std::move(stopped));
    if (start == stop_start::later) runtime().home().post(std::move(nothing));
    return nullptr;
  }
  auto report = std::make_shared<stop_report>(parts_.size(), std::move(stopped));
  for (auto& part : parts_) {
    stop_on_its_way stopping(part, how, report);
    const bool begun =
        start == stop_start::at_once && part->home().is_lent() && part->home().try_visit(stopping);
    if (!begun) part->home().post(std::move(stopping));
  }
  return report;
}

void server_core::give_up_stop(const std::shared_ptr<stop_report>& report) {
  constexpr stop_options at_once{.grace = std::chrono::milliseconds(0), .kill = std::chrono::milliseconds(0)};
  for (auto& part : parts_) {
    part->home().try_visit([&] {
      stop_on_its_way(part, at_once, report)();  // should the first still be on its way
      part->shut_down();
    });
  }
}

}  // namespace braid::server_side
