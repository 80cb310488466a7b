#include "net/resolver.hpp"

#include <boost/asio/error.hpp>

#include <netdb.h>
#include <signal.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <exception>
#include <set>
#include <thread>

namespace braid::net {
namespace error = boost::asio::error;

namespace detail {

// Posts under the lock: once abandon() has returned, post_ is called no more, and what it leads to may go.
void lookup_state::complete(error_code ec, resolved addresses) {
  std::lock_guard lock{mutex_};
  if (abandoned_) return;
  post_([self = shared_from_this(), ec, addresses = std::move(addresses)]() mutable {
    self->deliver(ec, std::move(addresses));
  });
}

void lookup_state::deliver(error_code ec, resolved addresses) {
  resolve_handler handler;
  post_function post;  // destroyed here, on the caller's thread
  {
    std::lock_guard lock{mutex_};
    if (abandoned_) return;
    abandoned_ = true;
    handler = std::exchange(handler_, nullptr);
    post = std::exchange(post_, nullptr);
  }
  handler(ec, std::move(addresses));
}

void lookup_state::abandon() noexcept {
  resolve_handler handler;
  post_function post;
  std::lock_guard lock{mutex_};
  abandoned_ = true;
  handler.swap(handler_);
  post.swap(post_);
}

bool lookup_state::abandoned() const noexcept {
  std::lock_guard lock{mutex_};
  return abandoned_;
}

}  // namespace detail

lookup resolver::resolve(const endpoint& what, post_function post, resolve_handler handler) {
  auto state = std::make_shared<detail::lookup_state>(std::move(post), std::move(handler));
  switch (what.type()) {
    case endpoint::kind::literal:
      state->complete({}, {what.tcp()});
      break;
    case endpoint::kind::unix_path:
      state->complete(error::address_family_not_supported, {});
      break;
    case endpoint::kind::host_name:
      start({what.host(), what.port(), state});
      break;
  }
  return lookup{std::move(state)};
}

// The threads of a system_resolver and what waits for them; outlives it while one of them hangs.
class system_resolver::pool : public std::enable_shared_from_this<pool> {
 public:
  explicit pool(options chosen) : options_(std::move(chosen)) {
    options_.max_threads = std::max<std::size_t>(options_.max_threads, 1);
    if (!options_.look_up) options_.look_up = system_lookup;
  }

  // Returns false if too many wait, or there is no thread for it and none can be made.
  bool add(request wanted) {
    std::lock_guard lock{mutex_};
    if (threads_ < options_.max_threads && start_thread()) {
      waiting_.push_back(std::move(wanted));
      return true;
    }
    if (threads_ == 0) return false;
    if (waiting_.size() >= options_.max_waiting) drop_abandoned();
    if (waiting_.size() >= options_.max_waiting) return false;
    waiting_.push_back(std::move(wanted));
    return true;
  }

  // The resolver goes: nobody is told anything any more.
  void close() {
    std::deque<request> dropped;
    std::lock_guard lock{mutex_};
    closed_ = true;
    dropped.swap(waiting_);
  }

 private:
  bool start_thread() {
    sigset_t all, before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);  // the new thread inherits it
    bool started = true;
    try {
      std::thread{[self = shared_from_this()] { self->work(); }}.detach();
      ++threads_;
    } catch (const std::exception&) {
      started = false;
    }
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return started;
  }

  void drop_abandoned() {
    std::erase_if(waiting_, [](const request& r) { return r.state->abandoned(); });
  }

  void work() {
    std::unique_lock lock{mutex_};
    while (!waiting_.empty()) {
      const request wanted = std::move(waiting_.front());
      waiting_.pop_front();
      lock.unlock();
      look_up(wanted);
      lock.lock();
    }
    --threads_;
  }

  void look_up(const request& wanted) {
    if (wanted.state->abandoned()) return;
    resolved addresses;
    error_code ec;
    try {
      ec = options_.look_up(wanted.host, wanted.port, addresses);
    } catch (...) {  // an exception that leaves a thread ends the program
      ec = error::no_memory;
    }
    if (!ec && addresses.empty()) ec = error::host_not_found;
    if (ec) addresses.clear();

    std::unique_lock lock{mutex_};
    if (closed_) return;
    lock.unlock();
    wanted.state->complete(ec, std::move(addresses));
  }

  options options_;
  std::mutex mutex_;
  bool closed_ = false;
  std::size_t threads_ = 0;
  std::deque<request> waiting_;
};

system_resolver::system_resolver() : system_resolver(options{}) {}

system_resolver::system_resolver(options chosen) : pool_(std::make_shared<pool>(std::move(chosen))) {}

system_resolver::~system_resolver() { pool_->close(); }

void system_resolver::start(request wanted) {
  const auto state = wanted.state;
  if (!pool_->add(std::move(wanted))) state->complete(error::try_again, {});
}

namespace {

error_code to_error(int code, int system_error) noexcept {
  switch (code) {
    case 0:
      return {};
    case EAI_AGAIN:
      return error::host_not_found_try_again;
    case EAI_FAIL:
      return error::no_recovery;
    case EAI_MEMORY:
      return error::no_memory;
    case EAI_SYSTEM:
      return {system_error, boost::system::system_category()};
    default:
      return error::host_not_found;
  }
}

}  // namespace

error_code system_lookup(const std::string& host, std::uint16_t port, resolved& addresses) {
  constexpr std::size_t most = 4096;
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int code = ::getaddrinfo(host.c_str(), nullptr, &hints, &list);
  if (code != 0) return to_error(code, errno);
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner{list, &::freeaddrinfo};

  std::set<boost::asio::ip::tcp::endpoint> seen;
  for (const addrinfo* item = list; item != nullptr && addresses.size() < most; item = item->ai_next) {
    if (item->ai_family != AF_INET && item->ai_family != AF_INET6) continue;
    boost::asio::ip::tcp::endpoint address;
    if (item->ai_addrlen > address.capacity()) continue;
    address.resize(item->ai_addrlen);
    std::memcpy(address.data(), item->ai_addr, item->ai_addrlen);
    address.port(port);
    if (seen.insert(address).second) addresses.push_back(address);
  }
  return {};
}

namespace {

std::string lowered(std::string name) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
  std::transform(name.begin(), name.end(), name.begin(), lower);
  return name;
}

}  // namespace

static_resolver::static_resolver(const table& names) {
  for (const auto& [name, addresses] : names) set(name, addresses);
}

void static_resolver::set(const std::string& name, std::vector<boost::asio::ip::address> addresses) {
  names_[lowered(name)] = std::move(addresses);
}

void static_resolver::remove(const std::string& name) { names_.erase(lowered(name)); }

void static_resolver::start(request wanted) {
  resolved addresses;
  if (const auto found = names_.find(wanted.host); found != names_.end()) {
    for (const auto& address : found->second) addresses.emplace_back(address, wanted.port);
  }
  const error_code ec = addresses.empty() ? error_code{error::host_not_found} : error_code{};
  wanted.state->complete(ec, std::move(addresses));
}

}  // namespace braid::net
