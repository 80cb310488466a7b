#pragma once

#include <braid/cancellation.hpp>

#include "wire/meta.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace braid::wire {

/// The bit of rpc_meta::features by which a peer says that it takes cancel frames.
inline constexpr std::uint64_t cancel_feature = 1;
/// What this library announces, in the first meta that it sends on a connection.
inline constexpr std::uint64_t own_features = cancel_feature;

/// The number of a cause on the wire; its own, so that the enumeration may change.
std::uint32_t cause_to_wire(cancel_cause cause) noexcept;
/// The cause of a number; one that is unknown here is cancel_cause::user, so that the call is cancelled all
/// the same.
cancel_cause cause_from_wire(std::uint32_t number) noexcept;

/// Whether a meta is a cancel frame: neither request nor response, with a correlation_id and a cause.
bool is_cancel(const rpc_meta& meta) noexcept;
/// Whether a meta is of the extension's own frames, which carry no request and no answer.
bool is_control(const rpc_meta& meta) noexcept;

/// A frame that is a meta and nothing else.
class control_frame {
 public:
  /// Announces own_features to a client that has announced its own.
  static control_frame announcement() noexcept;
  /// Cancels the call `id`.
  static control_frame cancel(std::int64_t id, cancel_cause cause) noexcept;

  std::string_view bytes() const noexcept { return {bytes_.data(), size_}; }

 private:
  explicit control_frame(const rpc_meta& meta) noexcept;

  static constexpr std::size_t largest = 48;
  std::array<char, largest> bytes_;
  std::size_t size_;
};

/// What a peer has announced on a connection. The first meta that it sends decides; later ones change
/// nothing.
class peer_features {
 public:
  /// Whether the peer has sent a meta.
  bool heard() const noexcept { return heard_; }
  /// Reads the peer's first meta.
  void hear(const rpc_meta& first) noexcept {
    heard_ = true;
    features_ = first.features;
  }
  bool announced() const noexcept { return features_.has_value(); }
  bool takes_cancels() const noexcept { return (features_.value_or(0) & cancel_feature) != 0; }

 private:
  bool heard_ = false;
  std::optional<std::uint64_t> features_;
};

}  // namespace braid::wire
