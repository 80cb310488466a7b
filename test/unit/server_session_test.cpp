#include <braid/channel.hpp>
#include <braid/spawn.hpp>

#include "unit/server_world.hpp"

#include <boost/asio/error.hpp>

#include <stdexcept>

using namespace server_test;

// Errors told to clients

TEST_CASE("server: an unknown service is 1001, an unknown method 1002, and a short service name resolves") {
  world w;
  w.start();
  auto client = w.connect();
  auto meta = echo_meta(1);
  meta.request.service_name = "golden.NoSuchService";
  client.send(frame(meta, payload("x")));
  meta = echo_meta(2);
  meta.request.method_name = "NoSuchMethod";
  client.send(frame(meta, payload("x")));
  meta = echo_meta(3);
  meta.request.service_name = "EchoService";
  client.send(frame(meta, payload("short")));
  meta = echo_meta(4);
  meta.request.method_name = "Missing";
  client.send(frame(meta, payload("x")));
  const auto got = client.answers();
  REQUIRE(got.size() == 4);
  CHECK(got[0].code == 1001);
  CHECK(got[0].text.find("golden.NoSuchService") != std::string::npos);
  CHECK(got[1].code == 1002);
  CHECK(got[1].text.find("NoSuchMethod") != std::string::npos);
  CHECK(got[2].code == 0);
  CHECK(got[2].message() == "short");
  CHECK(got[3].code == 2001);  // declared and not implemented
}

TEST_CASE("server: a request that cannot be read is 1003 and runs no handler") {
  world w;
  int ran = 0;
  w.service.run = [&](server_call& call, const EchoRequest& q, EchoResponse& r,
                      google::protobuf::Closure* done) {
    ++ran;
    echo_service::answer_at_once(call, q, r, done);
  };
  w.start();
  auto client = w.connect();
  client.send(frame(echo_meta(1), "\xff\xff\xff"));
  client.send(frame(echo_meta(2), ""));  // lacks the required message
  for (const std::int32_t size : {-1, 100}) {
    auto meta = echo_meta(3);
    meta.attachment_size = size;
    client.send(frame(meta, payload("x")));
  }
  auto meta = echo_meta(5);
  meta.compress_type = 2;
  client.send(frame(meta, payload("x")));
  meta = echo_meta(6);
  meta.content_type = 1;
  client.send(frame(meta, payload("x")));
  meta = echo_meta(7);
  meta.checksum_type = 1;
  meta.checksum_value = "abcd";
  client.send(frame(meta, payload("x")));
  const auto got = client.answers();
  REQUIRE(got.size() == 7);
  for (const auto& each : got) CHECK(each.code == 1003);
  CHECK(got[1].text.find("message") != std::string::npos);
  CHECK(got[2].text.find("attachment_size") != std::string::npos);
  CHECK(got[4].text.find("no valid gzip") != std::string::npos);
  CHECK(got[5].text.find("no valid JSON") != std::string::npos);
  CHECK(got[6].text.find("checksum is wrong") != std::string::npos);
  CHECK(ran == 0);
  client.send(echo(8, "still here"));
  CHECK(client.answers().back().message() == "still here");
}

TEST_CASE("server: a handler that throws fails its call alone with 2001; the real text is logged, not sent") {
  world w;
  w.start([](server_call&, const EchoRequest& q, EchoResponse& r, yield_context) {
    if (q.message() == "std") throw std::runtime_error("secret std");
    if (q.message() == "int") throw 42;
    if (q.message() == "call") throw braid::call_error(errc::timed_out, "secret call");
    if (q.message() == "system")
      throw boost::system::system_error(boost::asio::error::connection_refused, "secret system");
    r.set_message(q.message());
  });
  auto client = w.connect();
  std::int64_t id = 0;
  for (const char* kind : {"std", "int", "call", "system"}) {
    client.send(echo(++id, kind));
    w.sim.run_for(1s);  // after which one more is logged
  }
  client.send(echo(5, "fine"));
  const auto got = client.answers();
  REQUIRE(got.size() == 5);
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(got[i].code == 2001);
    CHECK(got[i].text == "the handler of golden.EchoService.Echo failed");
  }
  CHECK(got[4].message() == "fine");
  CHECK(w.log.count("error: the handler of golden.EchoService.Echo was ended by an exception: secret std") ==
        1);
  CHECK(w.log.count("secret call") == 1);
  CHECK(w.log.count("secret system") == 1);
  CHECK(w.log.count("no std::exception") == 1);
}

