// What lib/core/exception_count.cpp does for ThreadSanitizer; elsewhere the standard library does it.

#include <catch2/catch.hpp>

#include <atomic>
#include <exception>
#include <future>
#include <optional>
#include <string>
#include <thread>
#include <utility>

namespace {

class counted {
 public:
  explicit counted(std::string text) : text_(std::move(text)) { ++live; }
  counted(const counted& other) : text_(other.text_) { ++live; }
  counted& operator=(const counted&) = delete;
  ~counted() { --live; }
  const std::string& text() const { return text_; }

  static inline std::atomic<int> live{0};

 private:
  std::string text_;
};

}  // namespace

TEST_CASE("exceptions: the thread that drops one last does not race with one that has caught it") {
  const std::string text(100, 'x');
  for (int i = 0; i < 100; ++i) {
    std::optional<std::promise<void>> promise(std::in_place);
    auto future = promise->get_future();
    std::atomic<bool> caught{false};
    std::thread thrower([&] {
      promise->set_exception(std::make_exception_ptr(counted(text)));
      while (!caught.load(std::memory_order_relaxed)) std::this_thread::yield();  // which orders nothing
      promise.reset();
    });
    std::string got;
    try {
      future.get();
    } catch (const counted& thrown) {
      got = thrown.text();
    }
    caught.store(true, std::memory_order_relaxed);
    thrower.join();
    REQUIRE(got == text);
  }
  CHECK(counted::live == 0);
}

TEST_CASE("exceptions: one is kept as long as anybody refers to it, also when it is thrown again and again") {
  std::exception_ptr kept;
  {
    const std::exception_ptr first = std::make_exception_ptr(counted("kept"));
    try {
      try {
        std::rethrow_exception(first);
      } catch (...) {
        kept = std::current_exception();
        throw;
      }
    } catch (const counted& thrown) {
      CHECK(thrown.text() == "kept");
    }
  }
  CHECK(counted::live == 1);
  try {
    throw counted("on the way");
  } catch (...) {
    try {
      std::rethrow_exception(std::exchange(kept, nullptr));
    } catch (const counted& thrown) {
      CHECK(thrown.text() == "kept");
      CHECK(counted::live == 2);
    }
    CHECK(counted::live == 1);
  }
  CHECK(counted::live == 0);
}
