#pragma once

#include "histogram.hpp"
#include "process_usage.hpp"

#include <fmt/format.h>

#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

/// \file
/// What the two benchmark programs share: the command line, the measuring window, the RESULT line.

namespace bench {

inline std::uint64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
}

inline void nap(double seconds) {
  timespec left{};
  left.tv_sec = static_cast<time_t>(seconds);
  left.tv_nsec = static_cast<long>((seconds - static_cast<double>(left.tv_sec)) * 1e9);
  while (nanosleep(&left, &left) != 0) {
  }
}

/// The command line, `--key=value` each.
struct arguments {
  std::string workload = "echo";  // echo, fanout, hold, idle
  std::string host = "127.0.0.1";
  int port = 9000;
  std::size_t payload = 32;   // bytes each way
  std::size_t conns = 1;      // connections; idle: how many are measured
  std::size_t inflight = 1;   // calls at a time; fanout: parent calls
  std::size_t fanout = 8;     // sub calls of a parent
  std::size_t total = 10000;  // hold: calls at once
  unsigned hold_ms = 1000;    // hold: how long the server keeps each
  double warmup = 1;          // seconds
  double secs = 5;            // seconds
  std::size_t threads = 2;    // loops of this process
  int server_pid = 0;         // whose processor time and memory are counted
  bool attach = false;        // the payload travels as an attachment
  int timeout_ms = 10000;     // the deadline of each call
  std::string api;            // server: the style of its handlers; empty: its first one
  std::string peer = "braid";
};

namespace detail {

[[noreturn]] inline void refuse(std::string_view what) {
  fmt::print(stderr, "bad argument: {}\n", what);
  std::exit(2);
}

template <typename Number>
Number read_number(std::string_view argument, std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) refuse(argument);
  return value;
}

}  // namespace detail

/// Ends the process with 2 when there is something wrong with them.
inline arguments parse_arguments(int argc, char** argv) {
  arguments out;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    const auto equals = argument.find('=');
    if (!argument.starts_with("--") || equals == std::string_view::npos) detail::refuse(argument);
    const std::string_view key = argument.substr(2, equals - 2);
    const std::string_view value = argument.substr(equals + 1);
    const auto text = [&](std::string_view name, std::string& target) {
      if (key != name) return false;
      target = value;
      return true;
    };
    const auto number = [&]<typename Number>(std::string_view name, Number& target) {
      if (key != name) return false;
      target = detail::read_number<Number>(argument, value);
      return true;
    };
    int attach = out.attach;
    const bool known =
        text("workload", out.workload) || text("host", out.host) || number("port", out.port) ||
        number("payload", out.payload) || number("conns", out.conns) || number("inflight", out.inflight) ||
        number("fanout", out.fanout) || number("total", out.total) || number("hold_ms", out.hold_ms) ||
        number("warmup", out.warmup) || number("secs", out.secs) || number("threads", out.threads) ||
        number("server_pid", out.server_pid) || number("attach", attach) ||
        number("timeout_ms", out.timeout_ms) || text("api", out.api) || text("peer", out.peer);
    if (!known) detail::refuse(argument);
    out.attach = attach != 0;
  }
  if (out.conns == 0 || out.inflight == 0 || out.threads == 0 || out.fanout == 0) {
    detail::refuse("conns, inflight, threads and fanout must be at least 1");
  }
  return out;
}

inline std::string make_payload(std::size_t size) {
  std::string payload(size, '\0');
  for (std::size_t i = 0; i < size; ++i) payload[i] = static_cast<char>('!' + (i * 7 + i / 251) % 90);
  return payload;
}

/// Whether an answer is what was sent, cheaply enough for every call: its size and both ends.
inline bool payload_ok(std::string_view answer, std::string_view sent) {
  if (answer.size() != sent.size()) return false;
  return sent.empty() || (answer.front() == sent.front() && answer.back() == sent.back());
}

