#pragma once

#include <braid/authenticator.hpp>
#include <braid/error.hpp>
#include <braid/metadata.hpp>

#include "core/environment.hpp"
#include "net/outbound_queue.hpp"
#include "server/load.hpp"
#include "wire/control_frame.hpp"
#include "wire/frame.hpp"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace braid::server_side {

class connection;
class running_call;
struct method_entry;

/// baidu_std as a server speaks it: bytes to running calls, answers to bytes.
class baidu_std_session {
 public:
  baidu_std_session(connection& owner, net::outbound_queue& out);

  std::span<char> read_space() { return reader_.prepare(); }
  void commit(std::size_t size) noexcept { reader_.commit(size); }
  /// Takes the requests that arrived at that time, as long as the connection takes any. False: the client
  /// sent what no frame can be; the connection must be closed.
  bool take_requests(core::time_point arrived);
  std::string_view what_broke() const noexcept { return wire::to_string(reader_.error()); }
  /// Whether part of a frame has arrived and the rest is missing.
  bool mid_frame() const noexcept { return !ended_ && reader_.mid_frame(); }
  /// Whether the client's end of file means that it wants no more answers: it has said that it is one of
  /// ours. From any other it is a half-close.
  bool ends_with_client() const noexcept { return client_.takes_cancels(); }
  /// Bytes of frames that have arrived in part, or whole while the connection takes none.
  std::size_t bytes_buffered() const noexcept {
    return reader_.bytes_buffered() + (held_ ? held_->frame.header.body_size : 0);
  }
  /// How many frames were taken.
  std::uint64_t frames_taken() const noexcept { return frames_taken_; }
  /// Bytes of answers that wait to be sent. The announcement of our features, which goes before all of them,
  /// is none.
  std::size_t answers_waiting() const noexcept;
  /// No more bytes will come.
  void drop_incomplete() noexcept { ended_ = true; }

  /// The client's credential was accepted: takes the request that carried it.
  void admit(std::shared_ptr<const auth_context> who);
  /// It was refused: so are that request and all that have arrived.
  void refuse_client(std::string_view text);
  bool refuses() const noexcept { return admission_ == admission::refused; }
  /// Nobody will say whether the client may call: answers the request that waits for it.
  void give_up(const error_code& code, std::string_view text);

  void write_answer(running_call& finished);
  void write_error(std::int64_t id, const error_code& code, std::string_view text);

 private:
  void hear_first(const wire::rpc_meta& meta);
  bool may_pass(wire::frame_reader::status status, core::time_point arrived);
  void take(const wire::inbound_frame& frame, wire::frame_reader::status status, core::time_point arrived);
  void refuse_client(const wire::inbound_frame& request, std::string_view text);
  void request(const wire::inbound_frame& frame, core::time_point arrived);
  void control(const wire::rpc_meta& meta) noexcept;
  void refuse(std::int64_t id, crowded full, const method_entry* method);
  bool drop_what_finds_no_room();
  std::string no_room_for(std::size_t size) const;
  void too_large(const wire::inbound_frame& frame);
  bool may_answer(std::int64_t id, std::size_t meta_size, std::size_t body_size);
  void write_failure(running_call& finished);
  void begin_answer(std::int64_t id, std::int32_t code, const metadata::fields& fields);
  void write_meta();

  connection& owner_;
  net::outbound_queue& out_;
  wire::frame_reader reader_;
  wire::inbound_frame& frame_;  // the loop's, and used again, so that its fields keep their memory
  wire::rpc_meta& meta_;        // likewise, for answers
  wire::peer_features client_;

  /// Whether the client may call; decided once, by its first request.
  enum class admission : unsigned char { open, undecided, checking, refused };
  admission admission_;
  std::shared_ptr<const auth_context> who_;  // null: nobody asked
  /// The first request, while the client is checked. Nothing is read meanwhile, so its bytes stay in place.
  struct held_request {
    wire::inbound_frame frame{};
    wire::frame_reader::status status;
    core::time_point since;
  };
  std::unique_ptr<held_request> held_;
  std::uint64_t frames_taken_ = 0;
  std::uint64_t announced_ = 0;  // the bytes of our announcement, which are the first of the queue
  crowded why_dropped_ = crowded::no;
  bool ended_ = false;
};

}  // namespace braid::server_side
