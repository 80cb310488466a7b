#pragma once

#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

/// \file
/// What the kernel says of this process and of another: processor time and memory.

namespace bench {

inline double own_cpu_seconds() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  return static_cast<double>(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
         1e-6 * static_cast<double>(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

/// 0 for a process that does not exist.
inline double cpu_seconds_of(int pid) {
  if (pid <= 0) return 0;
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto name_end = text.rfind(')');
  if (name_end == std::string::npos) return 0;
  unsigned long user = 0;
  unsigned long system = 0;
  std::sscanf(text.c_str() + name_end + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user,
              &system);
  return static_cast<double>(user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

/// A number of /proc/PID/status, memory in KB; pid 0: this process.
inline long status_of(int pid, std::string_view key) {
  std::ifstream file("/proc/" + (pid > 0 ? std::to_string(pid) : std::string("self")) + "/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(key) && line.size() > key.size() && line[key.size()] == ':') {
      return std::atol(line.c_str() + key.size() + 1);
    }
  }
  return 0;
}

/// How many files and sockets a process has open; 0 when that may not be seen.
inline long open_files_of(int pid) {
  std::error_code ec;
  std::filesystem::directory_iterator files("/proc/" + std::to_string(pid) + "/fd", ec);
  return ec ? 0 : static_cast<long>(std::distance(begin(files), end(files)));
}

}  // namespace bench
