#pragma once

#include "client/client_session.hpp"
#include "client/kept_cancels.hpp"
#include "client/pending_table.hpp"
#include "core/loop.hpp"
#include "wire/control_frame.hpp"
#include "wire/frame.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace braid::client {

class connection_table;

/// baidu_std as a client speaks it.
class baidu_std_session final : public client_session {
 public:
  baidu_std_session(core::loop& home, net::outbound_queue& out, std::size_t max_body_size,
                    connection_table& table);

  void set_credential(std::string credential) override { credential_ = std::move(credential); }
  void start(attempt& started) override;
  void forget(attempt& cancelled, cancel_cause cause) noexcept override;
  void fail(const error_code& why, std::string_view text) noexcept override;

  std::span<char> read_space() override { return reader_.prepare(); }
  session_failure on_read(std::size_t size) override;
  bool mid_answer() const noexcept override { return reader_.mid_frame(); }
  std::uint64_t answers_read() const noexcept override { return answers_read_; }

  /// Reads an answer into its call and finishes the attempt. Also for answers that came on another loop.
  static void deliver(attempt& waiting, const wire::inbound_frame& frame, std::size_t max_body_size);

 private:
  static void read_answer(attempt& waiting, const wire::inbound_frame& frame, std::size_t max_body_size);
  void introduce() noexcept;
  void introduced(std::uint64_t id) noexcept;
  session_failure take_answers();
  void hear_first(const wire::rpc_meta& meta);
  void answered(const wire::inbound_frame& frame, core::time_point now);
  void refuse(attempt& started, std::size_t body_size, std::size_t meta_size) noexcept;
  void too_large(const wire::inbound_frame& frame);

  core::loop& home_;
  net::outbound_queue& out_;
  const std::size_t max_body_size_;
  connection_table& table_;
  wire::frame_reader reader_;
  wire::inbound_frame& frame_;  // the loop's, and used again, so that its fields keep their memory
  wire::rpc_meta& meta_;        // likewise, for requests
  pending_table pending_;
  wire::peer_features server_;
  kept_cancels kept_;
  std::uint64_t answers_read_ = 0;
  bool announced_ = false;  // a request has gone, and with the first one our features and credential
  std::optional<std::string> credential_;  // until it was sent
  std::uint64_t credential_id_ = 0;        // of the request that carried it
  bool refused_ = false;  // the server refuses the credential, and has answered nothing else since
};

}  // namespace braid::client
