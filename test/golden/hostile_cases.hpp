#pragma once

#include "golden/golden_frames.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace golden {

/// Something to throw at a peer.
struct hostile_case {
  std::string_view name;  ///< Of the recorded frame.
  char kind = 0;          ///< 't' truncated, 'v' a byte's value, 'l' lengths, 'a' attachment_size
  std::size_t at = 0;
  unsigned value = 0;
  std::string bytes;

  std::string describe() const;
};

/// How a sound frame is spoilt.
enum class spoiling {
  truncations,  ///< Each frame cut before each of its bytes.
  values,       ///< Each byte of each frame with each value.
  lengths       ///< Each frame with many pairs of lengths in its header, and with many attachment sizes.
};

/// A sequence of cases that are made one at a time.
class hostile_table {
 public:
  /// \param frames the recorded chunks to spoil, all of one direction. They must outlive the table.
  explicit hostile_table(std::vector<const chunk*> frames);

  /// The chunks of one direction of a recording.
  static hostile_table of(const std::vector<chunk>& recording, bool to_server);

  std::size_t size(spoiling how) const;

  /// The n-th case. `rewrite` is applied to the sound frame first.
  using rewriter = std::function<std::string(const chunk&)>;
  hostile_case make(spoiling how, std::size_t n, const rewriter& rewrite = {}) const;

 private:
  hostile_case truncation(std::size_t n, const rewriter& rewrite) const;
  hostile_case value(std::size_t n, const rewriter& rewrite) const;
  hostile_case length(std::size_t n, const rewriter& rewrite) const;
  const chunk& frame_at(std::size_t& position) const;

  std::vector<const chunk*> frames_;
  std::size_t bytes_ = 0;  // of all frames
};

/// Frames as this library sends them beside those of the recording: with the cancel extension.
std::vector<chunk> extension_frames();

/// The recorded answer with another correlation id.
std::string with_id(std::string_view frame, std::int64_t id);

}  // namespace golden
