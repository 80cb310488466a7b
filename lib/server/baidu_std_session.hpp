#pragma once

#include <braid/error.hpp>

#include "core/environment.hpp"
#include "net/outbound_queue.hpp"
#include "wire/control_frame.hpp"
#include "wire/frame.hpp"

#include <cstdint>
#include <span>
#include <string_view>

namespace braid::server_side {

class connection;
class running_call;

/// baidu_std as a server speaks it: bytes to running calls, answers to bytes.
class baidu_std_session {
 public:
  baidu_std_session(connection& owner, net::outbound_queue& out);

  std::span<char> read_space() { return reader_.prepare(); }
  void commit(std::size_t size) noexcept { reader_.commit(size); }
  /// Takes the requests that have arrived, as long as the connection takes any. False: the client sent what
  /// no frame can be; the connection must be closed.
  bool take_requests();
  std::string_view what_broke() const noexcept { return wire::to_string(reader_.error()); }
  /// Whether part of a frame has arrived and the rest is missing.
  bool mid_frame() const noexcept { return !ended_ && reader_.mid_frame(); }
  /// Whether the client's end of file means that it wants no more answers: it has said that it is one of
  /// ours. From any other it is a half-close.
  bool ends_with_client() const noexcept { return client_.takes_cancels(); }
  /// No more bytes will come.
  void drop_incomplete() noexcept { ended_ = true; }

  void write_answer(running_call& finished);
  void write_error(std::int64_t id, const error_code& code, std::string_view text);

 private:
  void hear_first(const wire::rpc_meta& meta);
  void request(const wire::inbound_frame& frame, core::time_point now);
  void control(const wire::rpc_meta& meta) noexcept;
  void too_large(const wire::inbound_frame& frame);

  connection& owner_;
  net::outbound_queue& out_;
  wire::frame_reader reader_;
  wire::inbound_frame frame_;  // reused, so that its fields keep their memory
  wire::rpc_meta meta_;        // likewise, for answers
  wire::peer_features client_;
  bool ended_ = false;
};

}  // namespace braid::server_side
