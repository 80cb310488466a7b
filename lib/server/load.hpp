#pragma once

#include <boost/smart_ptr/intrusive_ptr.hpp>
#include <boost/smart_ptr/intrusive_ref_counter.hpp>

#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>

namespace braid::server_side {

/// Which limit keeps a request from being run.
enum class crowded : unsigned char {
  no,
  server_calls,
  method_calls,
  connection_calls,
  server_bytes,
  connection_bytes
};

/// How many calls may run at once. Without a limit it counts nothing.
///
/// From any thread. Never more run than the limit says; a call that comes at the very moment at which others
/// are refused or end may be refused too.
class concurrency_limit {
 public:
  /// \param most how many; 0: no limit.
  explicit concurrency_limit(std::size_t most) noexcept : most_(most) {}

  std::size_t most() const noexcept { return most_; }
  /// Lets one more run until leave(), or says that none may.
  bool enter() noexcept {
    if (most_ == 0) return true;
    if (running_.fetch_add(1, std::memory_order_relaxed) < most_) return true;
    leave();
    return false;
  }
  void leave() noexcept {
    if (most_ != 0) running_.fetch_sub(1, std::memory_order_relaxed);
  }

 private:
  const std::size_t most_;
  std::atomic<std::size_t> running_{0};
};

/// The bytes that a server holds for all of its clients. From any thread.
class server_load {
 public:
  /// \param limit in bytes; 0: none, and nothing is counted.
  explicit server_load(std::size_t limit) noexcept : limit_(limit) {}

  std::size_t limit() const noexcept { return limit_; }
  std::size_t held() const noexcept { return held_.load(std::memory_order_relaxed); }
  void add(std::size_t size) noexcept { held_.fetch_add(size, std::memory_order_relaxed); }
  void remove(std::size_t size) noexcept { held_.fetch_sub(size, std::memory_order_relaxed); }

 private:
  const std::size_t limit_;
  std::atomic<std::size_t> held_{0};
};

/// What one connection makes its server hold: calls whose handlers have not ended, and the bytes of their
/// requests, of requests that are arriving and of answers that wait to be sent. It lives as long as the
/// connection and each of its calls.
///
/// The server's sum is told in steps of many bytes, so that a connection with little in flight never touches
/// memory that other loops write to. Used on the connection's loop.
class connection_load final
    : public boost::intrusive_ref_counter<connection_load, boost::thread_unsafe_counter> {
 public:
  /// \param most_calls, most_bytes of this connection; 0: no limit.
  connection_load(std::shared_ptr<server_load> all, std::size_t most_calls, std::size_t most_bytes) noexcept
      : all_(std::move(all)), most_calls_(most_calls), most_bytes_(most_bytes) {}
  connection_load(const connection_load&) = delete;
  connection_load& operator=(const connection_load&) = delete;
  ~connection_load() { tell(0); }

  /// Whether a request of `size` bytes may be held beside what is, of which `own` bytes are its own. One that
  /// is alone always may.
  crowded room_for(std::size_t size, std::size_t own = 0) const noexcept;
  crowded room_for_call(std::size_t size) const noexcept {
    return most_calls_ != 0 && calls_ >= most_calls_ ? crowded::connection_calls : room_for(size);
  }

  void call_began(std::size_t size) noexcept {
    ++calls_;
    handled_ += size;
    settle();
  }
  void call_over(std::size_t size) noexcept {
    --calls_;
    handled_ -= size;
    settle();
  }
  void call_grew(std::size_t by) noexcept {
    handled_ += by;
    settle();
  }
  /// Whether the server's limit leaves no room for so many bytes more.
  bool server_is_full(std::size_t more) const noexcept {
    return all_->limit() != 0 && (all_->held() > all_->limit() || more > all_->limit() - all_->held());
  }
  /// Bytes of requests that have arrived in part.
  void set_arriving(std::size_t size) noexcept {
    arriving_ = size;
    settle();
  }
  /// Bytes of answers that wait.
  void set_unsent(std::size_t size) noexcept {
    unsent_ = size;
    settle();
  }

  std::size_t calls() const noexcept { return calls_; }
  std::size_t bytes() const noexcept { return handled_ + arriving_ + unsent_; }

  /// The server is told of this much at a time, so that its sum may be off by a step for each busy
  /// connection.
  static constexpr std::size_t step = std::size_t{64} * 1024;

 private:
  void settle() noexcept {
    const std::size_t now = bytes();
    if (now > told_ + step || now + step < told_ || (now == 0 && told_ != 0)) tell(now);
  }
  void tell(std::size_t now) noexcept;

  const std::shared_ptr<server_load> all_;
  const std::size_t most_calls_;
  const std::size_t most_bytes_;
  std::size_t calls_ = 0;
  std::size_t handled_ = 0;
  std::size_t arriving_ = 0;
  std::size_t unsent_ = 0;
  std::size_t told_ = 0;
};

/// A call's place within all limits, from its request to the end of its handler.
class call_place {
 public:
  call_place() = default;
  call_place(call_place&& other) noexcept
      : server_(std::exchange(other.server_, nullptr)),
        method_(std::exchange(other.method_, nullptr)),
        load_(std::move(other.load_)),
        size_(other.size_) {}
  call_place& operator=(call_place&&) = delete;
  ~call_place();

  /// Takes a place for a request of `size` bytes, or says why there is none; once. `of_method` may be null.
  crowded take(concurrency_limit& of_server, concurrency_limit* of_method, connection_load& load,
               std::size_t size) noexcept;
  /// The request turns out to hold `size` bytes, or finds no room for more than it has.
  crowded grow(std::size_t size) noexcept;
  /// Of the request in bytes.
  std::size_t size() const noexcept { return size_; }

 private:
  concurrency_limit* server_ = nullptr;
  concurrency_limit* method_ = nullptr;
  boost::intrusive_ptr<connection_load> load_;
  std::size_t size_ = 0;
};

}  // namespace braid::server_side
