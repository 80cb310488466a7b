#pragma once

#include "client/crossing_messages.hpp"
#include "client/landing.hpp"
#include "client/pending_table.hpp"
#include "client/route.hpp"
#include "core/loop.hpp"

#include <cstdint>
#include <memory>
#include <vector>

namespace braid::client {

class connection_table;

/// A loop's way to a connection that another loop has: requests go there and answers come back by post, those
/// of a turn together. Calls stay on their loop; here they wait, are read and end.
class crossing final : public route, private core::turn_end_hook {
 public:
  /// \param owner  the loop that has, or will have, the connection.
  crossing(core::loop& home, connection_table& table, const connection_settings& settings, core::loop& owner);
  ~crossing() override;

  void take(attempt& started) noexcept override;
  void forget(attempt& cancelled, cancel_cause cause) noexcept override;
  /// What was passed on may have left: only the other loop could tell.
  bool has_sent(const attempt& asked) const noexcept override;
  void shut_down() noexcept override;

 private:
  void at_turn_end() noexcept override { pass_on(); }
  void unused() noexcept override;
  void pass_on() noexcept;
  void receive(std::vector<crossing_answer> answers) noexcept;
  void end(crossing_answer& answer) noexcept;
  void read(attempt& waiting, const crossing_answer& answer) noexcept;
  void fail_all() noexcept;

  connection_table& table_;
  core::loop& owner_;
  const std::shared_ptr<crossing*> self_;  // what is posted finds null there once this is gone
  const std::shared_ptr<landing> far_end_;
  pending_table pending_;
  crossing_batch batch_;
  std::uint64_t taken_ = 0;   // requests so far, and
  std::uint64_t passed_ = 0;  // how many of them were passed on; the rest is in the batch
  bool landed_ = false;
};

}  // namespace braid::client
