#include "net/memory_network.hpp"

#include "net/memory_link.hpp"

#include <boost/asio/error.hpp>
#include <boost/system/errc.hpp>

#include <algorithm>
#include <deque>
#include <limits>
#include <map>
#include <mutex>
#include <random>
#include <utility>
#include <vector>

namespace braid::net {
namespace {

namespace error = boost::asio::error;

/// A timer whose owner looks what there is to do when it fires.
template <typename Owner>
struct wake_timer : core::timer_node {
  explicit wake_timer(Owner* owner) noexcept
      : timer_node([](timer_node& node) { static_cast<wake_timer&>(node).owner->advance(); }), owner(owner) {}
  Owner* owner;
};

/// An attempt to connect, which the listener's side shares until it has answered.
class memory_attempt : public std::enable_shared_from_this<memory_attempt> {
 public:
  memory_attempt(core::loop& home, connect_events& events) : home_(&home), events_(events), wake_(this) {}

  void set_link(std::shared_ptr<memory_link> link) { link_ = std::move(link); }
  const std::shared_ptr<memory_link>& link() const noexcept { return link_; }

  /// Says how it ended; arrives at `due`. Any thread, once.
  void answer(const error_code& outcome, core::time_point due) {
    const std::lock_guard lock(mutex_);
    if (!home_) return;
    outcome_ = outcome;
    due_ = due;
    home_->post([self = shared_from_this()] { self->advance(); });
  }

  void abandon() noexcept {
    wake_.cancel();
    const std::lock_guard lock(mutex_);
    if (!home_) return;
    if (link_) link_->close(memory_link::client, true, home_->now());
    home_ = nullptr;
  }

  void advance() {
    std::unique_lock lock(mutex_);
    if (!home_) return;
    if (due_ > home_->now()) return home_->arm(wake_, due_);
    core::loop& home = *std::exchange(home_, nullptr);
    lock.unlock();
    if (outcome_) {
      if (link_) link_->close(memory_link::client, true, home.now());
      return events_.on_connect_failed(outcome_);
    }
    events_.on_connected(std::make_unique<memory_end>(home, link_, memory_link::client));
  }

 private:
  std::mutex mutex_;
  core::loop* home_;  // null once it is over
  connect_events& events_;
  std::shared_ptr<memory_link> link_;
  error_code outcome_;
  core::time_point due_{};
  wake_timer<memory_attempt> wake_;
};

class memory_connecting final : public connecting {
 public:
  explicit memory_connecting(std::shared_ptr<memory_attempt> attempt) noexcept
      : attempt_(std::move(attempt)) {}
  ~memory_connecting() override { attempt_->abandon(); }

 private:
  std::shared_ptr<memory_attempt> attempt_;
};

/// A listening endpoint and the attempts on their way to it.
class memory_backlog : public std::enable_shared_from_this<memory_backlog> {
 public:
  explicit memory_backlog(core::loop& home) : home_(&home), wake_(this) {}

  void arrive(std::shared_ptr<memory_attempt> attempt, core::time_point due) {
    const std::lock_guard lock(mutex_);
    if (!home_) return refuse(*attempt, due);
    arrivals_.push_back({std::move(attempt), due});
    nudge();
  }

  void start(accept_events& events) {
    events_ = &events;
    const std::lock_guard lock(mutex_);
    nudge();
  }

  void close() noexcept {
    events_ = nullptr;
    wake_.cancel();
    const std::lock_guard lock(mutex_);
    home_ = nullptr;
    for (auto& [attempt, due] : std::exchange(arrivals_, {})) refuse(*attempt, due);
  }

  void advance() {
    if (!events_) return;
    std::unique_lock lock(mutex_);
    if (arrivals_.empty()) return;
    const core::time_point now = home_->now();
    if (arrivals_.front().due > now) return home_->arm(wake_, arrivals_.front().due);
    const auto attempt = std::move(arrivals_.front().attempt);
    arrivals_.pop_front();
    nudge();
    lock.unlock();
    accept(*attempt, now);
  }

 private:
  struct arrival {
    std::shared_ptr<memory_attempt> attempt;
    core::time_point due;
  };

  static void refuse(memory_attempt& attempt, core::time_point now) {
    attempt.link()->close(memory_link::server, true, now);
    attempt.answer(error::connection_refused, attempt.link()->arrival(now));
  }

  void accept(memory_attempt& attempt, core::time_point now) {
    core::loop& home = events_->next_loop();
    auto accepted = std::make_unique<memory_end>(home, attempt.link(), memory_link::server);
    attempt.answer({}, attempt.link()->arrival(now));
    events_->on_accepted(home, std::move(accepted));
  }

