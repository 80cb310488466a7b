#include "wire/control_frame.hpp"

#include "wire/frame.hpp"

namespace braid::wire {
namespace {

struct cause_number {
  cancel_cause cause;
  std::uint32_t number;
};

constexpr cause_number cause_numbers[] = {
    {cancel_cause::deadline, 1},      {cancel_cause::user, 2},        {cancel_cause::fail_limit, 3},
    {cancel_cause::success_limit, 4}, {cancel_cause::sibling_won, 5}, {cancel_cause::peer_gone, 6},
    {cancel_cause::shutdown, 7},
};

}  // namespace

std::uint32_t cause_to_wire(cancel_cause cause) noexcept {
  for (const auto& each : cause_numbers)
    if (each.cause == cause) return each.number;
  return cause_to_wire(cancel_cause::user);
}

cancel_cause cause_from_wire(std::uint32_t number) noexcept {
  for (const auto& each : cause_numbers)
    if (each.number == number) return each.cause;
  return cancel_cause::user;
}

bool is_cancel(const rpc_meta& meta) noexcept {
  return !meta.has_request && !meta.has_response && meta.correlation_id && meta.cancel_cause;
}

bool is_control(const rpc_meta& meta) noexcept {
  return !meta.has_request && !meta.has_response && (meta.features || meta.cancel_cause);
}

control_frame::control_frame(const rpc_meta& meta) noexcept {
  const auto meta_bytes = static_cast<std::uint32_t>(meta_size(meta));
  char* const at = encode_header({.body_size = meta_bytes, .meta_size = meta_bytes}, bytes_.data());
  size_ = static_cast<std::size_t>(encode_meta(meta, at) - bytes_.data());
}

control_frame control_frame::announcement() noexcept {
  rpc_meta meta;
  meta.correlation_id = 0;
  meta.features = own_features;
  return control_frame(meta);
}

control_frame control_frame::cancel(std::int64_t id, cancel_cause cause) noexcept {
  rpc_meta meta;
  meta.correlation_id = id;
  meta.cancel_cause = cause_to_wire(cause);
  return control_frame(meta);
}

}  // namespace braid::wire
