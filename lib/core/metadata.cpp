#include <braid/metadata.hpp>

#include <algorithm>

namespace braid {

void metadata::set_user_field(std::string_view key, std::string_view value) {
  const auto found = std::ranges::find(user_fields, key, &fields::value_type::first);
  if (found != user_fields.end()) {
    found->second = value;
  } else {
    user_fields.emplace_back(key, value);
  }
}

std::optional<std::string_view> metadata::user_field(std::string_view key) const noexcept {
  const auto found = std::ranges::find(user_fields, key, &fields::value_type::first);
  if (found == user_fields.end()) return std::nullopt;
  return found->second;
}

}  // namespace braid
