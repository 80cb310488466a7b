#pragma once

#include <braid/testing/simulation.hpp>

#include "core/loop.hpp"
#include "net/transport.hpp"

#include <array>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

namespace braid::net {

class memory_end;

/// A connection in memory: what is on the way to each end, and the faults that befall it.
///
/// Each end is used on its own loop; the lock is for what they share.
class memory_link {
 public:
  enum side : std::size_t { client, server };

  /// A random time from 0 to the one given.
  using jitter_source = std::function<std::chrono::nanoseconds(std::chrono::nanoseconds)>;

  memory_link(const endpoint& client_at, const endpoint& server_at, const testing::link_faults& faults,
              jitter_source jitter);

  static side other(side which) noexcept { return which == client ? server : client; }

  void set(const testing::link_faults& faults);
  /// Breaks both ends, which are told why; what is on the way is lost.
  void break_now(const error_code& why);
  /// Why it broke, if it did.
  error_code why_broken() const;
  bool open() const;
  /// When something sent now arrives.
  core::time_point arrival(core::time_point now) const;
  const endpoint& address(side which) const noexcept { return addresses_[which]; }

  // For the ends. `now` is the time of the caller's loop.
  void attach(side which, memory_end& end);
  std::size_t write(side from, std::span<const iovec> pieces, core::time_point now, error_code& ec);
  void shutdown(side from, core::time_point now);
  /// The end is gone, or never came to be. With unread bytes a close becomes a reset, as with tcp.
  void close(side which, bool reset, core::time_point now);

  /// What an end may do next.
  enum class next { nothing, wait, data, end, broken };
  /// \param until  set where the answer is wait.
  next peek(side which, core::time_point now, core::time_point& until);
  /// Moves bytes that have arrived to `space`.
  std::size_t read(side which, std::span<char> space, core::time_point now);
  /// Takes the end or the reset that peek() told of.
  void pop(side which);
  /// Whether a writer that was short of room may go on; asked once for each time.
  bool take_writable(side which);

 private:
  enum class kind { data, end, reset };
  struct piece {
    kind what;
    std::string bytes;
    core::time_point due;
    std::size_t taken = 0;
  };
  struct direction {  // towards an end
    std::deque<piece> pieces;
    std::size_t occupied = 0;  // bytes of the window in use
    std::uint64_t total = 0;   // bytes ever written
    core::time_point last_due{};
    bool ended = false;  // its writer has sent the end, or a reset
    bool writer_waits = false;
    bool writer_may_go_on = false;
  };
  struct end_state {
    memory_end* end = nullptr;
    bool gone = false;
  };

  core::time_point delayed(core::time_point now) const;
  const testing::cut_point& cut(side to) const noexcept {
    return to == server ? faults_.to_server : faults_.to_client;
  }
  bool silenced(side to) const noexcept;
  void push(side to, kind what, std::string bytes, core::time_point now);
  void pass(side to, std::string bytes, core::time_point now);
  void finish(side to, kind how, core::time_point now);
  void notify(side which);

  mutable std::mutex mutex_;
  const std::array<endpoint, 2> addresses_;
  testing::link_faults faults_;
  error_code why_broken_;  // unless it was a reset by one of the ends, or by a cut
  const jitter_source jitter_;
  std::array<direction, 2> towards_;
  std::array<end_state, 2> ends_;
};

/// One end of a memory_link, on its loop.
class memory_end final : public transport {
 public:
  memory_end(core::loop& home, std::shared_ptr<memory_link> link, memory_link::side which);
  ~memory_end() override { close(false); }

  void start(transport_events& events) override;
  void pause_reading() override { paused_ = true; }
  void resume_reading() override;
  std::size_t write_some(std::span<const iovec> pieces, error_code& ec) override;
  void shutdown_send() override;
  void close(bool reset) noexcept override;
  const endpoint& remote() const noexcept override { return link_->address(memory_link::other(which_)); }
  const endpoint& local() const noexcept override { return link_->address(which_); }

  /// Has the loop look what there is to do. Any thread, while this end is attached.
  void nudge();

 private:
  struct arrival_timer : core::timer_node {
    explicit arrival_timer(memory_end* owner) noexcept
        : timer_node([](timer_node& node) { static_cast<arrival_timer&>(node).owner->advance(); }),
          owner(owner) {}
    memory_end* owner;
  };

  void advance();
  void receive();
  void read();

  core::loop& home_;
  const std::shared_ptr<memory_link> link_;
  const memory_link::side which_;
  const std::shared_ptr<memory_end*> self_;  // what is posted finds null there once this end is gone
  arrival_timer arrival_;
  transport_events* events_ = nullptr;
  bool closed_ = false;
  bool paused_ = false;
  bool broken_ = false;  // a reset has arrived
  bool read_ended_ = false;
  bool send_ended_ = false;
};

}  // namespace braid::net
