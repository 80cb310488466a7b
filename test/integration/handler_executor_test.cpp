// Handlers on executors of their own, with real threads.

#include "integration/executor_world.hpp"

#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <catch2/catch.hpp>

#include <atomic>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

using namespace executor_test;

namespace {

const auto& other = *EchoService::descriptor() -> FindMethodByName("Missing");

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

void echo_back(server_call&, const EchoRequest& q, EchoResponse& r) { r.set_message(q.message()); }

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
