#include "net/outbound_queue.hpp"

#include <catch2/catch.hpp>

#include <array>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace {

using braid::buffer;
using braid::net::outbound_queue;

std::string gathered(const outbound_queue& queue, std::size_t most = 64) {
  std::vector<iovec> vectors(most);
  const std::size_t count = queue.gather(vectors);
  std::string bytes;
  for (std::size_t i = 0; i < count; ++i) {
    bytes.append(static_cast<const char*>(vectors[i].iov_base), vectors[i].iov_len);
  }
  return bytes;
}

}  // namespace

TEST_CASE("outbound_queue: small pieces leave as one, in order") {
  outbound_queue queue;
  CHECK(queue.empty());
  std::memcpy(queue.reserve(100), "first ", 6);
  queue.commit(6);
  queue.append("second ");
  buffer chain{"third "};
  chain.append(buffer{"fourth"});
  queue.append(chain);
  std::array<iovec, 4> vectors{};
  CHECK(queue.gather(vectors) == 1);
  CHECK(gathered(queue) == "first second third fourth");
  CHECK(queue.size() == 25);
  queue.reserve(10);
  queue.commit(0);
  CHECK(queue.size() == 25);
  CHECK(queue.gather({}) == 0);
}

TEST_CASE("outbound_queue: a large piece is kept by reference and released when it was sent") {
  const std::string large(outbound_queue::copy_limit + 1, 'L');
  int released = 0;
  outbound_queue queue;
  queue.append("head");
  queue.append(buffer::wrap(large.data(), large.size(), [&] { ++released; }));
  queue.append("tail");
  std::array<iovec, 4> vectors{};
  REQUIRE(queue.gather(vectors) == 3);
  CHECK(vectors[1].iov_base == large.data());
  queue.consume(4 + large.size() - 1);
  CHECK(released == 0);
  queue.consume(1);
  CHECK(released == 1);
  CHECK(gathered(queue) == "tail");
  const std::string small(outbound_queue::copy_limit, 'S');
  queue.append(buffer::wrap(small.data(), small.size(), [&] { ++released; }));
  CHECK(released == 2);
}

TEST_CASE("outbound_queue: positions tell whether a byte of a frame was handed over") {
  outbound_queue queue;
  queue.append("aaaa");
  const auto start = queue.bytes_appended_total();
  queue.append("bbbb");
  CHECK(start == 4);
  queue.consume(4);
  CHECK_FALSE(queue.bytes_consumed_total() > start);
  queue.consume(1);
  CHECK(queue.bytes_consumed_total() > start);
  queue.consume(3);
  CHECK(queue.empty());
  CHECK(queue.bytes_appended_total() == 8);
  CHECK(queue.bytes_consumed_total() == 8);
}

TEST_CASE("outbound_queue: over its limit unless it is empty or has none") {
  outbound_queue queue{10};
  CHECK_FALSE(queue.would_exceed(1000));
  queue.append("1234");
  CHECK_FALSE(queue.would_exceed(6));
  CHECK(queue.would_exceed(7));
  CHECK(queue.would_exceed(static_cast<std::size_t>(-1)));
  queue.append("123456789");
  CHECK(queue.would_exceed(0));
  queue.consume(13);
  CHECK_FALSE(queue.would_exceed(11));
  outbound_queue unlimited;
  unlimited.append("1");
  CHECK_FALSE(unlimited.would_exceed(static_cast<std::size_t>(-1)));
}

TEST_CASE("outbound_queue: gathered bytes stay in place while more is added") {
  outbound_queue queue;
  queue.append("in flight");
  std::array<iovec, 1> vectors{};
  REQUIRE(queue.gather(vectors) == 1);
  const void* where = vectors[0].iov_base;
  for (int i = 0; i < 5000; ++i) queue.append("more and more bytes behind it");
  CHECK(std::memcmp(where, "in flight", 9) == 0);
  queue.gather(vectors);
  CHECK(vectors[0].iov_base == where);
}

TEST_CASE("outbound_queue: memory returns when the load is gone") {
  outbound_queue queue;
  const std::string frame(1000, 'f');
  for (int i = 0; i < 1000; ++i) queue.append(frame);
  queue.reserve(std::size_t{10} << 20);
  queue.consume(queue.size());
  CHECK(queue.kept_memory() == 0);
  queue.append("y");
  CHECK(queue.kept_memory() <= outbound_queue::max_block);
  CHECK(gathered(queue) == "y");
  queue.consume(1);
  CHECK(queue.kept_memory() == 0);
  queue.append("z");
  CHECK(gathered(queue) == "z");
  queue.clear();
  CHECK(queue.empty());
  CHECK(gathered(queue).empty());
}