/// What one process measures.
struct measurement {
  std::atomic<bool> measuring{false};
  std::atomic<bool> stop{false};
  std::atomic<long> errors{0};
  std::mutex mutex;  // guards the list, not the histograms
  std::vector<std::unique_ptr<histogram>> histograms;

  // hold and idle
  std::uint64_t start_ns = 0;
  std::atomic<std::uint64_t> issued_ns{0};
  double own_cpu = 0;
  double server_cpu = 0;
  long own_memory = 0;
  long server_memory = 0;
  std::atomic<long> unfinished{0};
};

inline measurement& measured() {
  static auto* const one = new measurement;  // outlives the threads that still run when the process ends
  return *one;
}

inline histogram& histogram_of_this_thread() {
  thread_local histogram* const mine = [] {
    const std::lock_guard lock(measured().mutex);
    return measured().histograms.emplace_back(std::make_unique<histogram>()).get();
  }();
  return *mine;
}

/// A call that started at `start` has ended.
inline void record(std::uint64_t start, bool ok) {
  if (!ok) {
    measured().errors.fetch_add(1, std::memory_order_relaxed);
  } else if (measured().measuring.load(std::memory_order_relaxed)) {
    histogram_of_this_thread().add(now_ns() - start);
  }
}

inline bool stopping() { return measured().stop.load(std::memory_order_relaxed); }

inline void print_result(const arguments& args, double wall, double own_cpu, double server_cpu,
                         std::string_view more = {}) {
  histogram all;
  {
    const std::lock_guard lock(measured().mutex);
    for (const auto& each : measured().histograms) all.merge(*each);
  }
  const auto calls = static_cast<double>(all.count());
  const double rate = wall > 0 ? calls / wall : 0;
  const auto bytes = static_cast<double>(args.payload * (args.workload == "fanout" ? args.fanout : 1));
  fmt::print("RESULT peer={} workload={} payload={} conns={} inflight={} fanout={} attach={} api={} ",
             args.peer, args.workload, args.payload, args.conns, args.inflight, args.fanout,
             args.attach ? 1 : 0, args.api.empty() ? "-" : args.api);
  fmt::print("calls={} wall_s={:.4f} qps={:.1f} mean_us={:.2f} p50_us={:.2f} p90_us={:.2f} p99_us={:.2f} ",
             all.count(), wall, rate, all.mean_us(), all.percentile_us(.50), all.percentile_us(.90),
             all.percentile_us(.99));
  fmt::print(
      "p999_us={:.2f} max_us={:.2f} mbps={:.1f} cli_cpu_s={:.3f} srv_cpu_s={:.3f} cpu_us_per_call={:.3f} ",
      all.percentile_us(.999), all.max_us(), rate * bytes / 1e6, own_cpu, server_cpu,
      calls > 0 ? (own_cpu + server_cpu) * 1e6 / calls : 0.0);
  fmt::print("cli_peak_rss_kb={} srv_peak_rss_kb={} cli_threads={} srv_threads={} errors={}{}{}\n",
             status_of(0, "VmHWM"), status_of(args.server_pid, "VmHWM"), status_of(0, "Threads"),
             status_of(args.server_pid, "Threads"), measured().errors.load(), more.empty() ? "" : " ", more);
  std::fflush(stdout);
}

/// Measures what the loops do and ends the process, on a thread without work of its own. Tearing down is not
/// measured.
[[noreturn]] inline void measure_and_exit(const arguments& args) {
  nap(args.warmup);
  const double own = own_cpu_seconds();
  const double server = cpu_seconds_of(args.server_pid);
  const std::uint64_t start = now_ns();
  measured().measuring = true;
  nap(args.secs);
  measured().measuring = false;
  const std::uint64_t end = now_ns();
  print_result(args, static_cast<double>(end - start) / 1e9, own_cpu_seconds() - own,
               cpu_seconds_of(args.server_pid) - server);
  measured().stop = true;
  _exit(0);
}

