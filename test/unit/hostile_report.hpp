#pragma once

#include <catch2/catch.hpp>

#include <cstddef>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

/// What became of a table of hostile cases. Too many for an assertion each.
class hostile_report {
 public:
  explicit hostile_report(std::string name) : name_(std::move(name)) {}

  void count(const std::string& outcome) { ++outcomes_[outcome]; }
  /// By the code of an answer; -1: none was due.
  void count_code(int code) {
    const bool named =
        code == -1 || code == 0 || (code > 1000 && code < 1019) || (code > 2000 && code < 2006);
    count(!named       ? "the handler's own code"
          : code == -1 ? "ignored"
          : code == 0  ? "answered"
                       : std::to_string(code));
  }
  void wrong(const std::string& what) {
    ++wrong_;
    if (first_.size() < 10) first_.push_back(what);
  }

  /// Prints the table's size and outcomes as a comment of the Test Anything Protocol, and fails the test when
  /// anything was wrong. \return how many cases ended as they should.
  std::size_t print() const {
    std::size_t right = 0;
    std::string line;
    for (const auto& [outcome, times] : outcomes_) {
      right += times;
      line += (line.empty() ? "" : ", ") + outcome + " " + std::to_string(times);
    }
    std::printf("# hostile %s: %zu cases: %s\n", name_.c_str(), right + wrong_, line.c_str());
    std::fflush(stdout);
    for (const std::string& each : first_) UNSCOPED_INFO(each);
    CHECK(wrong_ == 0);
    return right;
  }

 private:
  const std::string name_;
  std::map<std::string, std::size_t> outcomes_;
  std::size_t wrong_ = 0;
  std::vector<std::string> first_;
};
