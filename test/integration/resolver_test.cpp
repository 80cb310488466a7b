#include "net/resolver.hpp"

#include <boost/asio/error.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <catch2/catch.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

// What a test waits for comes within moments; the limit only turns a hang into a failure.
using namespace std::chrono_literals;

namespace {

using namespace braid::net;
using braid::endpoint;
using braid::error_code;
namespace error = boost::asio::error;
namespace ip = boost::asio::ip;

constexpr auto long_enough = 60s;

// A thread to deliver to: the one that calls wait().
class inbox {
 public:
  post_function post() {
    return [this](std::function<void()> f) {
      std::lock_guard lock{mutex_};
      functions_.push_back(std::move(f));
      changed_.notify_all();
    };
  }

  // Runs what is posted until a condition holds.
  template <class Condition>
  bool wait(Condition done) {
    const auto limit = std::chrono::steady_clock::now() + long_enough;
    std::unique_lock lock{mutex_};
    while (!done()) {
      if (!changed_.wait_until(lock, limit, [&] { return !functions_.empty(); })) return false;
      auto f = std::move(functions_.front());
      functions_.pop_front();
      lock.unlock();
      f();
      lock.lock();
    }
    return true;
  }

  bool wait_for_post() {
    std::unique_lock lock{mutex_};
    return changed_.wait_for(lock, long_enough, [&] { return !functions_.empty(); });
  }

  std::size_t size() {
    std::lock_guard lock{mutex_};
    return functions_.size();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> functions_;
};

struct outcome {
  std::optional<error_code> ec;
  resolved addresses;
  int calls = 0;
  std::thread::id thread;

  resolve_handler handler() {
    return [this](error_code e, resolved a) {
      ec = e;
      addresses = std::move(a);
      thread = std::this_thread::get_id();
      ++calls;
    };
  }
  auto done() const {
    return [this] { return calls != 0; };
  }
};

endpoint at(std::string_view text) { return endpoint::parse(text).value(); }

// Lookups that hang until they are let go; shared with the threads, as a blocking_lookup must.
struct gate {
  std::mutex mutex;
  std::condition_variable changed;
  bool open = false;
  std::size_t inside = 0;
  std::size_t most_inside = 0;
  std::size_t left = 0;
  std::vector<std::string> entered;

