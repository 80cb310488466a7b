#pragma once

#include "client/answer_sink.hpp"
#include "client/call.hpp"
#include "client/connection_settings.hpp"
#include "client/crossing_messages.hpp"
#include "core/loop.hpp"

#include <boost/intrusive/slist.hpp>
#include <boost/unordered/unordered_flat_map.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace braid::client {

class connection;
class landing;

/// What stands for a call of another loop where the connection is: it sends the request and takes the answer
/// unread.
class carried_call final : public boost::intrusive::slist_base_hook<>,
                           private call_listener,
                           private answer_sink,
                           private core::live_node {
 public:
  carried_call(landing& to, core::loop& home, crossing_request request);
  carried_call(const carried_call&) = delete;
  carried_call& operator=(const carried_call&) = delete;

  void start(connection& on) noexcept;
  /// Its caller does not wait any more.
  void forget(cancel_cause cause) noexcept;
  bool forgotten() const noexcept { return forgotten_; }
  crossing_answer& answer() noexcept { return answer_; }

 private:
  void on_settled(call&) noexcept override;
  void take_answer(const wire::inbound_frame& frame) override;
  void cancel_for_shutdown() noexcept override { call_.cancel(cancel_cause::shutdown); }
  std::string describe() const override;

  landing& landing_;
  controller control_;
  call call_;
  crossing_answer answer_;
  bool forgotten_ = false;
};

/// The far end of a crossing, on the loop that has the connection: runs what another loop's calls send, and
/// sends back, once a turn, what became of it.
///
/// Everything but the constructor and the count of bytes is for that loop; the loop's connection_table keeps
/// it.
class landing final : private core::turn_end_hook {
 public:
  /// Takes the answers of a turn to the other loop; may be called after that loop's end.
  using sender = std::function<void(std::vector<crossing_answer>)>;

  landing(core::loop& home, const connection_settings& settings, sender send_back)
      : home_(home), settings_(settings), send_back_(std::move(send_back)) {}
  landing(const landing&) = delete;
  landing& operator=(const landing&) = delete;
  ~landing();

  /// From the other loop: a batch of so many bytes will come.
  void expect(std::size_t bytes) noexcept { on_the_way_.fetch_add(bytes, std::memory_order_relaxed); }
  /// How many bytes are on the way to this loop, which may be held up; from any thread.
  std::size_t on_the_way() const noexcept { return on_the_way_.load(std::memory_order_relaxed); }

  void receive(crossing_batch batch) noexcept;
  /// The other end is gone: nothing more will come, and nothing is waited for.
  void leave() noexcept;

  void ended(carried_call& which) noexcept;

 private:
  void begin(crossing_request request) noexcept;
  void at_turn_end() noexcept override;
  void destroy_ended() noexcept;

  core::loop& home_;
  const connection_settings settings_;
  const sender send_back_;
  connection* connection_ = nullptr;
  boost::unordered_flat_map<std::uint64_t, carried_call*> running_;
  boost::intrusive::slist<carried_call> ended_;  // until the turn's end: they may be at work
  std::vector<crossing_answer> answers_;
  std::atomic<std::size_t> on_the_way_{0};
};

}  // namespace braid::client
