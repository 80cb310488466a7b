// Handlers on executors of their own, with real threads.

#include <braid/channel.hpp>
#include <braid/runtime.hpp>
#include <braid/server.hpp>

#include "integration/call_fixture.hpp"
#include "integration/raw_peer.hpp"
#include "unit/server_fixture.hpp"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/use_future.hpp>
#include <catch2/catch.hpp>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace std::chrono_literals;
using namespace call_over_tcp;
namespace asio = boost::asio;
using braid::call_done;
using braid::cancel_cause;
using braid::errc;
using braid::server_call;
using golden::EchoService;
using server_test::echo_service;

const auto& other = *EchoService::descriptor() -> FindMethodByName("Missing");

// A gate that handlers wait at.
class gate {
 public:
  void open() { promise_.set_value(); }
  void wait() {
    ++waiting_;
    if (opened_.wait_for(120s) != std::future_status::ready) std::abort();
  }
  int waiting() const { return waiting_; }

 private:
  std::promise<void> promise_;
  std::shared_future<void> opened_{promise_.get_future().share()};
  std::atomic<int> waiting_{0};
};

// Which threads handlers ran on.
class thread_set {
 public:
  void add() {
    const std::lock_guard lock(mutex_);
    ids_.insert(std::this_thread::get_id());
  }
  bool contains(std::thread::id id) const {
    const std::lock_guard lock(mutex_);
    return ids_.contains(id);
  }

 private:
  mutable std::mutex mutex_;
  std::set<std::thread::id> ids_;
};

std::thread::id thread_of(braid::runtime& process) {
  return get(
      asio::post(process.loop_executor(0), asio::use_future([] { return std::this_thread::get_id(); })));
}

// A server of one loop, whose handlers run on a pool, in front of another server.
struct world {
  explicit world(std::size_t threads = 2) : pool(threads) { down.init(behind.address(), {.timeout = -1ns}); }
  ~world() {
    server.reset();
    pool.join();
  }

  // A server whose calls have a deadline, counted from their arrival.
  void limit_calls(std::chrono::milliseconds timeout) {
    server.emplace(*process, braid::server_options{.default_timeout = timeout});
  }
  void start() {
    server->start("127.0.0.1:0");
    up.init("127.0.0.1:" + std::to_string(server->port()), {.timeout = -1ns});
  }

  struct call {
    controller control;
    EchoRequest message;
    EchoResponse response;
    std::future<void> end;
    void wait() {
      try {
        get(std::move(end));
      } catch (const boost::system::system_error&) {
      }
    }
  };
  std::unique_ptr<call> start_call(const EchoRequest& message, std::chrono::nanoseconds timeout = -1ns,
                                   const google::protobuf::MethodDescriptor& method = echo()) {
    auto made = std::make_unique<call>();
    made->message = message;
    made->control.set_timeout(timeout);
    made->end = up.async_call(method, made->control, made->message, made->response, asio::use_future);
    return made;
  }

  server_test::log_lines log;
  echo_server behind;
  asio::thread_pool pool;
  braid::runtime client{{.loops = 1}};
  braid::channel up{client};
  echo_service service;
  std::optional<braid::runtime> process{std::in_place, braid::runtime_options{.loops = 1, .log = log.sink()}};
  braid::channel down{*process};
  std::optional<braid::server> server{std::in_place, *process};
};

void echo_back(server_call&, const EchoRequest& q, EchoResponse& r) { r.set_message(q.message()); }

enum class style { plain, awaitable, callback, generated };
const auto all_styles = {style::plain, style::awaitable, style::callback, style::generated};

// What the downstream call of a handler ended with.
struct downstream_end {
  std::promise<void> ended;
  error_code code;
  cancel_cause cause = cancel_cause::none;
};

void note(downstream_end& into, const controller& control) {
  into.code = control.error();
  into.cause = control.result().cause;
  into.ended.set_value();
}

