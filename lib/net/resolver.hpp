#pragma once

/// \file
/// Turns host names into addresses, behind a seam that a simulation replaces.

#include <braid/endpoint.hpp>
#include <braid/error.hpp>

#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace braid::net {

/// What a name stands for, best first, each address once.
using resolved = std::vector<boost::asio::ip::tcp::endpoint>;

/// Called with the outcome of a lookup: an error and no addresses, or at least one address.
using resolve_handler = std::function<void(error_code, resolved)>;

/// Runs a function later on the thread that the result belongs to. It may be called on any thread, must not
/// run the function before it returns, and must not throw.
using post_function = std::function<void(std::function<void()>)>;

namespace detail {

// What the caller and the thread that looks up share. The handler is touched on the caller's thread only.
class lookup_state : public std::enable_shared_from_this<lookup_state> {
 public:
  lookup_state(post_function post, resolve_handler handler)
      : post_(std::move(post)), handler_(std::move(handler)) {}

  void complete(error_code ec, resolved addresses);  // any thread; posts the handler unless abandoned
  void abandon() noexcept;                           // caller's thread
  bool abandoned() const noexcept;                   // any thread

 private:
  void deliver(error_code ec, resolved addresses);

  mutable std::mutex mutex_;
  bool abandoned_ = false;
  post_function post_;
  resolve_handler handler_;
};

}  // namespace detail

/// A lookup that was started; going out of scope abandons it.
///
/// Thread safety: to be used and destroyed on the thread that the post function leads to.
class [[nodiscard]] lookup {
 public:
  /// No lookup.
  lookup() = default;
  explicit lookup(std::shared_ptr<detail::lookup_state> state) noexcept : state_(std::move(state)) {}
  ~lookup() { abandon(); }

  lookup(lookup&&) noexcept = default;
  lookup& operator=(lookup&& other) noexcept {
    if (this != &other) {
      abandon();
      state_ = std::move(other.state_);
    }
    return *this;
  }

  /// Drops the result. Afterwards the handler is gone and neither it nor the post function is called, even if
  /// the system goes on looking the name up. Does nothing if the handler has been called already.
  void abandon() noexcept {
    if (const auto state = std::move(state_)) state->abandon();
  }

 private:
  std::shared_ptr<detail::lookup_state> state_;
};

/// Looks host names up.
///
/// Thread safety: `resolve()` may be called from several threads at once, unless a derived class says
/// otherwise.
class resolver {
 public:
  resolver() = default;
  virtual ~resolver() = default;
  resolver(const resolver&) = delete;
  resolver& operator=(const resolver&) = delete;

  /// Starts the lookup of an endpoint's host. A literal needs none and completes at once.
  ///
  /// \param what     a literal or a host name; a unix path fails with address_family_not_supported.
  /// \param post     where the handler is to run; kept until the lookup ends or is abandoned.
  /// \param handler  called once through `post`, never from inside this function; not called once the lookup
  /// is
  ///                 abandoned, and perhaps not if the resolver is destroyed first. Errors: those of
  ///                 `boost::asio::error` for lookups (such as host_not_found), a system error, or try_again
  ///                 if too many lookups wait already.
  lookup resolve(const endpoint& what, post_function post, resolve_handler handler);

 protected:
  /// A host name that is to be looked up.
  struct request {
    std::string host;
    std::uint16_t port = 0;
    std::shared_ptr<detail::lookup_state> state;
  };

  /// Looks a name up and calls `complete()` of its state, from any thread, also at once.
  virtual void start(request wanted) = 0;
};

/// Looks names up as the system does (getaddrinfo: hosts file, DNS and whatever else it is set up for).
///
/// The system offers no way to end a lookup that hangs, so the threads that look up are detached and own
/// nothing but what they share with this object. It, and the program, may end while they hang. They exist
/// only while there is something to look up, and block all signals.
class system_resolver final : public resolver {
 public:
  /// Looks a name up, blocking its thread; called by several threads at once and perhaps after the resolver
  /// is gone, so it must own what it uses.
  using blocking_lookup =
      std::function<error_code(const std::string& host, std::uint16_t port, resolved& addresses)>;

  struct options {
    /// How many names are looked up at once, that is, how many threads there may be; at least 1. Default: 4.
    std::size_t max_threads = 4;
    /// How many lookups may wait for a thread; more fail with try_again. Default: 1024.
    std::size_t max_waiting = 1024;
    /// What the threads run. Default: `system_lookup`.
    blocking_lookup look_up;
  };

  system_resolver();
  explicit system_resolver(options chosen);

  /// Abandons the lookups that go on or wait; does not block.
  ~system_resolver() override;

 private:
  class pool;

  void start(request wanted) override;

  std::shared_ptr<pool> pool_;
};

/// Asks getaddrinfo for the stream addresses of a host, of both IP versions, in its order.
/// Blocks for as long as that takes. Keeps the first 4096 addresses at most. Thread-safe.
error_code system_lookup(const std::string& host, std::uint16_t port, resolved& addresses);

/// Looks names up in a table: for simulations, and programs that know their servers.
///
/// Thread safety: `set()` and `remove()` must not run at the same time as `resolve()`.
class static_resolver final : public resolver {
 public:
  using table = std::map<std::string, std::vector<boost::asio::ip::address>>;

  static_resolver() = default;
  /// \param names  the addresses of each name; names in any case.
  explicit static_resolver(const table& names);

  /// Says what a name stands for from now on; with no addresses it is not found.
  void set(const std::string& name, std::vector<boost::asio::ip::address> addresses);

  /// Forgets a name.
  void remove(const std::string& name);

 private:
  void start(request wanted) override;

  table names_;
};

}  // namespace braid::net
