// Stopping a server: grace, cancelling, handlers that stay.

#include "unit/server_world.hpp"

#include <boost/asio/error.hpp>

using namespace server_test;

TEST_CASE("server: a stop lets running calls end in their grace, and answers new requests with 2003") {
  world w;
  w.start([](server_call&, const EchoRequest& q, EchoResponse& r, yield_context yield) {
    braid::sleep_for(1s, yield);
    r.set_message(q.message());
  });
  auto client = w.connect();
  auto idle = w.connect();
  client.send(echo(1, "running"));
  std::optional<std::vector<std::string>> names;
  w.srv->async_stop(within(10s, 10s),
                    [&](error_code, std::vector<std::string> left) { names = std::move(left); });
  w.sim.run_for(500ms);
  client.send(echo(2, "new"));
  REQUIRE(client.answers().size() == 1);
  CHECK(client.answers()[0].code == 2003);
  CHECK_FALSE(names);
  w.sim.run_for(600ms);
  REQUIRE(client.answers().size() == 2);
  CHECK(client.answers()[1].message() == "running");
  REQUIRE(names);
  CHECK(names->empty());
  CHECK(client.closed());
  CHECK(idle.closed());
}

TEST_CASE("server: after the grace running calls are cancelled and answered 2003") {
  cancel_cause cause{};
  world w;
  w.start([&](server_call& call, const EchoRequest&, EchoResponse& r, yield_context yield) {
    error_code ec;
    braid::sleep_for(1h, yield[ec]);
    cause = call.cancelled();
    r.set_message("too late");
  });
  auto client = w.connect();
  client.send(echo(1, "x"));
  const auto before = w.sim.now();
  CHECK(w.srv->stop(within(300ms, 10s)).empty());
  CHECK(w.sim.now() - before >= 300ms);
  CHECK(w.sim.now() - before <= 310ms);
  CHECK(cause == cancel_cause::shutdown);
  w.sim.run_for(1s);
  REQUIRE(client.answers().size() == 1);
  CHECK(client.answers()[0].code == 2003);
}

TEST_CASE("server: a stop returns after grace and kill time, and names the handlers that ignored it") {
  google::protobuf::Closure* kept = nullptr;
  bool alive = false;
  world w;
  w.service.run = [&](server_call& call, const EchoRequest& q, EchoResponse& r,
                      google::protobuf::Closure* done) {
    if (q.message() == "kept") {
      kept = done;
      return;
    }
    auto* const here = w.server_side->core()->current()->running_coroutine();
    const braid::shield ignoring(yield_context(*here), 1h);
    braid::sleep_for(10s, yield_context(*here));
    alive = q.message() == "shielded" && call.cancelled() == cancel_cause::shutdown;
    echo_service::answer_at_once(call, q, r, done);
  };
  w.start();
  auto client = w.connect();
  client.send(echo(1, "kept") + echo(2, "shielded"));
  const std::vector<std::string> both(2, "the handler of golden.EchoService.Echo");
  auto before = w.sim.now();
  CHECK(w.srv->stop(within(300ms, 200ms)) == both);
  CHECK(w.sim.now() - before >= 500ms);
  CHECK(w.sim.now() - before <= 510ms);
  w.sim.run_for(1ms);
  REQUIRE(client.answers().size() == 2);
  CHECK(client.answers()[0].code == 2003);
  CHECK(client.closed());
  // Again, and by the destructor: at once.
  before = w.sim.now();
  CHECK(w.srv->stop(within(1h, 1h)) == both);
  w.srv.reset();
  CHECK(w.sim.now() - before <= 10ms);
  w.sim.run_for(11s);
  CHECK(alive);
  kept->Run();
}

TEST_CASE("server: of several stops the shortest times count, and all of them are told") {
  world w;
  w.start([](server_call&, const EchoRequest&, EchoResponse&, yield_context yield) {
    braid::sleep_for(1h, yield);
  });
  auto client = w.connect();
  client.send(echo(1, "x"));
  int told = 0;
  const auto count = [&](error_code, const std::vector<std::string>&) { ++told; };
  w.srv->async_stop(within(10min, 10min), count);
  w.srv->async_stop(within(1min, 1min), count);
  w.srv->async_stop(within(20min, 1s), count);
  w.sim.run_for(59s);
  CHECK(told == 0);
  w.sim.run_for(2s);
  CHECK(told == 3);
}

TEST_CASE("server: stop is refused on its own loop, where async_stop works") {
  error_code refused;
  bool stopped = false;
  world w;
  w.start([&](server_call&, const EchoRequest& q, EchoResponse& r, yield_context yield) {
    try {
      w.srv->stop();
    } catch (const boost::system::system_error& e) {
      refused = e.code();
    }
    w.srv->async_stop(within(1s, 1s), [&](error_code, const std::vector<std::string>&) { stopped = true; });
    braid::sleep_for(500ms, yield);
    r.set_message(q.message());
  });
  auto client = w.connect();
  client.send(echo(1, "x"));
  CHECK(refused.value() == EDEADLK);
  w.sim.run_for(600ms);
  CHECK(stopped);
  REQUIRE(client.answers().size() == 1);
  CHECK(client.answers()[0].message() == "x");
}

TEST_CASE("server: destroyed on its own loop, it still answers what ran") {
  world w;
  w.start([&](server_call&, const EchoRequest& q, EchoResponse& r, yield_context yield) {
    w.srv.reset();
    error_code ec;
    braid::sleep_for(1h, yield[ec]);
    r.set_message(q.message());
  });
  auto client = w.connect();
  client.send(echo(1, "x"));
  w.sim.run_for(10ms);
  REQUIRE(client.answers().size() == 1);
  CHECK(client.answers()[0].code == 2003);
  CHECK(client.closed());
}

TEST_CASE("server: the runtime may go before the server, and a stop afterwards returns") {
  bool ended = false;
  world w;
  w.start([&](server_call&, const EchoRequest&, EchoResponse&, yield_context yield) {
    error_code ec;
    braid::sleep_for(1h, yield[ec]);
    ended = ec == boost::asio::error::operation_aborted;
  });
  auto client = w.connect();
  client.send(echo(1, "x"));
  w.server_side.reset();
  w.sim.run_for(1s);
  CHECK(ended);
  REQUIRE(client.answers().size() == 1);
  CHECK(client.answers()[0].code == 2003);
  CHECK(client.closed());
  CHECK(w.srv->stop().empty());
  error_code ec;
  w.srv->start("10.0.0.1:81", ec);
  CHECK(ec == boost::asio::error::operation_aborted);
}

TEST_CASE("server: a stopped one cannot be started again") {
  world w;
  w.start();
  auto idle = w.connect();
  CHECK(w.srv->stop().empty());
  CHECK(w.srv->stop().empty());
  w.sim.run_for(1ms);
  CHECK(idle.closed());
  error_code ec;
  w.srv->start("10.0.0.1:81", ec);
  CHECK(ec == boost::asio::error::operation_aborted);
}

TEST_CASE("server: one that was never started stops at once, and has no port") {
  world w;
  CHECK(w.srv->port() == 0);
  CHECK(w.srv->endpoints().empty());
  CHECK(w.srv->stop().empty());
  // Not inside the initiating function either.
  bool inside = true;
  bool stopped = false;
  w.server_side->core()->home().post([&] {
    w.srv->async_stop({}, [&](error_code ec, const std::vector<std::string>& left) {
      CHECK_FALSE(inside);
      CHECK_FALSE(ec);
      CHECK(left.empty());
      stopped = true;
    });
    inside = false;
  });
  w.sim.run_for(0s);
  CHECK(stopped);
}
