#include <braid/compression.hpp>

#include <algorithm>
#include <cstring>
#include <utility>

namespace braid {

// One byte more than the limit has room, so that a compressor that fills all of it is seen to go over it.
std::span<char> compression_output::prepare() {
  if (used_ == block_.capacity()) {
    finish_block();
    const std::size_t left = limit_ - std::min(limit_, done_.size());
    const std::size_t wanted = std::clamp(done_.size(), min_block, max_block);
    block_ = detail::block_ref{std::min(wanted, left) + 1};
  }
  return {block_.data() + used_, block_.capacity() - used_};
}

bool compression_output::commit(std::size_t n) noexcept {
  used_ += n;
  return !over_limit();
}

bool compression_output::write(std::string_view bytes) {
  while (!bytes.empty() && !over_limit()) {
    const std::span<char> room = prepare();
    const std::size_t n = std::min(room.size(), bytes.size());
    std::memcpy(room.data(), bytes.data(), n);
    used_ += n;
    bytes.remove_prefix(n);
  }
  return !over_limit();
}

bool compression_output::append(buffer&& bytes) {
  finish_block();
  done_.append(std::move(bytes));
  return !over_limit();
}

bool compression_output::expect(std::size_t n) noexcept {
  over_limit_ = over_limit_ || n > limit_;
  return !over_limit_;
}

buffer compression_output::take() {
  finish_block();
  return std::exchange(done_, buffer{});
}

void compression_output::finish_block() {
  if (used_ != 0) {
    const char* const data = block_.data();
    done_.append(buffer{std::move(block_), data, std::exchange(used_, 0)});
  }
  block_.reset();
}

}  // namespace braid
