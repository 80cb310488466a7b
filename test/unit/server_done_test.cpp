// Answers that come after the handler has returned, late, twice or never.

#include "unit/server_world.hpp"

using namespace server_test;

TEST_CASE("server: done may run later, and running it twice answers once") {
  world w;
  google::protobuf::Closure* kept = nullptr;
  w.service.run = [&](server_call& call, const EchoRequest& q, EchoResponse& r,
                      google::protobuf::Closure* done) {
    echo_service::answer(call, q, r);
    kept = done;
    if (q.message() != "twice") return;
    done->Run();
    done->Run();
  };
  w.start();
  auto client = w.connect();
  client.send(echo(1, "later"));
  w.sim.run_for(1s);
  CHECK(client.answers().empty());
  kept->Run();
  w.sim.run_for(0s);
  REQUIRE(client.answers().size() == 1);
  CHECK(client.answers()[0].message() == "later");
  client.send(echo(2, "twice"));
  REQUIRE(client.answers().size() == 2);
  CHECK(client.answers()[1].id == 2);
}

TEST_CASE("server: a handler that has answered may go on; its answer does not wait for it") {
  world w;
  bool over = false;
  braid::runtime* on = &*w.server_side;
  w.service.run = [&](server_call& call, const EchoRequest& q, EchoResponse& r,
                      google::protobuf::Closure* done) {
    auto* const here = on->core()->current()->running_coroutine();
    REQUIRE(here != nullptr);
    echo_service::answer_at_once(call, q, r, done);
    braid::sleep_for(1s, yield_context(*here));
    over = true;
  };
  w.start();
  auto client = w.connect();
  client.send(echo(1, "x"));
  CHECK(client.answers().size() == 1);
  CHECK_FALSE(over);
  w.sim.run_for(2s);
  CHECK(over);
}

TEST_CASE("server: a call whose done never runs ends at its deadline or with its connection, and is logged") {
  world w;
  std::vector<google::protobuf::Closure*> kept;
  std::vector<server_call*> calls;
  w.service.run = [&](server_call& call, const EchoRequest&, EchoResponse&, google::protobuf::Closure* done) {
    kept.push_back(done);
    calls.push_back(&call);
  };
  w.start();
  const char* const line = "warning: a handler returned and has not run done";
  {
    auto client = w.connect();
    client.send(echo_within(1, "x", 100));
    w.sim.run_for(200ms);
    REQUIRE(client.answers().size() == 1);
    CHECK(client.answers()[0].code == 1008);
    w.sim.run_for(2s);
    CHECK(w.log.count(line) == 1);
    client.send(echo(2, "y"));
    client.reset();
  }
  w.sim.run_for(2s);
  CHECK(w.log.count(line) == 2);
  REQUIRE(calls.size() == 2);
  CHECK(calls[0]->cancelled() == cancel_cause::deadline);  // their state is alive
  CHECK(calls[1]->cancelled() == cancel_cause::peer_gone);
  for (auto* each : kept) each->Run();
  w.sim.run_for(0s);
  CHECK(w.srv->stop(within(0ms, 0ms)).empty());
}

TEST_CASE(
    "server: cancelled calls that are answered later are not logged, those that never are once a second") {
  constexpr int count = 200;
  const bool answers = GENERATE(true, false);
  world w;
  std::vector<google::protobuf::Closure*> kept;
  w.service.run = [&](server_call&, const EchoRequest&, EchoResponse&, google::protobuf::Closure* done) {
    kept.push_back(done);
  };
  w.start();
  {
    auto client = w.connect();
    std::string requests;
    for (int i = 0; i < count; ++i) requests += i % 2 == 0 ? echo(i, "x") : echo_within(i, "x", 10);
    client.send(requests);
    w.sim.run_for(20ms);
    client.reset();
  }
  REQUIRE(kept.size() == count);
  w.sim.run_for(100ms);
  CHECK(w.log.count("has not run done") == 0);
  if (answers)
    for (auto* each : kept) each->Run();
  w.sim.run_for(10s);
  const auto lines = w.log.count("has not run done");
  if (answers) {
    CHECK(lines == 0);
  } else {
    CHECK(lines >= 1);
    CHECK(lines <= 2);
    for (auto* each : kept) each->Run();
  }
  w.sim.run_for(0s);
}

TEST_CASE("server: a handler that drops its done is logged at most once a second") {
  world w;
  w.srv->handle(&EchoService::Echo, [](server_call&, const EchoRequest&, EchoResponse&, braid::call_done) {});
  w.srv->start("10.0.0.1:80");
  auto client = w.connect();
  for (int i = 0; i < 200; ++i) client.send(echo(i, "x"));
  CHECK(w.log.count("has dropped its done") == 1);
}

TEST_CASE("server: done may run after the server and its runtime are gone") {
  google::protobuf::Closure* kept[3] = {};
  int notified = 0;
  {
    world w;
    std::size_t n = 0;
    w.service.run = [&](server_call& call, const EchoRequest&, EchoResponse&,
                        google::protobuf::Closure* done) {
      call.NotifyOnCancel(google::protobuf::NewCallback(
          +[](int* count) { ++*count; }, &notified));
      kept[n++] = done;
    };
    w.start();
    auto client = w.connect();
    client.send(echo(1, "x")).send(echo_within(2, "y", 10)).send(echo(3, "z"));
    w.sim.run_for(1s);
  }
  CHECK(notified == 3);
  for (auto* each : kept) each->Run();
}

TEST_CASE("server: a cancellation's callback may run done") {
  world w;
  google::protobuf::Closure* kept = nullptr;
  int notified = 0;
  struct told {
    google::protobuf::Closure*& done;
    int& count;
    void run() {
      ++count;
      done->Run();
    }
  } first{kept, notified};
  w.service.run = [&](server_call& call, const EchoRequest&, EchoResponse&, google::protobuf::Closure* done) {
    kept = done;
    for (int i = 0; i < 3; ++i) call.NotifyOnCancel(google::protobuf::NewCallback(&first, &told::run));
  };
  w.start();
  auto client = w.connect();
  client.send(echo_within(1, "x", 10));
  w.sim.run_for(100ms);
  CHECK(notified == 3);
  REQUIRE(client.answers().size() == 1);
  CHECK(client.answers()[0].code == 1008);
}
