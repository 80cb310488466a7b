#pragma once

/// \file
/// Runs whole runtimes in one thread, in virtual time, over a simulated network: the same seed, the same run.

#include <braid/config.hpp>
#include <braid/endpoint.hpp>
#include <braid/error.hpp>
#include <braid/runtime.hpp>

#include <boost/asio/error.hpp>
#include <boost/asio/ip/address.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace braid::testing {

/// Where one direction of a connection ends.
struct cut_point {
  /// What a cut does.
  enum class kind {
    reset,    ///< both ends see a reset, after the bytes before the cut
    silence,  ///< later bytes vanish, and nobody is told
  };

  /// How many bytes pass, counted from the start of the connection. Default: all.
  std::uint64_t after = std::numeric_limits<std::uint64_t>::max();
  /// What happens after them.
  kind how = kind::reset;
};

/// What a simulated network does to connections. All defaults together are a perfect network.
struct link_faults {
  /// Attempts to connect fail with connection_refused.
  bool refuse = false;
  /// Attempts to connect never end.
  bool black_hole = false;
  /// Nothing is read by either end: windows fill up and writers wait. Bytes are kept.
  bool stalled = false;

  /// Time on the way, for each direction. Rounded up to the loops' timer tick, 1 ms.
  std::chrono::nanoseconds latency{0};
  /// Random time added to it for each write, from 0 to this; the order of bytes stays.
  std::chrono::nanoseconds jitter{0};

  /// Most bytes that one read gets; 0: as many as there are.
  std::size_t max_delivery = 0;
  /// Bytes that may be on the way in each direction before a writer must wait; at least 1.
  std::size_t window = 256 * 1024;

  /// Where the bytes of the client end.
  cut_point to_server{};
  /// Where the bytes of the server end.
  cut_point to_client{};
};

/// The faults of a simulated network.
///
/// Thread safety: safe, where the loops on the network are threads; in a simulation there is one thread.
class network_faults {
 public:
  virtual ~network_faults() = default;

  /// Sets the faults of everything that has none of its own, now and later.
  virtual void set_default(const link_faults& faults) = 0;
  /// Sets the faults of connections to `server`, also of those that exist.
  virtual void set(const endpoint& server, const link_faults& faults) = 0;
  /// Called at each attempt to connect with the server, the number of earlier attempts to reach it, and the
  /// faults set for it; what it returns holds for this connection until the next set(). Null: none.
  using chooser =
      std::function<link_faults(const endpoint& server, std::size_t nth, const link_faults& faults)>;
  /// Sets the chooser.
  virtual void choose_with(chooser function) = 0;
  /// Breaks every connection to `server` now; bytes on the way are lost. `why` is what both ends are told:
  /// a reset, or errc::timed_out of the system, as keepalive and the user timeout of tcp have it.
  virtual void break_connections(const endpoint& server, const error_code& why) = 0;
  /// The same by a reset.
  void break_connections(const endpoint& server) {
    break_connections(server, boost::asio::error::connection_reset);
  }
  /// How many connections to `server` have an open end.
  virtual std::size_t connections(const endpoint& server) const = 0;
  /// How many attempts to connect to `server` there have been.
  virtual std::size_t attempts(const endpoint& server) const = 0;
};

/// One line of a simulation's trace.
struct trace_entry {
  std::chrono::nanoseconds at;  ///< Virtual time since the start of the simulation.
  /// Where it happened: a name of the test's.
  std::string node;
  /// What happened: a number of the test's.
  std::int64_t code;

  /// Equal in all three.
  friend bool operator==(const trace_entry&, const trace_entry&) = default;
};

/// What happened in a simulation, as far as the test recorded it.
class trace {
 public:
  /// Adds an entry at the end.
  void add(trace_entry entry) { entries_.push_back(std::move(entry)); }
  /// All entries, in the order in which they were added.
  const std::vector<trace_entry>& entries() const noexcept { return entries_; }
  /// A hash (FNV-1a) over all entries in order; the same on every machine.
  std::uint64_t hash() const noexcept;

 private:
  std::vector<trace_entry> entries_;
};

/// In what order the loops that have something to do run.
enum class loop_order {
  fixed,     ///< in the order in which the runtimes were made
  shuffled,  ///< in a new order from the seed for each round
};

/// Drives runtimes in the calling thread.
///
/// What it does: a runtime made with node_options() has no thread. Its loop runs inside run_for(),
/// run_until() and run_until_idle(), and while the runtime is destroyed. When no loop has anything left to
/// run, the clock jumps to the next timer. Connections go through a network in memory, names through a table.
///
/// Object lifetimes: runtimes may outlive the simulation object.
///
/// Thread safety: none; the simulation and all of its runtimes are for one thread.
class simulation {
 public:
  /// The clock of braid's timers, standing still while code runs.
  using time_point = std::chrono::steady_clock::time_point;
  /// Virtual time.
  using duration = std::chrono::nanoseconds;

  /// \param seed   decides every random choice: orders, jitter, and the seeds that node_options() gives.
  /// \param order  see loop_order.
  explicit simulation(std::uint64_t seed, loop_order order = loop_order::shuffled);
  simulation(const simulation&) = delete;
  simulation& operator=(const simulation&) = delete;
  ~simulation();

  /// The options of a simulated process: one loop, a seed of its own, this simulation's environment.
  runtime_options node_options();
  /// The environment alone. A runtime that uses it should also set its seed.
  const std::shared_ptr<core::environment>& environment() const noexcept;

  /// The faults of its network. Valid as long as the simulation.
  network_faults& network() noexcept;
  /// Says what a host name resolves to; with no addresses it is not found.
  void set_host(const std::string& name, std::vector<boost::asio::ip::address> addresses);

  /// The virtual instant.
  time_point now() const noexcept;
  /// Virtual time since the start.
  duration elapsed() const noexcept;

  /// Runs for `length` of virtual time, and at its end what is due then.
  void run_for(duration length);
  /// Runs until `done` returns true; it is asked before anything runs and after each round. False: nothing is
  /// left that could run, or virtual time `within` has passed.
  bool run_until(const std::function<bool()>& done, duration within = std::chrono::hours(24));
  /// Runs until nothing is left to run and no timer is armed. False: virtual time `within` has passed first.
  bool run_until_idle(duration within = std::chrono::hours(24));

  /// Adds an entry at the current instant to the trace.
  void record(std::string_view node, std::int64_t code);
  /// What was recorded so far.
  const testing::trace& trace() const noexcept;

 private:
  class driver;
  std::shared_ptr<driver> driver_;
  std::shared_ptr<core::environment> environment_;
};

}  // namespace braid::testing