TEST_CASE("outbound_queue: the queues of a thread share the blocks that they do not need") {
  outbound_queue first;
  outbound_queue second;
  std::array<iovec, 1> vectors{};
  first.append("x");
  first.gather(vectors);
  const void* where = vectors[0].iov_base;
  second.append("y");  // while the first one has its block
  second.gather(vectors);
  CHECK(vectors[0].iov_base != where);
  first.consume(1);
  second.append(std::string(outbound_queue::max_block, 'y'));
  CHECK(gathered(second).size() == outbound_queue::max_block + 1);
  second.clear();
  outbound_queue third;
  third.append("z");
  third.gather(vectors);
  CHECK(third.kept_memory() <= outbound_queue::max_block);
  CHECK(gathered(third) == "z");
}

TEST_CASE("outbound_queue: a steady small load reuses one block") {
  outbound_queue queue;
  queue.append("x");
  std::array<iovec, 1> vectors{};
  queue.gather(vectors);
  const void* where = vectors[0].iov_base;
  queue.consume(1);
  for (int i = 0; i < 300; ++i) {
    queue.append(std::string(600, 'y'));
    queue.gather(vectors);
    queue.consume(600);
  }
  CHECK(vectors[0].iov_base == where);
}

TEST_CASE("outbound_queue: one that only kept pieces by reference leaves the spare blocks as they are") {
  const auto block_of = [](outbound_queue& queue) {
    queue.append("x");
    std::array<iovec, 1> vectors{};
    queue.gather(vectors);
    queue.consume(1);
    return vectors[0].iov_base;
  };
  outbound_queue queue;
  const void* const where = block_of(queue);
  const std::string large(outbound_queue::copy_limit + 1, 'L');
  for (int i = 0; i < 20; ++i) {
    outbound_queue other;
    other.append(buffer::wrap(large.data(), large.size(), [] {}));
    other.consume(large.size());
  }
  for (int i = 0; i < 10; ++i) {
    // If a block were given back to the system, this would get it.
    const braid::detail::block_ref other(outbound_queue::min_block);
    CHECK(block_of(queue) == where);
  }
}

TEST_CASE("outbound_queue: works while its thread ends, after what the thread keeps is gone") {
  struct last_words {
    explicit last_words(bool& told) : intact(told) {}
    ~last_words() {
      const std::string text(1000, 'k');
      outbound_queue queue;
      queue.append(text);
      // Memory that was given back to the system would now be another's.
      const braid::detail::block_ref other(outbound_queue::min_block);
      std::memset(other.data(), 'o', other.capacity());
      intact = gathered(queue) == text;
      queue.consume(text.size());
    }
    bool& intact;
  };
  bool intact = false;
  std::thread([&] {
    // Made before anything of the queues is, so destroyed after it.
    static thread_local last_words at_exit(intact);
    outbound_queue queue;
    queue.append("x");
    queue.consume(1);
  }).join();
  CHECK(intact);
}

TEST_CASE("outbound_queue: random use agrees with a string") {
  std::mt19937 random{7};
  for (int round = 0; round < 60; ++round) {
    outbound_queue queue;
    std::string model;
    std::uint64_t sent = 0;
    bool same = true;
    for (int step = 0; step < 300; ++step) {
      const std::size_t n = random() % 8 == 0 ? random() % 20000 : random() % 300;
      const std::string bytes(n, static_cast<char>('a' + step % 26));
      switch (random() % 5) {
        case 0: {
          char* at = queue.reserve(n + random() % 100);
          if (n != 0) std::memcpy(at, bytes.data(), n);
          queue.commit(n);
          model += bytes;
          break;
        }
        case 1: {
          buffer chain{bytes};
          chain.append(buffer{bytes});
          queue.append(chain);
          model += bytes + bytes;
          break;
        }
        case 2:
          queue.append(bytes), model += bytes;
          break;
        default: {
          const std::string head = gathered(queue, 1 + random() % 4);
          same = same && model.starts_with(head) && (model.empty() || !head.empty());
          const std::size_t taken = head.empty() ? 0 : random() % (head.size() + 1);
          queue.consume(taken);
          model.erase(0, taken);
          sent += taken;
        }
      }
      same = same && queue.size() == model.size() && queue.bytes_consumed_total() == sent &&
             queue.bytes_appended_total() == sent + model.size();
    }
    REQUIRE(same);
    REQUIRE(gathered(queue, 100000) == model);
  }
}
