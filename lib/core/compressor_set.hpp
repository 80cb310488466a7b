#pragma once

#include <braid/compression.hpp>

#include <memory>
#include <optional>
#include <string_view>
#include <vector>

namespace braid::core {

/// The compressors that a runtime was given, beside the built-in ones, whose names and numbers are taken.
/// Not changed once it was made, so that any thread may look into it.
class compressor_set {
 public:
  /// Throws a system_error (EINVAL) that names the compressor which cannot be added.
  explicit compressor_set(std::vector<std::shared_ptr<const compressor>> added);

  /// Null: none was added with that number.
  const compressor* find(compression number) const noexcept;
  /// The number behind a name, of the built-in ones too.
  std::optional<compression> find(std::string_view name) const noexcept;

 private:
  std::vector<std::shared_ptr<const compressor>> added_;
};

}  // namespace braid::core
