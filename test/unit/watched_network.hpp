#pragma once

// A network whose connections note what is done with memory, and on which loop they are read.

#include <braid/runtime.hpp>
#include <braid/testing/simulation.hpp>

#include "core/environment.hpp"
#include "core/loop.hpp"
#include "net/transport.hpp"

#include <algorithm>
#include <cstddef>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace call_fixture {

/// Notes which memory is given to be written and which is read into, and where: of all connections, made and
/// accepted, of the processes that it watches.
class watched_network final : public braid::net::network {
 public:
  explicit watched_network(std::shared_ptr<braid::net::network> real) : real_(std::move(real)) {}
  /// In front of a simulation's network.
  static std::shared_ptr<watched_network> of(braid::testing::simulation& sim) {
    auto made = std::make_shared<watched_network>(sim.environment()->network);
    made->self_ = made;
    return made;
  }
  /// The options of a process that is to be watched.
  braid::runtime_options watch(braid::runtime_options options) const {
    auto outside = *options.environment;
    outside.network = self_.lock();
    options.environment = std::make_shared<braid::core::environment>(outside);
    return options;
  }

  std::unique_ptr<braid::net::connecting> connect(braid::core::loop& home, const braid::endpoint& to,
                                                  const braid::net::transport_options& options,
                                                  braid::net::connect_events& events) override {
    asked = options;
    auto attempt = std::make_unique<watched_attempt>(*this, events);
    attempt->real = real_->connect(home, to, options, *attempt);
    return attempt;
  }
  std::unique_ptr<braid::net::listener> listen(braid::core::loop& home, const braid::endpoint& at,
                                               const braid::net::transport_options& options,
                                               braid::error_code& ec) override {
    asked = options;
    auto real = real_->listen(home, at, options, ec);
    return ec ? nullptr : std::make_unique<watched_listener>(*this, std::move(real));
  }

  /// Whether all of these bytes, where they lie, were given to be written.
  bool wrote(std::string_view bytes) const { return covers(written, bytes); }
  /// Whether all of these bytes lie where something was read into.
  bool read(std::string_view bytes) const { return covers(landed, bytes); }
  void forget() {
    written.clear();
    landed.clear();
  }

  std::vector<std::string_view> written, landed;
  std::map<std::string, std::set<std::size_t>> read_on;  // the loops that read, for each peer
  braid::net::transport_options asked{};                 // of the last connect or listen

 private:
  static bool covers(const std::vector<std::string_view>& all, std::string_view bytes) {
    return std::all_of(bytes.begin(), bytes.end(), [&](const char& byte) {
      return std::any_of(all.begin(), all.end(), [&](std::string_view each) {
        return &byte >= each.data() && &byte < each.data() + each.size();
      });
    });
  }

  struct watched_transport final : braid::net::transport, braid::net::transport_events {
    watched_transport(watched_network& of, std::unique_ptr<braid::net::transport> inner)
        : net(of), real(std::move(inner)) {}
    void start(braid::net::transport_events& events) override {
      up = &events;
      real->start(*this);
    }
    void pause_reading() override { real->pause_reading(); }
    void resume_reading() override { real->resume_reading(); }
    std::size_t write_some(std::span<const iovec> pieces, braid::error_code& ec) override {
      const std::size_t taken = real->write_some(pieces, ec);
      std::size_t left = taken;
      for (const iovec& piece : pieces) {
        const std::size_t n = std::min(left, piece.iov_len);
        net.written.emplace_back(static_cast<const char*>(piece.iov_base), n);
        left -= n;
      }
      return taken;
    }
    void shutdown_send() override { real->shutdown_send(); }
    void close(bool reset) noexcept override { real->close(reset); }
    const braid::endpoint& remote() const noexcept override { return real->remote(); }
    const braid::endpoint& local() const noexcept override { return real->local(); }

    std::span<char> read_space() override { return space = up->read_space(); }
    void on_read(std::size_t size) override {
      net.landed.emplace_back(space.data(), size);
      net.read_on[remote().to_string()].insert(braid::core::loop::current()->index());
      up->on_read(size);
    }
    void on_writable() override { up->on_writable(); }
    void on_broken(const braid::error_code& why) override { up->on_broken(why); }

    watched_network& net;
    std::unique_ptr<braid::net::transport> real;
    braid::net::transport_events* up = nullptr;
    std::span<char> space;
  };

  struct watched_attempt final : braid::net::connecting, braid::net::connect_events {
    watched_attempt(watched_network& of, braid::net::connect_events& events) : net(of), up(events) {}
    void on_connected(std::unique_ptr<braid::net::transport> connected) override {
      up.on_connected(std::make_unique<watched_transport>(net, std::move(connected)));
    }
    void on_connect_failed(const braid::error_code& why) override { up.on_connect_failed(why); }

    watched_network& net;
    braid::net::connect_events& up;
    std::unique_ptr<braid::net::connecting> real;
  };

  struct watched_listener final : braid::net::listener, braid::net::accept_events {
    watched_listener(watched_network& of, std::unique_ptr<braid::net::listener> inner)
        : net(of), real(std::move(inner)) {}
    const braid::endpoint& local() const noexcept override { return real->local(); }
    void start(braid::net::accept_events& events) override {
      up = &events;
      real->start(*this);
    }
    braid::core::loop& next_loop() override { return up->next_loop(); }
    void on_accepted(braid::core::loop& home, std::unique_ptr<braid::net::transport> accepted) override {
      up->on_accepted(home, std::make_unique<watched_transport>(net, std::move(accepted)));
    }
    void on_accept_failed(const braid::error_code& why) override { up->on_accept_failed(why); }

    watched_network& net;
    std::unique_ptr<braid::net::listener> real;
    braid::net::accept_events* up = nullptr;
  };

  std::shared_ptr<braid::net::network> real_;
  std::weak_ptr<watched_network> self_;
};

}  // namespace call_fixture