  error_code pass(const std::string& host, std::uint16_t port, resolved& addresses) {
    std::unique_lock lock{mutex};
    entered.push_back(host);
    most_inside = std::max(most_inside, ++inside);
    changed.notify_all();
    changed.wait(lock, [&] { return open; });
    --inside;
    ++left;
    changed.notify_all();
    addresses.emplace_back(ip::make_address("10.0.0.1"), port);
    return {};
  }
  void let_go() {
    std::lock_guard lock{mutex};
    open = true;
    changed.notify_all();
  }
  template <class Condition>
  bool wait(Condition condition) {
    std::unique_lock lock{mutex};
    return changed.wait_for(lock, long_enough, condition);
  }
  bool wait_inside(std::size_t n) {
    return wait([&] { return inside == n; });
  }
};

system_resolver::options through(const std::shared_ptr<gate>& g, std::size_t threads, std::size_t waiting) {
  return {threads, waiting, [g](const auto& host, auto port, auto& to) { return g->pass(host, port, to); }};
}

TEST_CASE("a literal resolves to itself without a lookup", "[resolver]") {
  inbox in;
  outcome out;
  system_resolver names{
      {1, 1, [](auto&&...) -> error_code { throw std::logic_error{"no lookup is needed"}; }}};
  const auto text = GENERATE(as<std::string>{}, "127.0.0.1:80", "[::1]:443");
  const auto pending = names.resolve(at(text), in.post(), out.handler());
  CHECK(out.calls == 0);
  REQUIRE(in.wait(out.done()));
  CHECK(*out.ec == error_code{});
  CHECK(out.addresses == resolved{at(text).tcp()});
}

TEST_CASE("a unix path is not for a resolver", "[resolver]") {
  inbox in;
  outcome out;
  system_resolver names;
  const auto pending = names.resolve(at("unix:/a"), in.post(), out.handler());
  REQUIRE(in.wait(out.done()));
  CHECK(*out.ec == error::address_family_not_supported);
  CHECK(out.addresses.empty());
}

TEST_CASE("localhost resolves to loopback addresses, each once, on the caller's thread", "[resolver]") {
  inbox in;
  outcome out;
  system_resolver names;
  const auto pending = names.resolve(at("localhost:8000"), in.post(), out.handler());
  REQUIRE(in.wait(out.done()));
  CHECK(*out.ec == error_code{});
  CHECK(out.thread == std::this_thread::get_id());
  REQUIRE_FALSE(out.addresses.empty());
  for (const auto& address : out.addresses) {
    CHECK(address.address().is_loopback());
    CHECK(address.port() == 8000);
    CHECK(std::count(out.addresses.begin(), out.addresses.end(), address) == 1);
  }
}

TEST_CASE("results reach an io_context", "[resolver]") {
  boost::asio::io_context context;
  auto work = boost::asio::make_work_guard(context);
  outcome out;
  system_resolver names;
  const auto pending = names.resolve(
      at("localhost:1"), [&](std::function<void()> f) { boost::asio::post(context, std::move(f)); },
      [&, handler = out.handler()](error_code ec, resolved a) {
        handler(ec, std::move(a));
        work.reset();
      });
  context.run_for(long_enough);
  CHECK(out.calls == 1);
}

TEST_CASE("the outcome of a lookup is the error, or at least one address", "[resolver]") {
  struct row {
    system_resolver::blocking_lookup look_up;
    error_code expected;
  };
  const auto row = GENERATE(values<struct row>({
      {[](auto&&, auto port, auto& to) {
         to.emplace_back(ip::make_address("10.0.0.1"), port);
         return error_code{error::host_not_found_try_again};
       },
       error::host_not_found_try_again},
      {[](auto&&...) { return error_code{}; }, error::host_not_found},
      {[](auto&&...) -> error_code { throw std::bad_alloc{}; }, error::no_memory},
  }));
  inbox in;
  outcome out;
  system_resolver names{{1, 1, row.look_up}};
  const auto pending = names.resolve(at("name:80"), in.post(), out.handler());
  REQUIRE(in.wait(out.done()));
  CHECK(*out.ec == row.expected);
  CHECK(out.addresses.empty());
}

TEST_CASE("no more names are looked up at once than allowed, and the rest follow", "[resolver]") {
  auto g = std::make_shared<gate>();
  inbox in;
  system_resolver names{through(g, 2, 100)};
  std::vector<outcome> outs(6);
  std::vector<lookup> pending;
  for (std::size_t i = 0; i < outs.size(); ++i) {
    pending.push_back(names.resolve(at("n" + std::to_string(i) + ":80"), in.post(), outs[i].handler()));
  }
  REQUIRE(g->wait_inside(2));
  CHECK(in.size() == 0);
  g->let_go();
  for (auto& out : outs) {
    REQUIRE(in.wait(out.done()));
    CHECK(*out.ec == error_code{});
    CHECK(out.addresses.size() == 1);
  }
  CHECK(g->most_inside == 2);
  std::vector<std::string> waited(g->entered.begin() + 2, g->entered.end());
  std::sort(waited.begin(), waited.end());
  CHECK(waited == std::vector<std::string>{"n2", "n3", "n4", "n5"});
}

TEST_CASE("a lookup too many fails with try_again, until an abandoned one makes room", "[resolver]") {
  auto g = std::make_shared<gate>();
  inbox in;
  system_resolver names{through(g, 1, 2)};
  std::vector<outcome> outs(5);
  std::vector<lookup> pending;
  const auto start = [&](std::size_t i) {
    pending.push_back(names.resolve(at("n" + std::to_string(i) + ":80"), in.post(), outs[i].handler()));
  };
  start(0);
  REQUIRE(g->wait_inside(1));
  start(1);
  start(2);
  start(3);
  REQUIRE(in.wait(outs[3].done()));
  CHECK(*outs[3].ec == error::try_again);
  CHECK(outs[1].calls == 0);

  pending[1].abandon();
  start(4);
  g->let_go();
  REQUIRE(in.wait(outs[4].done()));
  CHECK(*outs[4].ec == error_code{});
  CHECK(outs[1].calls == 0);
  CHECK(std::count(g->entered.begin(), g->entered.end(), "n1") == 0);
}

TEST_CASE("an abandoned lookup neither calls nor keeps its handler, nor posts", "[resolver]") {
  auto g = std::make_shared<gate>();
  auto kept = std::make_shared<int>();
  std::atomic<int> posts = 0;
  {
    system_resolver names{through(g, 1, 1)};
    auto pending = names.resolve(
        at("name:80"), [&posts](auto&&) { ++posts; }, [kept](auto&&...) { FAIL("was abandoned"); });
    REQUIRE(g->wait_inside(1));
    CHECK(kept.use_count() == 2);
    pending.abandon();
    CHECK(kept.use_count() == 1);
    g->let_go();
    // The one thread takes this lookup when it is done with the other.
    inbox in;
    outcome out;
    const auto next = names.resolve(at("next:80"), in.post(), out.handler());
    REQUIRE(in.wait(out.done()));
  }
  CHECK(posts == 0);
}

TEST_CASE("a lookup abandoned after its result was posted drops the result", "[resolver]") {
  inbox in;
  static_resolver names{{{"name", {ip::make_address("10.0.0.1")}}}};
  outcome out;
  {
    const auto pending = names.resolve(at("name:80"), in.post(), out.handler());
    REQUIRE(in.wait_for_post());
  }
  bool last_one_ran = false;
  in.post()([&] { last_one_ran = true; });
  REQUIRE(in.wait([&] { return last_one_ran; }));
  CHECK(out.calls == 0);
}

TEST_CASE("a resolver may go while its lookups hang or wait", "[resolver]") {
  auto g = std::make_shared<gate>();
  outcome out;
  auto in = std::make_unique<inbox>();
  {
    system_resolver names{through(g, 1, 10)};
    const auto hanging = names.resolve(at("hanging:80"), in->post(), out.handler());
    REQUIRE(g->wait_inside(1));
    const auto waiting = names.resolve(at("waiting:80"), in->post(), out.handler());
  }
  in.reset();
  g->let_go();
  REQUIRE(g->wait([&] { return g->left == 1; }));
  // The thread lets go of the gate when it ends.
  while (g.use_count() != 1) std::this_thread::yield();
  CHECK(out.calls == 0);
  CHECK(g->entered == std::vector<std::string>{"hanging"});
}

TEST_CASE("a moved lookup is abandoned once, by its last owner", "[resolver]") {
  inbox in;
  static_resolver names{{{"name", {ip::make_address("10.0.0.1")}}}};
  outcome first, second;
  auto a = names.resolve(at("name:80"), in.post(), first.handler());
  auto b = names.resolve(at("name:80"), in.post(), second.handler());
  a = std::move(b);
  REQUIRE(in.wait(second.done()));
  CHECK(first.calls == 0);
  CHECK(second.calls == 1);
}

TEST_CASE("a handler may abandon its own lookup", "[resolver]") {
  inbox in;
  static_resolver names{{{"name", {ip::make_address("10.0.0.1")}}}};
  bool called = false;
  lookup pending;
  pending = names.resolve(at("name:80"), in.post(), [&](auto&&...) {
    pending.abandon();
    called = true;
  });
  CHECK(in.wait([&] { return called; }));
}

TEST_CASE("lookup threads take no signals", "[resolver]") {
  inbox in;
  outcome out;
  auto blocked = std::make_shared<std::atomic<bool>>(false);
  system_resolver names{{1, 1, [blocked](auto&&, auto port, auto& to) {
                           sigset_t mask;
                           ::pthread_sigmask(SIG_SETMASK, nullptr, &mask);
                           *blocked = ::sigismember(&mask, SIGTERM) == 1 && ::sigismember(&mask, SIGINT) == 1;
                           to.emplace_back(ip::make_address("10.0.0.1"), port);
                           return error_code{};
                         }}};
  const auto pending = names.resolve(at("name:80"), in.post(), out.handler());
  REQUIRE(in.wait(out.done()));
  CHECK(*blocked);
  sigset_t mine;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &mine);
  CHECK(::sigismember(&mine, SIGTERM) == 0);
}

TEST_CASE("a table resolves its names, in any case, and nothing else", "[resolver]") {
  inbox in;
  static_resolver names{{{"Db.Example", {ip::make_address("10.0.0.1"), ip::make_address("::2")}}}};
  names.set("other", {ip::make_address("10.0.0.9")});
  names.set("empty", {});
  names.remove("OTHER");
  struct row {
    std::string text;
    error_code ec;
    std::vector<std::string> addresses;
  };
  const auto row = GENERATE(values<struct row>({
      {"db.example:80", {}, {"10.0.0.1:80", "[::2]:80"}},
      {"DB.EXAMPLE:81", {}, {"10.0.0.1:81", "[::2]:81"}},
      {"127.0.0.1:82", {}, {"127.0.0.1:82"}},
      {"other:80", error::host_not_found, {}},
      {"empty:80", error::host_not_found, {}},
      {"unknown:80", error::host_not_found, {}},
  }));
  outcome out;
  const auto pending = names.resolve(at(row.text), in.post(), out.handler());
  REQUIRE(in.wait(out.done()));
  CHECK(*out.ec == row.ec);
  std::vector<std::string> addresses;
  for (const auto& address : out.addresses) addresses.push_back(endpoint{address}.to_string());
  CHECK(addresses == row.addresses);
}

}  // namespace
