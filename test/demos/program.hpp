#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

/// \file
/// Running a demo as its user would, and watching what it does.

namespace demo_test {

/// Generous, since sanitizers and busy machines are slow: only a program that hangs meets it.
constexpr std::chrono::seconds patience{300};

/// A demo that runs in a process of its own. Destroying it kills it.
class program {
 public:
  program(const std::string& name, const std::vector<std::string>& arguments);
  program(const program&) = delete;
  program& operator=(const program&) = delete;
  ~program();

  pid_t pid() const noexcept { return pid_; }

  /// Writes to its standard input; small texts only, since nothing is read meanwhile.
  void write(std::string_view text);
  void end_input();
  void signal(int number);

  /// Reads until what it printed (standard output and error) contains `text`. False when it ended before.
  bool prints(std::string_view text);
  /// Waits for its end. Returns its exit status, or the negative number of the signal that ended it.
  int ends();

  /// What it has printed so far.
  const std::string& output() const noexcept { return output_; }
  /// The words behind each `before` in the output.
  std::vector<std::string> words_after(std::string_view before) const;

 private:
  bool read_some();

  pid_t pid_ = -1;
  int input_ = -1;
  int from_ = -1;
  std::string output_;
};

/// Whether the process ends, or has ended, within patience. Then it is gone, or a zombie that nobody has
/// collected yet.
bool is_gone_soon(pid_t pid);

/// A folder that is removed at the end, with a file `name` in it.
class scratch {
 public:
  scratch();
  scratch(const scratch&) = delete;
  scratch& operator=(const scratch&) = delete;
  ~scratch();

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::string file(const std::string& name, std::string_view content) const;
  std::string content(const std::string& name) const;

 private:
  std::filesystem::path folder_;
};

}  // namespace demo_test
