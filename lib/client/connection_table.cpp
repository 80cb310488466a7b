#include "client/connection_table.hpp"

#include "client/crossing.hpp"
#include "core/runtime_core.hpp"

#include <boost/container_hash/hash.hpp>

#include <utility>

namespace braid::client {

// The same loop for the same server whoever asks, without anything that loops would share.
core::loop& connection_table::owner_of(const connection_settings& settings) const noexcept {
  if (settings.type != connection_type::single) return home_;
  std::size_t seed = hash_value(settings.server);
  boost::hash_combine(seed, settings.group);
  core::runtime_core& runtime = home_.owner();
  return runtime.at(seed % runtime.loop_count());
}

route& connection_table::find(const connection_settings& settings) {
  auto& slot = shared_[settings];
  if (slot) return *slot;
  if (core::loop& owner = owner_of(settings); &owner == &home_) {
    slot = std::make_unique<connection>(home_, *this, settings);
  } else {
    slot = std::make_unique<crossing>(home_, *this, settings, owner);
  }
  return *slot;
}

connection& connection_table::connection_of(const connection_settings& settings) {
  return static_cast<connection&>(find(settings));
}

connection& connection_table::make_short_lived(const connection_settings& settings) {
  auto made = std::make_unique<connection>(home_, *this, settings);
  connection& result = *made;
  short_lived_.emplace(&result, std::move(made));
  return result;
}

// One without users may have one again for a moment, while it waits for the turn's end: the way of its
// settings may be another by then.
void connection_table::erase(route& unused) noexcept {
  if (const auto found = short_lived_.find(&unused); found != short_lived_.end()) {
    unused_.push_back(std::move(found->second));
    short_lived_.erase(found);
  } else if (const auto shared = shared_.find(unused.settings());
             shared != shared_.end() && shared->second.get() == &unused) {
    unused_.push_back(std::move(shared->second));
    shared_.erase(shared);
  }
  home_.at_turn_end(*this);
}

void connection_table::drop(const std::shared_ptr<landing>& of_another_loop) noexcept {
  of_another_loop->leave();
  std::erase(landings_, of_another_loop);
}

// What ends may have been the last user of its way, which then leaves the table.
void connection_table::shutdown() noexcept {
  std::vector<route*> all;
  for (auto& [settings, each] : shared_) all.push_back(each.get());
  for (auto& [key, each] : short_lived_) all.push_back(each.get());
  for (route* each : all) each->add_user();
  for (route* each : all) each->shut_down();
  for (route* each : all) each->remove_user();
}

}  // namespace braid::client
