#pragma once

// For what ends a process.

#include <catch2/catch.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <string>
#include <utility>

namespace child_process {

/// Runs `act` in a child process and returns how it ended and what it wrote to standard error.
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

}  // namespace child_process
