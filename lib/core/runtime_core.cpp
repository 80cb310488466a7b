#include "core/runtime_core.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <sched.h>

#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>

namespace braid::core {
namespace {

std::size_t usable_processors() noexcept {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  const int count = CPU_COUNT(&set);
  return count > 0 ? static_cast<std::size_t>(count) : 1;
}

std::uint64_t system_seed() {
  std::random_device device;
  return (std::uint64_t{device()} << 32) | device();
}

}  // namespace

runtime_core::runtime_core(runtime_options options)
    : options_(std::move(options)),
      environment_(options_.environment ? *options_.environment : environment{}),
      log_(options_.log ? options_.log : log_sink(stderr_log_sink), options_.log_at_least),
      seed_(options_.seed != 0 ? options_.seed : system_seed()) {
  const std::size_t count = options_.loops != 0 ? options_.loops : usable_processors();
  loops_.reserve(count);
  for (std::size_t i = 0; i < count; ++i) loops_.push_back(std::make_unique<loop>(*this, i));
  for (auto& each : loops_) {
    if (environment_.driver) {
      environment_.driver->add(*each);
    } else {
      threads_.emplace_back([&each = *each] { each.run_thread(); });
    }
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
  if (current()) {
    std::fputs("braid: a runtime must not be destroyed on one of its own loops\n", stderr);
    std::abort();
  }
  begin_stop();
  for (auto& each : loops_) wait_for(*each);
  for (auto& thread : threads_) thread.join();
  if (environment_.driver) {
    for (auto& each : loops_) environment_.driver->remove(*each);
  }
}

// The loops are closed one after the other. What a loop that is still open posts to a closed one is refused there.
void runtime_core::wait_for(loop& stopping) noexcept {
  if (environment_.driver) {
    environment_.driver->drive_until([&] { return stopping.close_if_quiescent(); });
    return;
  }
  struct progress {
    std::mutex mutex;
    std::condition_variable changed;
    bool asked = false;
    bool closed = false;
  } state;
  using namespace std::chrono_literals;
  auto next_report = std::chrono::steady_clock::now() + 1s;
  auto pause = 1ms;
  for (;;) {
    const bool report = std::chrono::steady_clock::now() >= next_report;
    if (report) next_report += 1s;
    state.asked = false;
    stopping.post([&] {
      if (report) name_live(stopping);
      stopping.after_turn([&] {
        const bool closed = stopping.close_if_quiescent();
        if (closed) stopping.end_run();
        const std::lock_guard lock(state.mutex);
        state.asked = true;
        state.closed = closed;
        state.changed.notify_one();
      });
    });
    std::unique_lock lock(state.mutex);
    state.changed.wait(lock, [&] { return state.asked; });
    if (state.closed) return;
    lock.unlock();
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::milliseconds(50));
  }
}

void runtime_core::name_live(loop& stopping) noexcept {
  std::vector<std::string> names;
  stopping.describe_live(names);
  const std::size_t count = names.size();
  if (names.size() > 10) names.resize(10);
  log_.log(log_level::warning,
           fmt::format("stopping loop {} waits for {}: {}", stopping.index(), count, fmt::join(names, ", ")), {});
}

}  // namespace braid::core