asio::awaitable<void> call_down(world& w, downstream_end& end, const EchoRequest& q, EchoResponse& r) {
  controller control;
  try {
    co_await w.down.async_call(echo(), control, q, r, asio::use_awaitable);
  } catch (const boost::system::system_error&) {
  }
  note(end, control);
  if (control.Failed()) r.set_message("failed");
}

// Handlers on the pool that pass their request on to the server behind.
void serve(world& w, style written, downstream_end& end) {
  const braid::method_options options{.run_on = w.pool};
  const auto synchronous = [&](server_call&, const EchoRequest& q, EchoResponse& r) {
    controller control;
    error_code ec;
    w.down.call(echo(), control, q, r, ec);
    note(end, control);
    if (ec) r.set_message("failed");
  };
  switch (written) {
    case style::plain:
      w.server->handle(&EchoService::Echo, synchronous, options);
      break;
    case style::awaitable:
      w.server->handle(
          &EchoService::Echo,
          [&](server_call&, const EchoRequest& q, EchoResponse& r) { return call_down(w, end, q, r); },
          options);
      break;
    case style::callback:
      w.server->handle(
          &EchoService::Echo,
          [&](server_call&, const EchoRequest& q, EchoResponse& r, call_done done) {
            auto control = std::make_shared<controller>();
            w.down.async_call(echo(), *control, q, r, [&, control, done](error_code ec) {
              note(end, *control);
              if (ec) r.set_message("failed");
              done();
            });
          },
          options);
      break;
    case style::generated:
      w.service.run = [synchronous](server_call& call, const EchoRequest& q, EchoResponse& r,
                                    google::protobuf::Closure* done) {
        synchronous(call, q, r);
        done->Run();
      };
      w.server->add_service(w.service, options);
      break;
  }
  w.start();
}

}  // namespace

TEST_CASE("executor: a handler that blocks a pool's thread does not hold up the loop that reads") {
  gate gate;  // outlives the pool's threads
  world w;
  w.server->handle(&EchoService::Echo,
                   [&](server_call& call, const EchoRequest& q, EchoResponse& r) {
                     gate.wait();
                     echo_back(call, q, r);
                   },
                   {.run_on = w.pool});
  w.server->handle(&EchoService::Missing, echo_back);
  w.start();
  auto heavy = w.start_call(request("heavy"));
  wait_until([&] { return gate.waiting() == 1; });
  for (int i = 0; i < 10; ++i) {
    auto light = w.start_call(request("light"), -1ns, other);
    light->wait();
    CHECK(light->response.message() == "light");
  }
  CHECK(heavy->end.wait_for(0s) == std::future_status::timeout);
  gate.open();
  heavy->wait();
  CHECK(heavy->response.message() == "heavy");
}

TEST_CASE("executor: handlers run on the pool in each style, and answer through their loop") {
  const style written = GENERATE(values(all_styles));
  world w;
  thread_set ran;
  const braid::method_options options{.run_on = w.pool};
  if (written == style::plain) {
    w.server->handle(
        &EchoService::Echo,
        [&](server_call& call, const EchoRequest& q, EchoResponse& r) {
          ran.add();
          echo_back(call, q, r);
        },
        options);
  } else if (written == style::awaitable) {
    w.server->handle(
        &EchoService::Echo,
        [&](server_call& call, const EchoRequest& q, EchoResponse& r) -> asio::awaitable<void> {
          ran.add();
          asio::steady_timer soon(co_await asio::this_coro::executor, 1ms);
          co_await soon.async_wait(asio::use_awaitable);
          ran.add();
          echo_back(call, q, r);
        },
        options);
  } else if (written == style::callback) {
    w.server->handle(
        &EchoService::Echo,
        [&](server_call& call, const EchoRequest& q, EchoResponse& r, call_done done) {
          ran.add();
          echo_back(call, q, r);
          std::thread(done).detach();
        },
        options);
  } else {
    w.service.run = [&](server_call& call, const EchoRequest& q, EchoResponse& r,
                        google::protobuf::Closure* done) {
      ran.add();
      echo_service::answer_at_once(call, q, r, done);
    };
    w.server->add_service(w.service, options);
  }
  w.start();
  std::vector<std::unique_ptr<world::call>> calls;
  for (int i = 0; i < 200; ++i) calls.push_back(w.start_call(request(std::to_string(i))));
  for (int i = 0; i < 200; ++i) {
    calls[static_cast<std::size_t>(i)]->wait();
    CHECK(calls[static_cast<std::size_t>(i)]->response.message() == std::to_string(i));
  }
  CHECK_FALSE(ran.contains(thread_of(*w.process)));
}

