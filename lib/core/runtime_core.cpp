#include "core/runtime_core.hpp"

#include <boost/system/system_error.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <sched.h>

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <random>

namespace braid::core {
namespace {

constexpr auto report_interval = std::chrono::seconds(1);

std::size_t usable_processors() noexcept {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  const int count = CPU_COUNT(&set);
  return count > 0 ? static_cast<std::size_t>(count) : 1;
}

void check_for_lent(const runtime_options& options, const environment& outside) {
  const boost::system::error_code invalid(EINVAL, boost::system::system_category());
  if (options.loops > 1) {
    throw boost::system::system_error(
        invalid,
        fmt::format("a runtime on a lent io_context has one loop, options.loops is {}", options.loops));
  }
  if (outside.driver)
    throw boost::system::system_error(invalid, "a lent io_context cannot be driven by a simulation");
}

std::uint64_t system_seed() {
  std::random_device device;
  return (std::uint64_t{device()} << 32) | device();
}

}  // namespace

runtime_core::runtime_core(runtime_options options, boost::asio::io_context* lent)
    : options_(std::move(options)),
      environment_(options_.environment ? *options_.environment : environment{}),
      log_(options_.log ? options_.log : log_sink(stderr_log_sink), options_.log_at_least),
      seed_(options_.seed != 0 ? options_.seed : system_seed()),
      compressors_(options_.compressors),
      lent_(lent != nullptr) {
  if (lent) {
    check_for_lent(options_, environment_);
    loops_.push_back(std::make_unique<loop>(*this, 0, lent));
    return;
  }
  const std::size_t count = options_.loops != 0 ? options_.loops : usable_processors();
  loops_.reserve(count);
  for (std::size_t i = 0; i < count; ++i) loops_.push_back(std::make_unique<loop>(*this, i));
  if (environment_.driver) {
    for (auto& each : loops_) environment_.driver->add(*each);
  } else {
    run_loops();
  }
}

void runtime_core::run_loops() {
  try {
    threads_.reserve(loops_.size());
    for (auto& each : loops_) threads_.emplace_back([&each = *each] { each.run_thread(); });
  } catch (...) {  // no more threads could be had
    for (auto& each : loops_) each->end_run();
    for (auto& thread : threads_) thread.join();
    throw;
  }
}

runtime_core::~runtime_core() = default;

loop* runtime_core::current() noexcept {
  loop* const here = loop::current();
  return here && &here->owner() == this ? here : nullptr;
}

loop& runtime_core::home() noexcept {
  if (loop* const here = current()) return *here;
  if (loops_.size() == 1) return *loops_.front();
  return *loops_[std::hash<std::thread::id>{}(std::this_thread::get_id()) % loops_.size()];
}

void runtime_core::begin_stop() noexcept {
  if (stop_begun_.exchange(true)) return;
  for (auto& each : loops_) each->post([&each = *each] { each.begin_shutdown(); });
}

void runtime_core::finish() noexcept {
  if (lent_) {
    note_stop();
    loops_.front()->release_loan(shared_from_this());
    return;
  }
  if (current()) {
    std::fputs("braid: a runtime must not be destroyed on one of its own loops\n", stderr);
    std::abort();
  }
  begin_stop();
  if (environment_.driver) {
    close_driven_loops();
  } else {
    close_loops();
  }
  for (auto& each : loops_) each->drop_handlers();
}

// No loop is closed before all have come to rest: what still lives on one may need another.
void runtime_core::close_loops() noexcept {
  next_report_ = clock::now() + report_interval;
  for (bool at_rest = false; !at_rest;) {
    at_rest = true;
    for (auto& each : loops_) at_rest = wait_for(*each, &loop::quiescent) && at_rest;
  }
  for (auto& each : loops_) wait_for(*each, &loop::close_if_quiescent);
  for (auto& each : loops_) each->end_run();
  for (auto& thread : threads_) thread.join();
}

void runtime_core::close_driven_loops() noexcept {
  const auto closed = [this] {
    return std::ranges::all_of(loops_, [](auto& each) { return each->quiescent(); }) &&
           std::ranges::all_of(loops_, [](auto& each) { return each->close_if_quiescent(); });
  };
  while (!loops_.front()->surviving([&] { environment_.driver->drive_until(closed); }))
    ;
  for (auto& each : loops_) environment_.driver->remove(*each);
  // What another loop had posted before the end still runs, as it does where loops have threads.
  loop* const outer = loop::current();
  for (auto& each : loops_) {
    each->enter();
    each->drain();
    each->leave();
  }
  if (outer) outer->enter();
}

// Returns whether the first answer was yes.
bool runtime_core::wait_for(loop& stopping, question wanted) noexcept {
  using namespace std::chrono_literals;
  if (ask(stopping, wanted)) return true;
  auto pause = 1ms;
  do {
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::milliseconds(50));
  } while (!ask(stopping, wanted));
  return false;
}

bool runtime_core::ask(loop& stopping, question wanted) noexcept {
  struct {
    std::mutex mutex;
    std::condition_variable changed;
    bool known = false;
    bool yes = false;
  } answer;
  const bool report = report_is_due();
  stopping.post([&] {
    if (report) name_live(stopping);
    stopping.after_turn([&] {
      const bool yes = (stopping.*wanted)();
      const std::lock_guard lock(answer.mutex);
      answer.known = true;
      answer.yes = yes;
      answer.changed.notify_one();
    });
  });
  std::unique_lock lock(answer.mutex);
  while (!answer.changed.wait_until(lock, next_report_, [&] { return answer.known; })) {
    if (report_is_due()) {
      log_.log(log_level::warning,
               fmt::format("stopping loop {} does not answer: something blocks its thread", stopping.index()),
               {});
    }
  }
  return answer.yes;
}

void runtime_core::warn_of_unguarded_stacks() noexcept {
  if (warned_of_stacks_.exchange(true)) return;
  log_.log(log_level::warning,
           "coroutines run on stacks without a guard page from now on: one that overruns its stack corrupts "
           "memory instead of ending the process (before Linux 6.13 each guard costs mappings, of which a "
           "process has only vm.max_map_count)",
           {});
}

bool runtime_core::report_is_due() noexcept {
  const auto now = clock::now();
  if (now < next_report_) return false;
  next_report_ = now + report_interval;
  return true;
}

void runtime_core::name_live(loop& stopping) noexcept {
  std::vector<std::string> names;
  stopping.describe_live(names);
  const std::size_t count = names.size();
  if (count == 0) names.emplace_back("connections that are still open");
  if (names.size() > 10) names.resize(10);
  log_.log(log_level::warning,
           fmt::format("stopping loop {} waits for {} calls and coroutines: {}", stopping.index(), count,
                       fmt::join(names, ", ")),
           {});
}

}  // namespace braid::core
