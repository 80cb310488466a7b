#pragma once

/// \file
/// Plays scripts of the call tree model on something of the library and compares how every call ended.

#include "call_tree_model.hpp"

#include <catch2/catch.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

namespace call_tree {

/// What is compared with the model: it plays a script and says how each call ended.
class stage {
 public:
  virtual ~stage() = default;
  virtual std::vector<std::optional<ending>> play(const script& of) = 0;
};

/// How often each code and cause was the end of a call.
class tally {
 public:
  void add(const std::vector<std::optional<ending>>& calls) {
    ++scripts_;
    for (const auto& each : calls) {
      if (!each) continue;
      ++calls_;
      ++codes_[each->code];
      ++causes_[static_cast<std::size_t>(each->why)];
      if (each->partial) ++partial_;
      if (each->retryable) ++retryable_;
    }
  }

  std::size_t scripts() const { return scripts_; }
  std::size_t code(int number) const {
    const auto found = codes_.find(number);
    return found == codes_.end() ? 0 : found->second;
  }
  std::size_t of_cause(cause why) const { return causes_[static_cast<std::size_t>(why)]; }
  std::size_t partial() const { return partial_; }

  std::string text() const {
    std::ostringstream out;
    out << scripts_ << " trees, " << calls_ << " calls. Codes:";
    for (const auto& [number, count] : codes_) out << ' ' << number << ": " << count << ',';
    out << " partial: " << partial_ << ", retryable: " << retryable_ << ". Causes:";
    for (std::size_t i = 0; i < cause_count; ++i)
      out << ' ' << name(static_cast<cause>(i)) << ": " << causes_[i] << ',';
    std::string all = out.str();
    all.back() = '.';
    return all;
  }

 private:
  std::size_t scripts_ = 0;
  std::size_t calls_ = 0;
  std::size_t partial_ = 0;
  std::size_t retryable_ = 0;
  std::map<int, std::size_t> codes_;
  std::array<std::size_t, cause_count> causes_{};
};

/// Plays one script; true if every call ended as the model says.
inline bool same_as_model(stage& on, const script& of, std::uint64_t seed, tally& seen) {
  const auto wanted = expected(of);
  const auto found = on.play(of);
  seen.add(found);
  if (found == wanted) return true;
  INFO("seed " << seed << "\n" << describe(of));
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    INFO("call " << i);
    CHECK(describe(found.at(i)) == describe(wanted[i]));
  }
  return false;
}

/// Every cause and every code that a call of a tree can end with, each at least 100 times.
inline void check_that_all_occurred(const tally& seen) {
  for (const int code :
       {0, 1, 22, 111, 112, 125, 1003, 1005, 1006, 1008, 1014, 2001, 2002, 2003, 2004, 5001, 5002, -7}) {
    CAPTURE(code);
    CHECK(seen.code(code) >= 100);
  }
  for (std::size_t i = 0; i < cause_count; ++i) {
    const auto why = static_cast<cause>(i);
    CAPTURE(name(why));
    CHECK(seen.of_cause(why) >= 100);
  }
  CHECK(seen.partial() >= 100);
}

}  // namespace call_tree
