#include "lent_fixture.hpp"
#include "unit/child_process.hpp"

#include <boost/asio/bind_executor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <catch2/catch.hpp>

#include <atomic>
#include <optional>
#include <vector>

namespace {

using namespace lent_fixture;

// The order in which a test ends things.
enum class first { context, runtime };

/// A client's runtime on a context of its own, whose calls nobody answers.
struct client_alone {
  explicit client_alone(int hint = BOOST_ASIO_CONCURRENCY_HINT_DEFAULT) {
    all.network().set_default({.black_hole = true});
    ioc.emplace(hint);
    rt.emplace(*ioc, all.options());
    channel.emplace(*rt);
    channel->init(server_address, {.timeout = 1h, .connect_timeout = 1h});
  }
  void run_ready() {
    while (ioc->poll() != 0)
      ;
  }
  void end(first which) {
    if (which == first::runtime) rt.reset();
    ioc.reset();
    rt.reset();
  }
  world all;
  std::optional<asio::io_context> ioc;
  std::optional<braid::runtime> rt;
  std::optional<braid::channel> channel;
};

}  // namespace

TEST_CASE("lent end: calls complete once with 125, whoever goes first, run before or never") {
  const first which = GENERATE(first::context, first::runtime);
  const bool run_before = GENERATE(false, true);
  const int hint = GENERATE(BOOST_ASIO_CONCURRENCY_HINT_DEFAULT, 1);
  client_alone client(hint);
  std::vector<told_call> calls(3);
  for (auto& call : calls) call.start(*client.channel);
  std::atomic<int> told_elsewhere{0};
  std::promise<error_code> elsewhere;
  asio::thread_pool pool(1);
  EchoRequest request;
  EchoResponse response;
  request.set_message("held");
  client.channel->async_call(echo(), request, response, asio::bind_executor(pool, [&](error_code ec) {
                               ++told_elsewhere;
                               elsewhere.set_value(ec);
                             }));
  auto future = client.channel->async_call(echo(), request, response, asio::use_future);
  if (run_before) client.run_ready();
  client.end(which);
  if (!run_before) {
    // They had not come to the loop, and complete on the system's threads.
    CHECK_THROWS_AS(get(std::move(future)), boost::system::system_error);
    CHECK(get(elsewhere.get_future()) == aborted);
    pool.join();
    for (auto& call : calls)
      while (call.times == 0) std::this_thread::yield();
    return;
  }
  for (auto& call : calls) {
    CHECK(call.times == 1);
    CHECK(call.ec == aborted);
    CHECK(call.control.result().cause == braid::cancel_cause::shutdown);
  }
  CHECK(get(elsewhere.get_future()) == aborted);
  CHECK_THROWS_AS(get(std::move(future)), boost::system::system_error);
  pool.join();
  CHECK(told_elsewhere == 1);
  // The channel outlives both.
  told_call late;
  std::promise<error_code> told;
  client.channel->async_call(echo(), request, response, [&](error_code ec) { told.set_value(ec); });
  CHECK(get(told.get_future()) == aborted);
  braid::controller control;
  error_code ec;
  client.channel->call(echo(), control, request, response, ec);
  CHECK(ec == aborted);
}

TEST_CASE("lent end: after the runtime calls complete with 125 as the context is run") {
  client_alone client;
  told_call call;
  call.start(*client.channel);
  client.run_ready();
  std::weak_ptr<braid::core::runtime_core> core = client.rt->core();
  client.rt.reset();
  CHECK(call.times == 0);
  client.ioc->run();
  CHECK(call.times == 1);
  CHECK(call.ec == aborted);
  client.channel.reset();
  CHECK(core.expired());
}

TEST_CASE("lent end: runtimes that come and go leave nothing on the context") {
  world all;
  asio::io_context ioc;
  for (int i = 0; i < 50; ++i) {
    std::weak_ptr<braid::core::runtime_core> core;
    int told = 0;
    {
      braid::runtime rt(ioc, all.options());
      core = rt.core();
      braid::spawn(
          rt, [](yield_context self) { asio::steady_timer(self.get_executor(), 24h).async_wait(self); },
          [&](error_code ec) { told += ec == aborted ? 1 : 100; });
      if (i % 2 == 0) ioc.poll();
      ioc.restart();
    }
    CHECK_FALSE(core.expired());
    ioc.run();
    ioc.restart();
    CHECK(core.expired());
    CHECK(told == 1);
  }
}

