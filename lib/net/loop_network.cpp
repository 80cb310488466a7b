#include "net/loop_network.hpp"

#include "core/runtime_core.hpp"

namespace braid::net {
namespace {

/// The system's resolver, as each loop that looks up names has it.
class loop_resolver final : public core::loop_service {
 public:
  explicit loop_resolver(core::loop&) noexcept {}
  void shutdown() noexcept override {}
  resolver& get() noexcept { return resolver_; }

 private:
  system_resolver resolver_;
};

}  // namespace

network& network_of(core::loop& home) {
  const auto& simulated = home.owner().outside().network;
  return simulated ? *simulated : system_network();
}

resolver& resolver_of(core::loop& home) {
  const auto& simulated = home.owner().outside().resolver;
  return simulated ? *simulated : home.service<loop_resolver>().get();
}

}  // namespace braid::net
