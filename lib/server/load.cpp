#include "server/load.hpp"

namespace braid::server_side {

crowded connection_load::room_for(std::size_t size, std::size_t own) const noexcept {
  const auto fits = [size](std::size_t held, std::size_t limit) {
    return limit == 0 || held == 0 || (held <= limit && size <= limit - held);
  };
  const std::size_t here = handled_ + unsent_ - own;
  if (!fits(here, most_bytes_)) return crowded::connection_bytes;
  const std::size_t elsewhere = all_->held() - told_;
  return fits(here + elsewhere, all_->limit()) ? crowded::no : crowded::server_bytes;
}

void connection_load::tell(std::size_t now) noexcept {
  if (all_->limit() == 0) return;
  const std::size_t telling = now / step * step;
  if (telling > told_) all_->add(telling - told_);
  if (telling < told_) all_->remove(told_ - telling);
  told_ = telling;
}

call_place::~call_place() {
  if (server_) server_->leave();
  if (method_) method_->leave();
  if (load_) load_->call_over(size_);
}

crowded call_place::take(concurrency_limit& of_server, concurrency_limit* of_method, connection_load& load,
                         std::size_t size) noexcept {
  if (const crowded full = load.room_for_call(size); full != crowded::no) return full;
  if (!of_server.enter()) return crowded::server_calls;
  server_ = &of_server;
  if (of_method && !of_method->enter()) return crowded::method_calls;
  method_ = of_method;
  load_ = &load;
  size_ = size;
  load.call_began(size);
  return crowded::no;
}

crowded call_place::grow(std::size_t size) noexcept {
  if (size <= size_) return crowded::no;
  if (const crowded full = load_->room_for(size, size_); full != crowded::no) return full;
  load_->call_grew(size - size_);
  size_ = size;
  return crowded::no;
}

}  // namespace braid::server_side
