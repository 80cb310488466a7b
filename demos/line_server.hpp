#pragma once

#include <sys/types.h>

#include <string>

/// \file
/// A server of the line service in a process of its own.

namespace demo {

/// Runs the server of the line service in this process until its standard input ends. Prints READY and its
/// address on the standard output. This is what a child process of line_server does.
void serve_lines_until_input_ends();

/// A child process that serves the line service on a port of the system's choice.
///
/// What it does: starts this same program with `--serve`, which must then call
/// serve_lines_until_input_ends(). The child's standard input is a pipe from this process, and nothing is
/// ever written to it: it ends when this process does, however it does, and the child with it.
///
/// Errors: the constructor throws std::runtime_error when the child does not say that it is ready.
///
/// Object lifetimes: the destructor kills the child and waits for its end.
class line_server {
 public:
  line_server();
  line_server(line_server&& other) noexcept;
  line_server& operator=(line_server&&) = delete;
  ~line_server();

  pid_t pid() const noexcept { return pid_; }
  /// "127.0.0.1:PORT".
  const std::string& address() const noexcept { return address_; }

  /// Ends the child with SIGKILL, as if its machine had lost power. Returns once it is gone, its sockets
  /// included.
  void kill() noexcept;

 private:
  pid_t pid_ = -1;  // -1: none
  int lifeline_ = -1;
  std::string address_;
};

}  // namespace demo