TEST_CASE("lent end: coroutines are resumed and joined, whatever they wait for, whoever goes first") {
  const first which = GENERATE(first::context, first::runtime);
  const int hint = GENERATE(BOOST_ASIO_CONCURRENCY_HINT_DEFAULT, 1);
  int ended = 0;
  int aborts = 0;
  int caught = 0;
  constexpr int kinds = 7;
  {
    client_alone client(hint);
    for (int kind = 0; kind < kinds; ++kind) {
      braid::spawn(
          *client.rt,
          [&, kind](yield_context self) {
            EchoRequest request;
            EchoResponse response;
            request.set_message("held");
            error_code ec;
            if (kind == 0) braid::sleep_for(24h, self[ec]);
            if (kind == 1) asio::steady_timer(self.get_executor(), 24h).async_wait(self[ec]);
            if (kind == 2) client.channel->async_call(echo(), request, response, self[ec]);
            if (kind == 3) {  // goes on as if nothing were, and is stopped all the same
              try {
                for (;;) braid::sleep_for(24h, self[ec]);
              } catch (const boost::system::system_error& e) {
                ec = e.code();
              }
            }
            if (kind == 4) {
              for (int i = 0; i < 100; ++i) {
                try {
                  asio::steady_timer(self.get_executor(), 24h).async_wait(self);
                } catch (...) {
                  ++caught;
                }
              }
              ec = aborted;
            }
            if (kind == 5) {  // a shield does not make the context run again
              braid::sleep_for(24h, self[ec]);
              const braid::shield guard(self, 1h);
              error_code shielded;
              asio::post(self.get_executor(), self);
              braid::sleep_for(1ms, self[shielded]);
            }
            if (kind == 6) {
              braid::spawn(
                  self, [](yield_context below) { braid::sleep_for(24h, below); }, self[ec]);
            }
            if (ec == aborted) ++aborts;
          },
          [&](error_code) { ++ended; });
    }
    client.run_ready();
    CHECK(ended == 0);
    client.end(which);
  }
  CHECK(ended == kinds);
  CHECK(caught == 100);
  CHECK(aborts >= kinds - 1);
}

TEST_CASE("lent end: a server's handlers end with its context, before and after the runtime") {
  const first which = GENERATE(first::context, first::runtime);
  world all;
  std::optional<asio::io_context> ioc(std::in_place);
  std::optional<braid::runtime> rt(std::in_place, *ioc, all.options());
  std::optional<braid::server> server(std::in_place, *rt);
  braid::cancel_cause cause{};
  int handlers = 0;
  server->handle(&golden::EchoService::Echo,
                 [&](braid::server_call&, const EchoRequest&, EchoResponse&, yield_context self) {
                   ++handlers;
                   error_code ec;
                   braid::sleep_for(24h, self[ec]);
                   cause = self.cancelled();
                   --handlers;
                 });
  server->start(server_address);
  braid::channel channel(*rt);
  channel.init(server_address, {.timeout = 1h, .connect_timeout = 1h});
  told_call call;
  call.start(channel);
  while (ioc->poll() != 0)
    ;
  CHECK(handlers == 1);
  if (which == first::runtime) rt.reset();
  ioc.reset();
  CHECK(handlers == 0);
  CHECK(call.times == 1);
  CHECK(cause != braid::cancel_cause::none);
  CHECK(server->stop().empty());
  server.reset();
}

TEST_CASE("lent end: a runtime may be destroyed in each kind of handler on its context") {
  world all;
  asio::io_context ioc;
  std::optional<braid::runtime> rt(std::in_place, ioc, all.options());
  const std::weak_ptr<braid::core::runtime_core> core = rt->core();
  int told = 0;
  error_code seen;
  const int kind = GENERATE(0, 1, 2);
  braid::spawn(
      *rt,
      [&](yield_context self) {
        if (kind == 0) rt.reset();
        braid::sleep_for(24h, self[seen]);
      },
      [&](error_code) { ++told; });
  if (kind == 1) asio::post(ioc, [&] { rt.reset(); });
  if (kind == 2)
    braid::spawn(
        *rt, [](yield_context) {}, [&](error_code) { rt.reset(); });
  ioc.run();
  CHECK(told == 1);
  CHECK(seen == aborted);
  CHECK(core.expired());
}

TEST_CASE("lent end: a server's handler may destroy its runtime; the rest of what was read is refused") {
  const bool in_callback = GENERATE(false, true);
  world all;
  asio::io_context ioc;
  std::optional<braid::runtime> rt(std::in_place, ioc, all.options());
  braid::server server(*rt);
  int handled = 0;
  if (in_callback) {
    server.handle(&golden::EchoService::Echo,
                  [&](braid::server_call&, const EchoRequest&, EchoResponse&, braid::call_done done) {
                    ++handled;
                    rt.reset();
                    done();
                  });
  } else {
    server.handle(&golden::EchoService::Echo, [&](braid::server_call&, const EchoRequest&, EchoResponse&) {
      ++handled;
      rt.reset();
    });
  }
  server.start(server_address);
  braid::runtime callers(ioc, all.options());
  braid::channel channel(callers);
  channel.init(server_address, {.timeout = 1h, .connect_timeout = 1h});
  std::vector<told_call> calls(3);
  for (auto& call : calls) call.start(channel);
  ioc.run();
  CHECK(handled == 1);
  for (auto& call : calls) {
    CHECK(call.times == 1);
    CHECK(call.ec == braid::errc::logoff);
  }
}