TEST_CASE("server: handlers that throw fill no log") {
  world w;
  w.start([](server_call&, const EchoRequest&, EchoResponse&, yield_context) {
    throw std::runtime_error("secret");
  });
  auto client = w.connect();
  for (int i = 1; i <= 100; ++i) client.send(echo(i, "x"));
  CHECK(client.answers().size() == 100);
  CHECK(w.log.count("error: ") == 1);
  w.sim.run_for(1s);
  client.send(echo(101, "x"));
  CHECK(w.log.count("error: ") == 2);
}

TEST_CASE("server: what a handler throws when its call is cancelled or past its deadline is no error line") {
  world w;
  w.start([](server_call&, const EchoRequest& q, EchoResponse&, yield_context yield) {
    error_code ec;
    const std::chrono::nanoseconds last = q.message() == "early" ? 99'500us : 1min;
    braid::sleep_for(last, yield[ec]);
    throw braid::call_error(errc::timed_out, "the call to another server");
  });
  auto client = w.connect();
  SECTION("at the deadline") { client.send(echo_within(1, "late", 100)); }
  SECTION("by a server behind it, which was told the rest of the time rounded down") {
    client.send(echo_within(1, "early", 100));
  }
  SECTION("whose client is gone") {
    client.send(echo(1, "late"));
    client.reset();
  }
  w.sim.run_for(1s);
  CHECK(w.log.count("debug: the handler of golden.EchoService.Echo was ended by an exception: ") == 1);
  CHECK(w.log.count("error: ") == 0);
}

TEST_CASE("server: a method of a generated service may throw, also after it has answered") {
  world w;
  w.service.run = [](server_call& call, const EchoRequest& q, EchoResponse& r,
                     google::protobuf::Closure* done) {
    if (q.message() == "after") echo_service::answer_at_once(call, q, r, done);
    throw std::runtime_error("secret");
  };
  w.start();
  auto client = w.connect();
  client.send(echo(1, "before"));
  w.sim.run_for(1s);
  client.send(echo(2, "after"));
  const auto got = client.answers();
  REQUIRE(got.size() == 2);
  CHECK(got[0].code == 2001);
  CHECK(got[1].code == 0);
  CHECK(w.log.count("secret") == 2);
}

TEST_CASE("server: a handler's own code and text reach the client") {
  world w;
  w.start();
  auto client = w.connect();
  client.send(frame(echo_meta(1), payload("x", 12345)));
  client.send(frame(echo_meta(2), payload("x", 112)));
  const auto got = client.answers();
  REQUIRE(got.size() == 2);
  CHECK(got[0].code == 12345);
  CHECK(got[0].text == "asked to fail");
  CHECK(got[0].payload.empty());
  CHECK(got[1].code == 112);
}

