#include "program.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <system_error>
#include <thread>

using namespace std::chrono_literals;

namespace demo_test {
namespace {

[[noreturn]] void fail(const char* what) { throw std::system_error(errno, std::system_category(), what); }

std::array<int, 2> open_pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) fail("pipe");
  return ends;
}

void close_once(int& file) {
  if (file >= 0) ::close(file);
  file = -1;
}

bool is_gone(pid_t pid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/stat");
  const std::string text{std::istreambuf_iterator<char>(status), {}};
  const auto name_end = text.rfind(") ");
  return name_end == std::string::npos || text[name_end + 2] == 'Z' || text[name_end + 2] == 'X';
}

}  // namespace

program::program(const std::string& name, const std::vector<std::string>& arguments) {
  auto in = open_pipe();
  auto out = open_pipe();
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, in[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&files, out[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&files, out[1], STDERR_FILENO);

  const std::string path = std::string(DEMOS_FOLDER) + "/" + name;
  std::vector<std::string> words{path};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  for (auto& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  const int error = ::posix_spawn(&pid_, path.c_str(), &files, nullptr, pointers.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  close_once(in[0]);
  close_once(out[1]);
  input_ = in[1];
  from_ = out[0];
  if (error != 0) throw std::system_error(error, std::system_category(), path);
}

program::~program() {
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  close_once(input_);
  close_once(from_);
}

void program::write(std::string_view text) {
  if (::write(input_, text.data(), text.size()) != static_cast<ssize_t>(text.size())) fail("write");
}

void program::end_input() { close_once(input_); }

void program::signal(int number) {
  if (::kill(pid_, number) != 0) fail("kill");
}

// False at the end of the output, or when none comes for a moment.
bool program::read_some() {
  pollfd wanted{.fd = from_, .events = POLLIN, .revents = 0};
  if (::poll(&wanted, 1, 20) != 1) return false;
  std::array<char, 65536> some;
  const auto size = ::read(from_, some.data(), some.size());
  if (size <= 0) return false;
  output_.append(some.data(), static_cast<std::size_t>(size));
  return true;
}

bool program::prints(std::string_view text) {
  const auto end = std::chrono::steady_clock::now() + patience;
  while (output_.find(text) == std::string::npos) {
    if (read_some()) continue;
    if (is_gone(pid_) && !read_some()) return output_.find(text) != std::string::npos;
    if (std::chrono::steady_clock::now() > end) return false;
  }
  return true;
}

int program::ends() {
  const auto end = std::chrono::steady_clock::now() + patience;
  while (!is_gone(pid_)) {
    read_some();
    if (std::chrono::steady_clock::now() > end)
      throw std::runtime_error("does not end; it printed: " + output_);
  }
  while (read_some()) {
  }
  int status = 0;
  ::waitpid(pid_, &status, 0);
  pid_ = -1;
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

std::vector<std::string> program::words_after(std::string_view before) const {
  std::vector<std::string> words;
  for (auto at = output_.find(before); at != std::string::npos; at = output_.find(before, at + 1)) {
    const auto start = at + before.size();
    words.push_back(output_.substr(start, output_.find_first_of(" \n", start) - start));
  }
  return words;
}

bool is_gone_soon(pid_t pid) {
  const auto end = std::chrono::steady_clock::now() + patience;
  while (!is_gone(pid)) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(5ms);
  }
  return true;
}

scratch::scratch() {
  std::string name = (std::filesystem::temp_directory_path() / "braid-demos-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) fail("mkdtemp");
  folder_ = name;
}

scratch::~scratch() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

std::string scratch::file(const std::string& name, std::string_view content) const {
  std::ofstream file(folder_ / name, std::ios::binary);
  file.write(content.data(), static_cast<std::streamsize>(content.size()));
  if (!file.flush()) throw std::runtime_error("cannot write " + path(name));
  return path(name);
}

std::string scratch::content(const std::string& name) const {
  std::ifstream file(folder_ / name, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace demo_test
