#include "core/compressor_set.hpp"

#include <boost/system/system_error.hpp>
#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <utility>

namespace braid::core {
namespace {

constexpr std::array<std::pair<std::string_view, compression>, 4> built_in{{{"none", compression::none},
                                                                            {"snappy", compression::snappy},
                                                                            {"gzip", compression::gzip},
                                                                            {"zlib", compression::zlib}}};

[[noreturn]] void refuse(const std::string& why) {
  throw boost::system::system_error({EINVAL, boost::system::system_category()}, why);
}

bool built_in_number(compression number) noexcept {
  for (const auto& [name, known] : built_in)
    if (known == number) return true;
  return false;
}

}  // namespace

compressor_set::compressor_set(std::vector<std::shared_ptr<const compressor>> added) {
  for (auto& each : added) {
    if (!each) refuse("runtime_options::compressors holds a null pointer");
    const auto number = static_cast<std::int32_t>(each->number());
    if (each->name().empty()) refuse(fmt::format("the compressor with number {} has no name", number));
    if (built_in_number(each->number()) || find(each->number()))
      refuse(fmt::format("compressor '{}': the number {} is taken", each->name(), number));
    if (find(each->name())) refuse(fmt::format("compressor '{}': the name is taken", each->name()));
    added_.push_back(std::move(each));
  }
}

const compressor* compressor_set::find(compression number) const noexcept {
  for (const auto& each : added_)
    if (each->number() == number) return each.get();
  return nullptr;
}

std::optional<compression> compressor_set::find(std::string_view name) const noexcept {
  for (const auto& [known, number] : built_in)
    if (known == name) return number;
  for (const auto& each : added_)
    if (each->name() == name) return each->number();
  return std::nullopt;
}

}  // namespace braid::core
