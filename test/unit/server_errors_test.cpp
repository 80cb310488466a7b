// What a server tells clients of what went wrong, and what it logs instead.

#include "unit/server_world.hpp"

#include <boost/asio/error.hpp>

#include <stdexcept>

using namespace server_test;

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