TEST_CASE("server: a response that cannot be sent is 2002") {
  world w;
  w.start([](server_call& call, const EchoRequest& q, EchoResponse& r, yield_context) {
    if (q.message() == "metadata") {
      call.mutable_response_metadata().set_user_field("k", std::string(70'000, 'x'));
      r.set_message("x");
    }
  });
  auto client = w.connect();
  client.send(echo(1, "lacks")).send(echo(2, "metadata"));
  const auto got = client.answers();
  REQUIRE(got.size() == 2);
  CHECK(got[0].code == 2002);
  CHECK(got[0].text.find("message") != std::string::npos);
  CHECK(got[1].code == 2002);
  CHECK(got[1].text.find("metadata") != std::string::npos);
}

TEST_CASE("server: a handler sees peer, metadata, attachment and method, and answers with its own") {
  world w;
  std::optional<braid::metadata> seen;
  std::string method;
  std::string remote;
  w.start([&](server_call& call, const EchoRequest& q, EchoResponse& r, yield_context) {
    seen = call.request_metadata();
    method = call.method().full_name();
    remote = call.remote_side().to_string();
    r.set_message(q.message());
    call.mutable_response_metadata().set_user_field("answer", "field");
    call.response_attachment() = braid::buffer(std::string_view("back"));
  });
  auto client = w.connect();
  auto meta = echo_meta(1);
  meta.request.log_id = 42;
  meta.request.trace_id = 43;
  meta.request.request_id = "req";
  meta.user_fields = {{"k", "v"}};
  meta.attachment_size = 5;
  client.send(frame(meta, payload("x"), "there"));
  const auto got = client.answers();
  REQUIRE(got.size() == 1);
  REQUIRE(seen);
  CHECK(seen->log_id == 42);
  CHECK(seen->trace_id == 43);
  CHECK(seen->request_id == "req");
  CHECK(seen->user_field("k") == "v");
  CHECK(seen->attachment.to_string() == "there");
  CHECK(method == "golden.EchoService.Echo");
  CHECK(remote.starts_with("10.") | remote.starts_with("127."));
  CHECK(got[0].attachment == "back");
  CHECK(got[0].fields == std::map<std::string, std::string>{{"answer", "field"}});
}

// Deadlines

TEST_CASE("server: timeout_ms of zero or less is 1008 and not run") {
  world w;
  int ran = 0;
  w.start([&](server_call&, const EchoRequest&, EchoResponse& r, yield_context) {
    ++ran;
    r.set_message("x");
  });
  auto client = w.connect();
  client.send(echo_within(1, "x", 0)).send(echo_within(2, "x", -5));
  const auto got = client.answers();
  REQUIRE(got.size() == 2);
  CHECK(got[0].code == 1008);
  CHECK(got[1].code == 1008);
  CHECK(ran == 0);
}

TEST_CASE(
    "server: at the deadline the client gets 1008, the handler is cancelled and its later answer dropped") {
  std::chrono::nanoseconds left{};
  error_code ended_with;
  cancel_cause cause{};
  cancel_cause shown{};
  world w;
  w.start([&](server_call& call, const EchoRequest&, EchoResponse& r, yield_context yield) {
    left = call.deadline() - yield.now();
    braid::sleep_for(1h, yield[ended_with]);
    cause = yield.cancelled();
    shown = call.cancelled();
    CHECK(call.IsCanceled());
    r.set_message("late");
  });
  auto client = w.connect();
  client.send(echo_within(1, "x", 100));
  w.sim.run_for(99ms);
  CHECK(client.answers().empty());
  w.sim.run_for(3ms);
  const auto got = client.answers();
  REQUIRE(got.size() == 1);
  CHECK(got[0].code == 1008);
  CHECK(left == 100ms);
  CHECK(ended_with == boost::asio::error::operation_aborted);
  CHECK(cause == cancel_cause::deadline);
  CHECK(shown == cancel_cause::deadline);
  w.sim.run_for(2h);
  CHECK(client.answers().size() == 1);
}

TEST_CASE("server: default_timeout counts where the client sent none; without both a call is held") {
  SECTION("default_timeout") {
    world w({.default_timeout = 50ms});
    w.start([](server_call&, const EchoRequest&, EchoResponse&, yield_context yield) {
      braid::sleep_for(1h, yield);
    });
    auto client = w.connect();
    client.send(echo(1, "x"));
    w.sim.run_for(49ms);
    CHECK(client.answers().empty());
    w.sim.run_for(3ms);
    REQUIRE(client.answers().size() == 1);
    CHECK(client.answers()[0].code == 1008);
  }
  SECTION("none") {
    world w;
    bool unlimited = false;
    w.start([&](server_call& call, const EchoRequest&, EchoResponse& r, yield_context yield) {
      unlimited = call.deadline() == std::chrono::steady_clock::time_point::max();
      braid::sleep_for(5h, yield);
      r.set_message("patience");
    });
    auto client = w.connect();
    client.send(echo(1, "x"));
    w.sim.run_for(4h);
    CHECK(client.answers().empty());
    CHECK(unlimited);
    w.sim.run_for(2h);
    REQUIRE(client.answers().size() == 1);
    CHECK(client.answers()[0].message() == "patience");
  }
}

// Answers that come later

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

// The peer goes

TEST_CASE("server: a reset cancels the connection's calls with peer_gone") {
  std::vector<cancel_cause> causes;
  world w;
  w.start([&](server_call& call, const EchoRequest&, EchoResponse&, yield_context yield) {
    error_code ec;
    braid::sleep_for(1h, yield[ec]);
    causes.push_back(call.cancelled());
  });
  auto client = w.connect();
  auto other = w.connect();
  client.send(echo(1, "x") + echo(2, "y"));
  other.send(echo(3, "z"));
  client.reset();
  CHECK(causes == std::vector{cancel_cause::peer_gone, cancel_cause::peer_gone});
  CHECK(w.connections() == 1);
}

TEST_CASE("server: a client that has vanished, as keepalive and user timeout tell, has its calls cancelled") {
  std::vector<cancel_cause> causes;
  world w;
  w.start([&](server_call& call, const EchoRequest&, EchoResponse&, yield_context yield) {
    error_code ec;
    braid::sleep_for(1h, yield[ec]);
    causes.push_back(call.cancelled());
  });
  auto client = w.connect();
  client.send(echo(1, "x") + echo(2, "y"));
  w.sim.network().break_connections(w.at, {ETIMEDOUT, boost::system::system_category()});
  w.sim.run_for(0s);
  CHECK(causes == std::vector{cancel_cause::peer_gone, cancel_cause::peer_gone});
  CHECK(client.why_broken == boost::asio::error::timed_out);  // which no reset is
}

TEST_CASE("server: end of file is a half-close: complete requests are answered, then the connection closes") {
  world w({.progress_timeout = 1s});
  w.start([](server_call& call, const EchoRequest& q, EchoResponse& r, yield_context yield) {
    braid::sleep_for(5s, yield);
    CHECK(call.cancelled() == cancel_cause::none);
    r.set_message(q.message());
  });
  auto client = w.connect();
  client.send(echo(1, "first") + echo(2, "second") + echo(3, "third").substr(0, 20));
  client.end_sending();
  w.sim.run_for(4s);
  CHECK_FALSE(client.closed());  // the incomplete frame was dropped, and is not waited for
  w.sim.run_for(2s);
  const auto got = client.answers();
  REQUIRE(got.size() == 2);
  CHECK(got[0].message() == "first");
  CHECK(got[1].message() == "second");
  CHECK(client.ended);
  CHECK_FALSE(client.broken);
}

TEST_CASE("server: after a half-close the first failed write cancels the rest") {
  std::vector<cancel_cause> causes;
  world w;
  w.start([&](server_call& call, const EchoRequest& q, EchoResponse& r, yield_context yield) {
    error_code ec;
    braid::sleep_for(q.message() == "short" ? 1s : 1h, yield[ec]);
    causes.push_back(call.cancelled());
    r.set_message(q.message());
  });
  auto client = w.connect();
  client.send(echo(1, "short") + echo(2, "long"));
  client.end_sending();
  client.reset();
  w.sim.run_for(2s);
  REQUIRE(causes.size() == 2);
  CHECK(causes.back() == cancel_cause::peer_gone);
  CHECK(w.connections() == 0);
}

// Calls downstream

TEST_CASE(
    "server: calls of a handler inherit the remaining deadline and the cancellation over a chain of "
    "servers") {
  std::chrono::nanoseconds left_at_c{};
  std::vector<std::string> ends;
  world w;
  braid::runtime rt_b(node(w.sim, w.log));
  braid::runtime rt_c(node(w.sim, w.log));
  braid::server b(rt_b);
  braid::server c(rt_c);
  braid::channel to_b(*w.server_side);
  braid::channel to_c(rt_b);
  to_b.init("10.0.0.2:80", {.timeout = 1h});
  to_c.init("10.0.0.3:80", {.timeout = 1h});
  const auto method = &braid::describe_method(&EchoService::Echo);
  const auto relay = [&](braid::channel& next, const char* name) {
    return [&, name](server_call& call, const EchoRequest& q, EchoResponse& r, yield_context yield) {
      braid::sleep_for(10ms, yield);
      braid::controller control;
      error_code ec;
      next.async_call(*method, control, q, r, yield[ec]);
      ends.push_back(std::string(name) + " " + std::to_string(braid::to_wire(ec)) + " " +
                     std::string(to_string(call.cancelled())));
    };
  };
  w.srv->handle(&EchoService::Echo, relay(to_b, "a"));
  b.handle(&EchoService::Echo, relay(to_c, "b"));
  c.handle(&EchoService::Echo,
           [&](server_call& call, const EchoRequest& q, EchoResponse& r, yield_context yield) {
             left_at_c = call.deadline() - yield.now();
             error_code ec;
             if (q.message() == "slow") braid::sleep_for(1h, yield[ec]);
             if (ec) ends.push_back("c " + std::string(to_string(call.cancelled())));
             r.set_message(q.message() + " from c");
           });
  w.srv->start("10.0.0.1:80");
  b.start("10.0.0.2:80");
  c.start("10.0.0.3:80");
  auto client = w.connect();

  SECTION("the answer comes back") {
    client.send(echo_within(1, "quick", 1000));
    w.sim.run_for(100ms);
    REQUIRE(client.answers().size() == 1);
    CHECK(client.answers()[0].message() == "quick from c");
    CHECK(left_at_c <= 980ms);
    CHECK(left_at_c >= 970ms);
  }
  SECTION("the deadline ends all of them") {
    client.send(echo_within(1, "slow", 200));
    w.sim.run_for(210ms);
    REQUIRE(client.answers().size() == 1);
    CHECK(client.answers()[0].code == 1008);
    std::sort(ends.begin(), ends.end());
    CHECK(ends == std::vector<std::string>{"a 1008 deadline", "b 1008 deadline", "c deadline"});
  }
  SECTION("the client's going ends all of them at once") {
    client.send(echo_within(1, "slow", 10'000));
    w.sim.run_for(100ms);
    client.reset();
    std::sort(ends.begin(), ends.end());
    CHECK(ends == std::vector<std::string>{"a 125 peer_gone", "b 125 peer_gone", "c peer_gone"});
  }
}

TEST_CASE("server: detached calls, and calls that still run when the handler has answered, go on") {
  world w;
  braid::runtime rt_b(node(w.sim, w.log));
  braid::server b(rt_b);
  b.handle(&EchoService::Echo, [](server_call&, const EchoRequest& q, EchoResponse& r, yield_context yield) {
    braid::sleep_for(1s, yield);
    r.set_message(q.message());
  });
  b.start("10.0.0.2:80");
  braid::channel to_b(*w.server_side);
  to_b.init("10.0.0.2:80", {.timeout = 1h});
  const auto& method = braid::describe_method(&EchoService::Echo);
  EchoResponse response;
  braid::controller control;
  error_code code = errc::internal;
  bool handler_ended = false;
  w.start([&](server_call&, const EchoRequest& q, EchoResponse& r, yield_context yield) {
    if (q.message() == "detached") {
      control.set_detached(true);
      to_b.async_call(method, control, q, response, yield[code]);
    } else {
      to_b.async_call(method, control, q, response, [&](error_code ec) { code = ec; });
    }
    handler_ended = true;
    r.set_message("done");
  });
  auto client = w.connect();
  SECTION("answered") {
    client.send(echo(1, "left running"));
    CHECK(client.answers().size() == 1);
    w.sim.run_for(2s);
    CHECK_FALSE(code);
    CHECK(response.message() == "left running");
  }
  SECTION("detached, past the deadline") {
    client.send(echo_within(1, "detached", 100));
    w.sim.run_for(200ms);
    REQUIRE(client.answers().size() == 1);
    CHECK(client.answers()[0].code == 1008);
    CHECK_FALSE(handler_ended);
    w.sim.run_for(2s);
    CHECK(handler_ended);
    CHECK(control.result().cause != cancel_cause::deadline);
  }
}

// Limits

TEST_CASE("server: a body over max_body_size fails that call alone with 1003 and a text naming the limit") {
  world w({.max_body_size = 1000});
  w.start();
  auto client = w.connect();
  client.send(frame(echo_meta(1), std::string(950, 'x')).substr(0, 1));  // the frames come in any pieces
  client.send(frame(echo_meta(1), payload(std::string(5'000'000, 'x'))).substr(1) + echo(2, "lives"));
  w.sim.run_for(1s);
  const auto got = client.answers();
  REQUIRE(got.size() == 2);
  CHECK(got[0].id == 1);
  CHECK(got[0].code == 1003);
  CHECK(got[0].text.find("1000") != std::string::npos);
  CHECK(got[1].message() == "lives");
}

TEST_CASE("server: an oversized request is answered from its header and meta, before its body has come") {
  world w({.max_body_size = 1000});
  w.start();
  auto client = w.connect();
  auto other = w.connect();
  client.send(frame(echo_meta(1), std::string(100'000, 'x')).substr(0, 200));
  other.send(echo(2, "x"));
  REQUIRE(client.answers().size() == 1);
  CHECK(client.answers()[0].code == 1003);
  CHECK(other.answers().size() == 1);
  CHECK_FALSE(client.closed());
  w.sim.run_for(11s);
  CHECK(client.closed());  // the rest never came
  CHECK_FALSE(other.closed());
}

TEST_CASE("server: what can be no frame closes the connection at once, after the requests before it") {
  const std::string good = echo(1, "before");
  std::string huge_meta(12, '\0');
  braid::wire::encode_header({.body_size = 100'000, .meta_size = 70'000}, huge_meta.data());
  std::string meta_over_body(12, '\0');
  braid::wire::encode_header({.body_size = 10, .meta_size = 11}, meta_over_body.data());
  std::string bad_meta(12, '\0');
  braid::wire::encode_header({.body_size = 3, .meta_size = 3}, bad_meta.data());
  bad_meta += "\xff\xff\xff";
  for (const std::string& bad : {std::string("X"), std::string("PRPX"), std::string("GET / HTTP/1.1\r\n"),
                                 huge_meta, meta_over_body, bad_meta}) {
    CAPTURE(bad);
    world w;
    w.start();
    auto client = w.connect();
    client.send(good + bad);
    CHECK(client.closed());
    REQUIRE(client.answers().size() == 1);
    CHECK(client.answers()[0].message() == "before");
    CHECK(w.log.count("warning: a client broke the protocol") == 1);
  }
}

// Stopping

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
