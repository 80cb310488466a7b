// A server of one loop with a handler that computes for long, and a quick one. It runs twice: with the heavy
// handler on the loop, where it holds up the quick one, and on a thread_pool, where it does not.

#include <braid/channel.hpp>
#include <braid/controller.hpp>
#include <braid/runtime.hpp>
#include <braid/server.hpp>

#include "primes.pb.h"

#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_future.hpp>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <future>
#include <string>

namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

bool is_prime(std::int64_t n) {
  for (std::int64_t divisor = 2; divisor * divisor <= n; ++divisor)
    if (n % divisor == 0) return false;
  return n > 1;
}

// The heavy handler: a plain function, which may run anywhere.
void count(braid::server_call& call, const primes::CountRequest& request, primes::CountResponse& response) {
  const auto end = steady_clock::now() + std::chrono::milliseconds(request.milliseconds());
  std::int64_t found = 0;
  for (std::int64_t n = 0; steady_clock::now() < end && !call.IsCanceled(); ++n) found += is_prime(n) ? 1 : 0;
  response.set_primes(found);
}

void ping(braid::server_call&, const primes::PingRequest&, primes::PingResponse&) {}

struct measured {
  int pings = 0;  // answered while the heavy call ran
  double slowest_ms = 0;
  std::int64_t primes = 0;
};

// One heavy call, and quick ones until it has ended.
measured measure(const braid::placement& where, int milliseconds) {
  braid::runtime server_side({.loops = 1});
  braid::server server(server_side);
  server.handle(&primes::PrimeService::Count, count, {.run_on = where});
  server.handle(&primes::PrimeService::Ping, ping);
  server.start("127.0.0.1:0");

  braid::runtime client_side({.loops = 1});
  braid::channel channel(client_side);
  channel.init("127.0.0.1:" + std::to_string(server.port()), {.timeout = -1ns, .connect_timeout = 10s});
  const auto& heavy = braid::describe_method(&primes::PrimeService::Count);
  const auto& quick = braid::describe_method(&primes::PrimeService::Ping);

  primes::CountRequest request;
  primes::CountResponse response;
  request.set_milliseconds(milliseconds);
  auto counted = channel.async_call(heavy, request, response, boost::asio::use_future);

  measured result;
  while (true) {
    primes::PingRequest hello;
    primes::PingResponse back;
    braid::controller control;
    channel.call(quick, control, hello, back);
    result.slowest_ms =
        std::max(result.slowest_ms, std::chrono::duration<double, std::milli>(control.latency()).count());
    if (counted.wait_for(0s) == std::future_status::ready) break;
    ++result.pings;
  }
  counted.get();
  result.primes = response.primes();
  return result;
}

void print(const std::string& where, const measured& result) {
  fmt::print("{}: {} primes found; {} pings answered meanwhile, the slowest ping took {:.1f} ms\n", where,
             result.primes, result.pings, result.slowest_ms);
  std::fflush(stdout);
}

int run(int milliseconds) {
  print("heavy handler on the loop", measure(braid::placement::reading_loop(), milliseconds));
  boost::asio::thread_pool pool(1);
  const measured apart = measure(pool, milliseconds);
  print("heavy handler on a pool  ", apart);
  return apart.pings != 0 && apart.primes != 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  int milliseconds = 500;
  CLI::App app(
      "Shows that a CPU-heavy handler on a thread_pool does not hold up the other calls of its server.");
  app.add_option("-m,--milliseconds", milliseconds, "how long the heavy handler computes")
      ->check(CLI::Range(1, 60'000))
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  try {
    return run(milliseconds);
  } catch (const std::exception& error) {
    fmt::print(stderr, "offload: {}\n", error.what());
    return 1;
  }
}
