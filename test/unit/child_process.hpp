#pragma once

// For what ends a process.

#include <catch2/catch.hpp>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace child_process {

/// Runs `act` in a child process and returns how it ended and what it wrote to standard error. It must start
/// no thread: ThreadSanitizer allows none in the child of a program that has some.
template <typename Act>
std::pair<int, std::string> in_child(Act act) {
  int pipe_ends[2];
  REQUIRE(::pipe(pipe_ends) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    std::signal(SIGABRT, SIG_DFL);  // Catch2 would report it as a failed test
    ::dup2(pipe_ends[1], STDERR_FILENO);
    ::close(pipe_ends[0]);
    act();
    ::_exit(0);
  }
  ::close(pipe_ends[1]);
  std::string text;
  std::array<char, 512> buffer;
  for (ssize_t n; (n = ::read(pipe_ends[0], buffer.data(), buffer.size())) > 0;) {
    text.append(buffer.data(), static_cast<std::size_t>(n));
  }
  ::close(pipe_ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  return {status, text};
}

/// Starts this program anew, for one test case, in the place of this process.
class restart {
 public:
  restart(const std::string& test_case, const std::string& variable) : name_("\"") {
    for (const char c : test_case) {
      if (c == '\\' || c == '"' || c == ',') name_ += '\\';
      name_ += c;
    }
    name_ += '"';
    for (char** each = environ; *each; ++each)
      if (!std::string_view(*each).starts_with("BRAID_TEST_")) environment_.emplace_back(*each);
    environment_.push_back(variable);
    for (std::string& each : environment_) environment_pointers_.push_back(each.data());
    environment_pointers_.push_back(nullptr);
  }
  void operator()() noexcept {
    ::dup2(::open("/dev/null", O_WRONLY | O_CLOEXEC), STDOUT_FILENO);
    char* const arguments[] = {program_.data(), name_.data(), nullptr};
    ::execve("/proc/self/exe", arguments, environment_pointers_.data());
    ::_exit(127);
  }

 private:
  std::string program_ = "tests";
  std::string name_;
  std::vector<std::string> environment_;
  std::vector<char*> environment_pointers_;
};

/// How many times the running test case has called in_own_process() by now, with this time.
inline int count_part(const std::string& test_case) {
  static std::string counted;
  static int parts = 0;
  if (std::exchange(counted, test_case) != test_case) parts = 0;
  return ++parts;
}

/// The exit status of in_own_process() where `act` has returned. Not 0, with which a program ends that ran no
/// test.
constexpr int ended_well = 99;

/// Runs `act` in a process of its own and returns how it ended and what it wrote to standard error. That
/// process runs the test case anew, up to here, so `act` may start threads.
template <typename Act>
std::pair<int, std::string> in_own_process(Act act) {
  const std::string test_case = Catch::getResultCapture().getCurrentTestName();
  const int part = count_part(test_case);
  if (const char* const wanted = std::getenv("BRAID_TEST_PART")) {
    if (part < std::atoi(wanted)) return {};
    std::signal(SIGABRT, SIG_DFL);
    act();
    ::_exit(ended_well);
  }
  return in_child(restart(test_case, "BRAID_TEST_PART=" + std::to_string(part)));
}

}  // namespace child_process
