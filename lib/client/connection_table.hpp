#pragma once

#include "client/connection.hpp"
#include "client/connection_settings.hpp"
#include "client/landing.hpp"
#include "client/route.hpp"
#include "core/loop.hpp"
#include "wire/frame.hpp"

#include <cstdint>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

namespace braid::client {

/// A loop's ways to servers, and what other loops have of its connections.
class connection_table final : public core::loop_service, private core::turn_end_hook {
 public:
  explicit connection_table(core::loop& home) noexcept : home_(home) {}

  /// The way that calls with these settings share, made when there is none.
  route& find(const connection_settings& settings);
  /// The connection itself, of settings whose connection this loop has.
  connection& connection_of(const connection_settings& settings);
  /// A connection for one call.
  connection& make_short_lived(const connection_settings& settings);
  /// Destroys a way without users, at the turn's end.
  void erase(route& unused) noexcept;

  /// Keeps the far end of another loop's crossing, until drop().
  void keep(std::shared_ptr<landing> of_another_loop) { landings_.push_back(std::move(of_another_loop)); }
  void drop(const std::shared_ptr<landing>& of_another_loop) noexcept;

  wire::frame_scratch& scratch() noexcept { return scratch_; }

  /// Answers that came for calls that had ended.
  std::uint64_t late_answers() const noexcept { return late_answers_; }
  void count_late_answer() noexcept { ++late_answers_; }

  void shutdown() noexcept override;

 private:
  void at_turn_end() noexcept override { unused_.clear(); }
  core::loop& owner_of(const connection_settings& settings) const noexcept;

  core::loop& home_;
  std::map<connection_settings, std::unique_ptr<route>> shared_;
  std::unordered_map<const route*, std::unique_ptr<route>> short_lived_;
  std::vector<std::shared_ptr<landing>> landings_;
  wire::frame_scratch scratch_;
  std::uint64_t late_answers_ = 0;
  std::vector<std::unique_ptr<route>> unused_;  // until the turn's end: they may be at work
};

}  // namespace braid::client