TEST_CASE("executor: a call downstream ends at the server call's deadline, in each style") {
  const style written = GENERATE(values(all_styles));
  world w;
  downstream_end end;
  w.limit_calls(100ms);
  serve(w, written, end);
  auto made = w.start_call(request("slow", 100'000));
  made->wait();
  get(end.ended.get_future());
  CHECK(end.code ==
        errc::timed_out);  // by its own clock, or said by the server behind, whose deadline it is too
  CHECK(end.cause != cancel_cause::user);
}

TEST_CASE("executor: a call downstream is cancelled when the client is gone, in each style") {
  const style written = GENERATE(values(all_styles));
  world w;
  downstream_end end;
  serve(w, written, end);
  auto client = server_test::raw_peer::connect(w.server->port());
  auto meta = server_test::echo_meta(1);
  client.send(server_test::frame(meta, request("slow", 100'000).SerializeAsString()));
  wait_until([&] { return w.behind.calls() == 1; });
  client.reset();
  get(end.ended.get_future());
  CHECK(end.code == aborted);
  CHECK(end.cause == cancel_cause::peer_gone);
}

TEST_CASE("executor: a handler that outstays its deadline does not keep its client waiting") {
  gate gate;  // outlives the pool's threads
  world w;
  std::atomic<int> cause{0};
  w.limit_calls(50ms);
  w.server->handle(&EchoService::Echo,
                   [&](server_call& call, const EchoRequest& q, EchoResponse& r) {
                     gate.wait();
                     cause = static_cast<int>(call.cancelled());
                     echo_back(call, q, r);
                   },
                   {.run_on = w.pool});
  w.start();
  auto made = w.start_call(request("x"));
  made->wait();
  CHECK(made->control.error() == errc::timed_out);
  wait_until([&] { return gate.waiting() == 1; });
  gate.open();
  wait_until([&] { return cause == static_cast<int>(cancel_cause::deadline); });
}

TEST_CASE("executor: done from several threads at once answers once") {
  world w;
  std::atomic<int> finished{0};
  w.server->handle(&EchoService::Echo,
                   [&](server_call& call, const EchoRequest& q, EchoResponse& r, call_done done) {
                     echo_back(call, q, r);
                     for (int i = 0; i < 4; ++i) {
                       asio::post(w.pool, [&finished, done] {
                         done();
                         ++finished;
                       });
                     }
                   },
                   {.run_on = w.pool});
  w.start();
  for (int i = 0; i < 20; ++i) {
    auto made = w.start_call(request("x"));
    made->wait();
    CHECK(made->response.message() == "x");
  }
  wait_until([&] { return finished == 80; });
}

TEST_CASE("executor: calls that a stopped pool never runs are answered with 2003") {
  const style written = GENERATE(style::plain, style::awaitable, style::callback);
  std::optional<asio::thread_pool> pool(std::in_place, 1U);
  world w;
  if (written == style::plain) {
    w.server->handle(&EchoService::Echo, echo_back, {.run_on = *pool});
  } else if (written == style::awaitable) {
    w.server->handle(
        &EchoService::Echo,
        [](server_call&, const EchoRequest&, EchoResponse&) -> asio::awaitable<void> { co_return; },
        {.run_on = *pool});
  } else {
    w.server->handle(&EchoService::Echo,
                     [](server_call&, const EchoRequest&, EchoResponse&, call_done done) { done(); },
                     {.run_on = *pool});
  }
  w.server->handle(&EchoService::Missing, echo_back);
  w.start();
  pool->stop();
  auto queued = w.start_call(request("never"));
  w.start_call(request("x"), -1ns, other)->wait();  // the one before has been read by now
  pool.reset();
  queued->wait();
  CHECK(queued->control.error() == errc::logoff);
  CHECK(queued->control.ErrorText() == "the executor of the handler takes no more work");
}

TEST_CASE("executor: stop waits for a pool's handlers, and names those that do not end") {
  gate gate;  // outlives the pool's threads
  world w;
  w.server->handle(&EchoService::Echo,
                   [&](server_call& call, const EchoRequest& q, EchoResponse& r) {
                     gate.wait();
                     echo_back(call, q, r);
                   },
                   {.run_on = w.pool});
  w.start();
  auto made = w.start_call(request("x"));
  wait_until([&] { return gate.waiting() == 1; });
  const bool in_time = GENERATE(true, false);
  if (in_time) {
    auto stopped = w.server->async_stop({.grace = 100s, .kill = 100s}, asio::use_future);
    gate.open();
    CHECK(get(std::move(stopped)).empty());
    made->wait();
    CHECK(made->response.message() == "x");
  } else {
    const auto names = w.server->stop({.grace = 1ms, .kill = 1ms});
    REQUIRE(names.size() == 1);
    CHECK(names.front().find("golden.EchoService.Echo") != std::string::npos);
    made->wait();
    CHECK(made->control.error() == errc::logoff);
    gate.open();
  }
}

TEST_CASE("executor: a pool's handlers may end after their server and its runtime are gone") {
  const style written = GENERATE(style::plain, style::callback, style::generated);
  gate gate;  // outlives the pool's threads
  world w;
  std::atomic<bool> refused{false};
  std::atomic<bool> ended{false};
  const braid::method_options options{.run_on = w.pool};
  const auto late = [&](server_call& call, const EchoRequest& q, EchoResponse& r) {
    gate.wait();
    controller control;
    error_code ec;
    EchoResponse unused;
    w.down.call(echo(), control, q, unused, ec);  // its runtime is gone
    refused = ec == aborted && call.IsCanceled();
    echo_back(call, q, r);
  };
  if (written == style::plain) {
    w.server->handle(
        &EchoService::Echo,
        [&](server_call& call, const EchoRequest& q, EchoResponse& r) {
          late(call, q, r);
          ended = true;
        },
        options);
  } else if (written == style::callback) {
    w.server->handle(
        &EchoService::Echo,
        [&](server_call& call, const EchoRequest& q, EchoResponse& r, call_done done) {
          late(call, q, r);
          std::thread([done, &ended] {
            done();
            done();
            ended = true;
          }).detach();
        },
        options);
  } else {
    w.service.run = [&](server_call& call, const EchoRequest& q, EchoResponse& r,
                        google::protobuf::Closure* done) {
      late(call, q, r);
      done->Run();
      ended = true;
    };
    w.server->add_service(w.service, options);
  }
  w.start();
  auto made = w.start_call(request("x"));
  wait_until([&] { return gate.waiting() == 1; });
  CHECK(w.server->stop({.grace = 0ms, .kill = 0ms}).size() == 1);
  w.server.reset();
  w.process.reset();
  made->wait();
  gate.open();
  wait_until([&] { return ended.load(); });
  CHECK(refused);
}

TEST_CASE("executor: a loop waits for its awaitable handlers when the runtime is destroyed") {
  world w;
  std::atomic<int> state{0};
  w.server->handle(&EchoService::Echo,
                   [&](server_call&, const EchoRequest&, EchoResponse&) -> asio::awaitable<void> {
                     state = 1;
                     asio::steady_timer forever(co_await asio::this_coro::executor, 1000s);
                     try {
                       co_await forever.async_wait(asio::use_awaitable);
                     } catch (const boost::system::system_error&) {
                       state = 2;
                     }
                   });
  w.start();
  auto made = w.start_call(request("x"));
  wait_until([&] { return state == 1; });
  w.process.reset();
  CHECK(state == 2);
  made->wait();
  CHECK(made->control.Failed());
}
