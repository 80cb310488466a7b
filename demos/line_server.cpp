#include "line_server.hpp"

#include <braid/runtime.hpp>
#include <braid/server.hpp>

#include "lines.hpp"
#include "lines.pb.h"

#include <fmt/format.h>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

using namespace std::chrono_literals;

namespace demo {
namespace {

class line_service : public lines::LineService {
 public:
  void Number(google::protobuf::RpcController*, const lines::NumberRequest* request,
              lines::NumberResponse* response, google::protobuf::Closure* done) override {
    response->set_text(number_lines({.text = request->text(), .first_line = request->first_line()}));
    done->Run();
  }
};

void wait_for_end_of_input() {
  char ignored[64];
  for (;;) {
    const auto size = ::read(STDIN_FILENO, ignored, sizeof ignored);
    if (size == 0 || (size < 0 && errno != EINTR)) return;
  }
}

class file_handle {
 public:
  explicit file_handle(int file) noexcept : file_(file) {}
  file_handle(const file_handle&) = delete;
  file_handle& operator=(const file_handle&) = delete;
  ~file_handle() { close(); }
  int get() const noexcept { return file_; }
  int release() noexcept { return std::exchange(file_, -1); }
  void close() noexcept {
    if (file_ >= 0) ::close(release());
  }

 private:
  int file_;
};

struct pipe_ends {
  file_handle reading{-1};
  file_handle writing{-1};
};

// Neither end is inherited by other children: a child that held a sibling's lifeline would keep it alive.
pipe_ends open_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw std::system_error(errno, std::system_category(), "pipe");
  return {file_handle(ends[0]), file_handle(ends[1])};
}

pid_t start_child(int input, int output) {
  // By its real name: the link itself would be a tool's, such as valgrind's, where that runs the program.
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, input, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&files, output, STDOUT_FILENO);
  char program[] = "parallel_echo";
  char option[] = "--serve";
  char* const arguments[] = {program, option, nullptr};
  pid_t pid = -1;
  const int error = ::posix_spawn(&pid, self.c_str(), &files, nullptr, arguments, environ);
  posix_spawn_file_actions_destroy(&files);
  if (error != 0) throw std::system_error(error, std::system_category(), "cannot start a server");
  return pid;
}

bool wait_readable(int file, std::chrono::milliseconds limit) {
  pollfd wanted{.fd = file, .events = POLLIN, .revents = 0};
  return ::poll(&wanted, 1, static_cast<int>(limit.count())) == 1;
}

// The first line of what the child says, without its newline; empty when it ended before, or takes too long.
std::string read_line(int from) {
  std::string line;
  for (char c = 0;;) {
    if (!wait_readable(from, 60s) || ::read(from, &c, 1) != 1) return {};
    if (c == '\n') return line;
    line += c;
  }
}

}  // namespace

void serve_lines_until_input_ends() {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // the input's end does it too; this also ends a server that hangs
  braid::runtime rt({.loops = 1});
  braid::server server(rt, {.max_body_size = largest_message});
  server.add_service(std::make_unique<line_service>());
  server.start("127.0.0.1:0");
  fmt::print("READY {}\n", server.endpoints().front().to_string());
  std::fflush(stdout);
  wait_for_end_of_input();
}

line_server::line_server() {
  auto lifeline = open_pipe();
  auto report = open_pipe();
  pid_ = start_child(lifeline.reading.get(), report.writing.get());
  lifeline_ = lifeline.writing.release();
  report.writing.close();  // so that the report ends if the child does
  constexpr std::string_view ready = "READY ";
  const auto line = read_line(report.reading.get());
  if (!line.starts_with(ready)) {
    kill();
    throw std::runtime_error("a server ended before it was ready");
  }
  address_ = line.substr(ready.size());
}

line_server::line_server(line_server&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      lifeline_(std::exchange(other.lifeline_, -1)),
      address_(std::move(other.address_)) {}

line_server::~line_server() { kill(); }

void line_server::kill() noexcept {
  if (pid_ < 0) return;
  ::kill(pid_, SIGKILL);
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
  ::close(lifeline_);
  pid_ = -1;
}

}  // namespace demo
