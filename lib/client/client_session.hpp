#pragma once

#include <braid/cancellation.hpp>
#include <braid/error.hpp>

#include "client/attempt.hpp"
#include "net/outbound_queue.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace braid::client {

/// Why a session cannot go on; no code: it can.
struct session_failure {
  error_code code;
  std::string text;
};

/// A protocol, as a client speaks it on one connection: requests to bytes, bytes to answers.
class client_session {
 public:
  virtual ~client_session() = default;

  /// What the first request shall carry; before it is started.
  virtual void set_credential(std::string credential) = 0;
  /// Writes the attempt's request and waits for its answer, or finishes it with an error.
  virtual void start(attempt& started) = 0;
  /// The attempt is cancelled: its answer, if it still comes, is dropped, and the server is told where the
  /// protocol can.
  virtual void forget(attempt& cancelled, cancel_cause cause) noexcept = 0;
  /// Finishes everything that waits for an answer.
  virtual void fail(const error_code& why, std::string_view text) noexcept = 0;

  virtual std::span<char> read_space() = 0;
  virtual session_failure on_read(std::size_t size) = 0;
  /// Whether part of an answer has arrived and the rest is missing.
  virtual bool mid_answer() const noexcept = 0;
  /// How many answers, awaited or not, have arrived whole.
  virtual std::uint64_t answers_read() const noexcept = 0;
};

}  // namespace braid::client
