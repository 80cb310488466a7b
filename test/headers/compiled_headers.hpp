#pragma once

#include <set>
#include <string_view>

/// The public headers that were compiled alone into this program; each generated source adds its own.
class compiled_headers {
 public:
  static bool add(std::string_view name) { return names().insert(name).second; }
  static bool contain(std::string_view name) { return names().contains(name); }

 private:
  static std::set<std::string_view>& names() {
    static std::set<std::string_view> names;
    return names;
  }
};