  void nudge() {
    home_->post([self = shared_from_this()] { self->advance(); });
  }

  std::mutex mutex_;
  core::loop* home_;  // null once closed
  std::deque<arrival> arrivals_;
  accept_events* events_ = nullptr;
  wake_timer<memory_backlog> wake_;
};

/// Why an endpoint is none of this network's; no error if it is one.
error_code check(const endpoint& where) noexcept {
  namespace errc = boost::system::errc;
  return where.type() == endpoint::kind::host_name ? make_error_code(errc::invalid_argument) : error_code();
}

}  // namespace

/// What a memory_network knows: listeners, faults, connections.
class memory_fabric : public std::enable_shared_from_this<memory_fabric> {
 public:
  explicit memory_fabric(std::uint64_t seed) : random_(seed) {}

  struct route {
    testing::link_faults faults;
    std::shared_ptr<memory_backlog> backlog;  // null: nobody listens
    std::shared_ptr<memory_link> link;
  };
  route begin(const endpoint& to);

  bool listen(endpoint& at, std::shared_ptr<memory_backlog> backlog);
  void end(const endpoint& at) {
    const std::lock_guard lock(mutex_);
    backlogs_.erase(at);
  }

  void set_default(const testing::link_faults& faults);
  void set(const endpoint& server, const testing::link_faults& faults);
  void choose_with(testing::network_faults::chooser function) {
    const std::lock_guard lock(mutex_);
    chooser_ = std::move(function);
  }
  std::vector<std::shared_ptr<memory_link>> links_to(const endpoint& server) const;
  std::size_t attempts(const endpoint& server) const {
    const std::lock_guard lock(mutex_);
    const auto found = attempts_.find(server);
    return found == attempts_.end() ? 0 : found->second;
  }

 private:
  std::chrono::nanoseconds random_time(std::chrono::nanoseconds most);
  testing::link_faults faults_of(const endpoint& server) const;
  std::shared_ptr<memory_backlog> find(const endpoint& to) const;
  void forget_closed();

  mutable std::mutex mutex_;
  std::map<endpoint, std::shared_ptr<memory_backlog>> backlogs_;
  std::map<endpoint, testing::link_faults> faults_;
  std::map<endpoint, std::size_t> attempts_;
  testing::link_faults default_;
  testing::network_faults::chooser chooser_;
  std::vector<std::weak_ptr<memory_link>> links_;
  std::uint16_t next_port_ = 20000;
  std::uint16_t next_client_port_ = 32768;

