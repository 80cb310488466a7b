#pragma once

#include <braid/cancellation.hpp>
#include <braid/outcome.hpp>

#include "client/call.hpp"

#include <boost/intrusive/list.hpp>

#include <cstdint>
#include <string_view>

namespace braid::client {

class route;

/// One sending of a call's request to one server: waits for the connection, is sent, gets its answer.
class attempt final
    : public cancel_node,
      public boost::intrusive::list_base_hook<boost::intrusive::link_mode<boost::intrusive::auto_unlink>> {
 public:
  /// Begins the attempt; it deletes itself when it settles `of`.
  static void start(call& of, route& by) noexcept;

  call& owner() const noexcept { return owner_; }

  /// Ends the attempt and with it the call. Deletes this.
  void finish(const outcome& result, std::string_view text = {}) noexcept;

  // For the session that has sent it.
  bool sent() const noexcept { return sent_; }
  std::uint64_t session_id() const noexcept { return session_id_; }
  void mark_sent(std::uint64_t session_id) noexcept {
    sent_ = true;
    session_id_ = session_id;
  }
  /// It never left this process.
  void mark_unsent() noexcept { sent_ = false; }

  // For its route: where in the stream of bytes the request begins, once sent; what it holds while waiting.
  std::uint64_t position() const noexcept { return position_; }
  void set_position(std::uint64_t position) noexcept { position_ = position; }
  std::size_t held_bytes() const noexcept { return held_bytes_; }
  void set_held_bytes(std::size_t held) noexcept { held_bytes_ = held; }

  /// Whether a byte of the request was handed to the transport.
  bool anything_sent() const noexcept override;

 private:
  attempt(call& of, route& by) noexcept;
  ~attempt() override = default;
  void on_cancel(cancel_cause cause) noexcept override;
  void leave() noexcept;

  call& owner_;
  route& route_;
  std::uint64_t session_id_ = 0;
  std::uint64_t position_ = 0;
  std::size_t held_bytes_ = 0;
  bool sent_ = false;
};

}  // namespace braid::client
