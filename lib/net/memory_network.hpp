#pragma once

#include <braid/testing/simulation.hpp>

#include "net/transport.hpp"

#include <cstdint>
#include <memory>

namespace braid::net {

class memory_fabric;

/// A network whose connections are queues in memory, between loops of any runtimes, whether threads or
/// simulated.
///
/// It behaves as tcp does as far as a transport shows: bounded windows, end of file, resets when one end is
/// gone, the listener's backlog. Delays run on the timers of the loop that receives. Thread-safe.
class memory_network final : public network, public testing::network_faults {
 public:
  /// \param seed of the random choices: jitter.
  explicit memory_network(std::uint64_t seed);
  ~memory_network() override;

  std::unique_ptr<connecting> connect(core::loop& home, const endpoint& to, const transport_options& options,
                                      connect_events& events) override;
  /// Listens at any literal or unix path that is free; port 0 gives ports from 20000 up. An unspecified
  /// address takes connections to all addresses of its version.
  std::unique_ptr<listener> listen(core::loop& home, const endpoint& at, const transport_options& options,
                                   error_code& ec) override;

  void set_default(const testing::link_faults& faults) override;
  void set(const endpoint& server, const testing::link_faults& faults) override;
  void choose_with(chooser function) override;
  using network_faults::break_connections;
  void break_connections(const endpoint& server, const error_code& why) override;
  std::size_t connections(const endpoint& server) const override;
  std::size_t attempts(const endpoint& server) const override;

 private:
  std::shared_ptr<memory_fabric> fabric_;
};

}  // namespace braid::net