  std::mutex random_mutex_;  // taken under a link's lock, so apart from the other one
  std::mt19937_64 random_;
};

std::chrono::nanoseconds memory_fabric::random_time(std::chrono::nanoseconds most) {
  const std::lock_guard lock(random_mutex_);
  // Not std::uniform_int_distribution, whose results are the library's own choice.
  const auto values = static_cast<std::uint64_t>(most.count()) + 1;
  return std::chrono::nanoseconds(static_cast<std::int64_t>(random_() % values));
}

testing::link_faults memory_fabric::faults_of(const endpoint& server) const {
  const auto found = faults_.find(server);
  return found == faults_.end() ? default_ : found->second;
}

std::shared_ptr<memory_backlog> memory_fabric::find(const endpoint& to) const {
  if (const auto exact = backlogs_.find(to); exact != backlogs_.end()) return exact->second;
  if (!to.is_literal()) return nullptr;
  using namespace boost::asio::ip;
  const address any = to.address().is_v6() ? address(address_v6::any()) : address(address_v4::any());
  const auto wide = backlogs_.find(endpoint(any, to.port()));
  return wide == backlogs_.end() ? nullptr : wide->second;
}

void memory_fabric::forget_closed() {
  if (links_.size() < 64 || (links_.size() & (links_.size() - 1)) != 0) return;
  std::erase_if(links_, [](const auto& link) { return link.expired(); });
}

memory_fabric::route memory_fabric::begin(const endpoint& to) {
  std::unique_lock lock(mutex_);
  const std::size_t nth = attempts_[to]++;
  route result{faults_of(to), find(to), nullptr};
  if (chooser_) {
    const auto choose = chooser_;
    lock.unlock();
    result.faults = choose(to, nth, result.faults);
    lock.lock();
  }
  const endpoint from = to.is_literal() ? endpoint(to.address(), next_client_port_) : to;
  next_client_port_ =
      next_client_port_ == 65535 ? std::uint16_t{32768} : static_cast<std::uint16_t>(next_client_port_ + 1);
  result.link = std::make_shared<memory_link>(
      from, to, result.faults, [self = shared_from_this()](auto most) { return self->random_time(most); });
  forget_closed();
  links_.push_back(result.link);
  return result;
}

bool memory_fabric::listen(endpoint& at, std::shared_ptr<memory_backlog> backlog) {
  const std::lock_guard lock(mutex_);
  endpoint wanted = at;
  if (at.is_literal() && at.port() == 0) {
    do {
      if (next_port_ == 32768) return false;
      wanted = endpoint(at.address(), next_port_++);
    } while (backlogs_.contains(wanted));
  }
  if (!backlogs_.emplace(wanted, std::move(backlog)).second) return false;
  at = wanted;
  return true;
}

void memory_fabric::set_default(const testing::link_faults& faults) {
  std::unique_lock lock(mutex_);
  default_ = faults;
  std::vector<std::shared_ptr<memory_link>> affected;
  for (const auto& each : links_) {
    auto link = each.lock();
    if (link && !faults_.contains(link->address(memory_link::server))) affected.push_back(std::move(link));
  }
  lock.unlock();
  for (const auto& link : affected) link->set(faults);
}

void memory_fabric::set(const endpoint& server, const testing::link_faults& faults) {
  {
    const std::lock_guard lock(mutex_);
    faults_[server] = faults;
  }
  for (const auto& link : links_to(server)) link->set(faults);
}

std::vector<std::shared_ptr<memory_link>> memory_fabric::links_to(const endpoint& server) const {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<memory_link>> found;
  for (const auto& each : links_) {
    auto link = each.lock();
    if (link && link->address(memory_link::server) == server) found.push_back(std::move(link));
  }
  return found;
}

namespace {

class memory_listener final : public listener {
 public:
  memory_listener(std::shared_ptr<memory_fabric> fabric, std::shared_ptr<memory_backlog> backlog,
                  const endpoint& at)
      : fabric_(std::move(fabric)), backlog_(std::move(backlog)), at_(at) {}
  ~memory_listener() override {
    fabric_->end(at_);
    backlog_->close();
  }
  const endpoint& local() const noexcept override { return at_; }
  void start(accept_events& events) override { backlog_->start(events); }

 private:
  std::shared_ptr<memory_fabric> fabric_;
  std::shared_ptr<memory_backlog> backlog_;
  const endpoint at_;
};

}  // namespace

memory_network::memory_network(std::uint64_t seed) : fabric_(std::make_shared<memory_fabric>(seed)) {}
memory_network::~memory_network() = default;

std::unique_ptr<connecting> memory_network::connect(core::loop& home, const endpoint& to,
                                                    const transport_options&, connect_events& events) {
  auto attempt = std::make_shared<memory_attempt>(home, events);
  auto handle = std::make_unique<memory_connecting>(attempt);
  const core::time_point now = home.now();
  if (const error_code ec = check(to)) {
    attempt->answer(ec, now);
    return handle;
  }
  auto [faults, backlog, link] = fabric_->begin(to);
  if (faults.black_hole) return handle;
  const core::time_point arrival = link->arrival(now);
  if (faults.refuse || !backlog) {
    attempt->answer(error::connection_refused, link->arrival(arrival));
    return handle;
  }
  attempt->set_link(std::move(link));
  backlog->arrive(std::move(attempt), arrival);
  return handle;
}

std::unique_ptr<listener> memory_network::listen(core::loop& home, const endpoint& at,
                                                 const transport_options&, error_code& ec) {
  ec = check(at);
  if (ec) return nullptr;
  auto backlog = std::make_shared<memory_backlog>(home);
  endpoint chosen = at;
  if (!fabric_->listen(chosen, backlog)) {
    ec = error::address_in_use;
    return nullptr;
  }
  return std::make_unique<memory_listener>(fabric_, std::move(backlog), chosen);
}

void memory_network::set_default(const testing::link_faults& faults) { fabric_->set_default(faults); }
void memory_network::set(const endpoint& server, const testing::link_faults& faults) {
  fabric_->set(server, faults);
}
void memory_network::choose_with(chooser function) { fabric_->choose_with(std::move(function)); }

void memory_network::break_connections(const endpoint& server, const error_code& why) {
  for (const auto& link : fabric_->links_to(server)) link->break_now(why);
}

std::size_t memory_network::connections(const endpoint& server) const {
  const auto links = fabric_->links_to(server);
  return static_cast<std::size_t>(
      std::count_if(links.begin(), links.end(), [](auto& link) { return link->open(); }));
}

std::size_t memory_network::attempts(const endpoint& server) const { return fabric_->attempts(server); }

}  // namespace braid::net