namespace detail {

inline void note_start(const arguments& args) {
  auto& m = measured();
  m.own_memory = status_of(0, "VmRSS");
  m.server_memory = status_of(args.server_pid, "VmRSS");
  m.own_cpu = own_cpu_seconds();
  m.server_cpu = cpu_seconds_of(args.server_pid);
  m.start_ns = now_ns();
}

inline double ms_since_start(std::uint64_t until) {
  return static_cast<double>(until - measured().start_ns) / 1e6;
}

}  // namespace detail

/// Right before the held calls are issued.
inline void hold_begin(const arguments& args) {
  measured().unfinished = static_cast<long>(args.total);
  measured().measuring = true;
  detail::note_start(args);
}

inline void hold_issued() { measured().issued_ns = now_ns(); }

inline void hold_done(std::uint64_t start, bool ok) {
  record(start, ok);
  measured().unfinished.fetch_sub(1);
}

[[noreturn]] inline void hold_wait_and_exit(const arguments& args, double limit_seconds = 60) {
  auto& m = measured();
  std::uint64_t end = now_ns();
  while (m.unfinished > 0 && detail::ms_since_start(end) < limit_seconds * 1000) {
    nap(0.001);
    end = now_ns();
  }
  const auto total = static_cast<double>(args.total);
  const double complete_ms = detail::ms_since_start(end);
  const double issue_ms = m.issued_ns != 0 ? detail::ms_since_start(m.issued_ns) : 0;
  const auto more = fmt::format(
      "total={} unfinished={} complete_ms={:.1f} issue_ms={:.1f} cli_rss0_kb={} srv_rss0_kb={} "
      "cli_kb_per_call={:.3f} srv_kb_per_call={:.3f}",
      args.total, m.unfinished.load(), complete_ms, issue_ms, m.own_memory, m.server_memory,
      static_cast<double>(status_of(0, "VmHWM") - m.own_memory) / total,
      static_cast<double>(status_of(args.server_pid, "VmHWM") - m.server_memory) / total);
  print_result(args, complete_ms / 1000, own_cpu_seconds() - m.own_cpu,
               cpu_seconds_of(args.server_pid) - m.server_cpu, more);
  _exit(0);
}

/// Right before the idle connections are opened.
inline void idle_begin(const arguments& args) {
  nap(0.3);
  detail::note_start(args);
}

/// Once each of `conns` connections has carried a call.
[[noreturn]] inline void idle_end_and_exit(const arguments& args) {
  auto& m = measured();
  const double open_ms = detail::ms_since_start(now_ns());
  nap(1);
  const double own = own_cpu_seconds();
  const double server = cpu_seconds_of(args.server_pid);
  nap(2);
  const double own_idle = own_cpu_seconds() - own;
  const double server_idle = cpu_seconds_of(args.server_pid) - server;
  const long own_memory = status_of(0, "VmRSS");
  const long server_memory = status_of(args.server_pid, "VmRSS");
  const auto conns = static_cast<double>(args.conns);
  const auto more = fmt::format(
      "open_ms={:.1f} cli_rss0_kb={} cli_rss_kb={} srv_rss0_kb={} srv_rss_kb={} srv_fds={} "
      "cli_kb_per_conn={:.3f} srv_kb_per_conn={:.3f} idle_cli_cpu_s={:.3f} idle_srv_cpu_s={:.3f}",
      open_ms, m.own_memory, own_memory, m.server_memory, server_memory, open_files_of(args.server_pid),
      static_cast<double>(own_memory - m.own_memory) / conns,
      static_cast<double>(server_memory - m.server_memory) / conns, own_idle, server_idle);
  print_result(args, 2, own_idle, server_idle, more);
  _exit(0);
}

/// On a server, before it has any thread.
inline void block_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

[[noreturn]] inline void serve_until_term() {
  fmt::print("READY pid={}\n", getpid());
  std::fflush(stdout);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  int received = 0;
  sigwait(&set, &received);
  fmt::print("SERVER cpu_s={:.3f} peak_rss_kb={} threads={}\n", own_cpu_seconds(), status_of(0, "VmHWM"),
             status_of(0, "Threads"));
  std::fflush(stdout);
  _exit(0);
}

}  // namespace bench