TEST_CASE("lent end: a callback of a call's end may destroy the runtime") {
  world all;
  asio::io_context ioc;
  std::optional<braid::runtime> rt(std::in_place, ioc, all.options());
  braid::server server(*rt);
  struct ending {
    std::optional<braid::runtime>& rt;
    int told = 0;
    void run() {
      ++told;
      rt.reset();
    }
  } at_end{rt};
  server.handle(&golden::EchoService::Echo,
                [&](braid::server_call& call, const EchoRequest&, EchoResponse& response) {
                  response.set_message("answered");
                  for (int i = 0; i < 3; ++i)
                    call.NotifyOnCancel(google::protobuf::NewCallback(&at_end, &ending::run));
                });
  server.start(server_address);
  braid::runtime callers(ioc, all.options());
  braid::channel channel(callers);
  channel.init(server_address, {.timeout = 1h, .connect_timeout = 1h});
  told_call call;
  call.start(channel);
  ioc.run();
  CHECK(at_end.told == 3);
  CHECK(call.times == 1);
  CHECK_FALSE(call.ec);
}

TEST_CASE("lent end: a stop of a server whose context nobody runs tells clients and handlers so") {
  world all;
  asio::io_context ioc;
  asio::io_context other;
  braid::runtime rt(ioc, all.options());
  braid::server server(rt);
  braid::cancel_cause cause{};
  server.handle(&golden::EchoService::Echo,
                [&](braid::server_call& call, const EchoRequest&, EchoResponse&, yield_context yield) {
                  error_code ec;
                  braid::sleep_for(24h, yield[ec]);
                  cause = call.cancelled();
                });
  server.start(server_address);
  braid::runtime callers(other, all.options());
  braid::channel channel(callers);
  channel.init(server_address, {.timeout = 1h, .connect_timeout = 1h});
  told_call call;
  call.start(channel);
  while (other.poll() + ioc.poll() != 0) ioc.restart();
  CHECK(server.stop({.grace = 0ms, .kill = 0ms}).size() == 1);
  other.run();
  CHECK(call.ec == braid::errc::logoff);
  ioc.restart();
  ioc.run();
  CHECK(cause == braid::cancel_cause::shutdown);
}

TEST_CASE("lent end: servers start and stop although nobody runs the context") {
  world all;
  asio::io_context ioc;
  braid::runtime rt(ioc, all.options());
  for (int i = 0; i < 3; ++i) {
    braid::server server(rt);
    serve(server);
    CHECK(server.port() == 80);
    if (i == 1) CHECK(server.stop({.grace = 24h}).empty());
  }
  // The last one's listener is closed with the runtime, although nothing of it ever ran.
  braid::server server(rt);
  serve(server);
}

TEST_CASE("lent end: several runtimes on one context end with it, also while they call one another") {
  world all;
  std::optional<asio::io_context> ioc(std::in_place);
  braid::runtime a(*ioc, all.options());
  braid::runtime b(*ioc, all.options());
  int ended = 0;
  const auto chatter = [&](braid::runtime& own, braid::runtime& other) {
    braid::spawn(
        own,
        [&](yield_context self) {
          error_code ec;
          while (self.cancelled() == braid::cancel_cause::none) {
            braid::spawn(
                other, [](yield_context far) { asio::post(far.get_executor(), far); }, self[ec]);
          }
        },
        [&](error_code) { ++ended; });
  };
  for (int i = 0; i < 4; ++i) {
    chatter(a, b);
    chatter(b, a);
  }
  for (int i = 0; i < 100; ++i) ioc->poll_one();
  ioc.reset();
  CHECK(ended == 8);
}

TEST_CASE(
    "lent end: what waits for something outside of a context that ends is named, and its stack is left") {
  // Apart, since it leaves memory behind, which a checker for leaks would find.
  const auto [status, text] = child_process::in_own_process([] {
    asio::thread_pool pool(1);
    std::promise<void> held;
    world all;
    {
      std::optional<asio::io_context> ioc(std::in_place);
      braid::runtime rt(*ioc, all.options());
      asio::post(pool, [&] { get(held.get_future()); });
      braid::spawn(rt,
                   [&](yield_context self) { asio::post(asio::bind_executor(pool.get_executor(), self)); });
      braid::spawn(rt, [&](yield_context self) {
        for (;;) {  // ignores everything
          try {
            braid::sleep_for(1h, self);
          } catch (...) {
          }
        }
      });
      while (ioc->poll() != 0)
        ;
      ioc.reset();
    }
    const bool told = all.log.count("their stacks are left") == 1 && all.log.count("lent_end_test.cpp") == 1;
    held.set_value();
    pool.join();  // its handler finds what it writes to
    if (!told) ::_exit(1);
  });
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == child_process::ended_well));
}
