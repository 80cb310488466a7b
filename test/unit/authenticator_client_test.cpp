// Credentials as a client sends them, against scripted servers, and from end to end.

#include "golden/golden_frames.hpp"
#include "unit/auth_fixture.hpp"
#include "unit/call_fixture.hpp"
#include "unit/sent_frames.hpp"
#include "unit/server_fixture.hpp"
#include "wire/control_frame.hpp"

#include <catch2/catch.hpp>

#include <deque>
#include <stdexcept>

namespace {

using namespace call_fixture;
using auth_fixture::scripted_authenticator;
using braid::cancel_cause;
using braid::errc;
using braid::yield_context;
using credential = scripted_authenticator::credential;

// The credential of each request in a stream; "-": it has none.
std::vector<std::string> credentials_in(std::string_view stream) {
  std::vector<std::string> all;
  for (const auto& frame : sent_frames::frames_in(stream))
    if (frame.request) all.push_back(frame.credential.value_or("-"));
  return all;
}

std::string refusal(std::int64_t id) {
  return answer(id, "", [](auto& meta) {
    meta.response.error_code = 1004;
    meta.response.error_text = "Fail to authenticate";
  });
}

// A client with an authenticator, and a scripted server.
struct scripted {
  explicit scripted(braid::channel_options options = {.timeout = 1s})
      : client(sim, [&] {
          options.auth = auth;
          return options;
        }()) {}

  started_call& start() {
    client.start(calls.emplace_back());
    return calls.back();
  }
  void say(const std::string& bytes, std::size_t connection = 0) {
    server.send(bytes, connection);
    sim.run_for(0ms);
  }
  std::int64_t id(std::size_t request) const { return server.requests().at(request).id; }
  // From now on making a credential takes `time`; when it is cancelled, it says why.
  void generate_for(std::chrono::nanoseconds time) {
    auth->generate = [this, time](const braid::endpoint&, yield_context yield) {
      error_code ec;
      braid::sleep_for(time, yield[ec]);
      causes.push_back(yield.cancelled());
      return credential("token-slow");
    };
  }

  simulation sim{3};
  std::shared_ptr<scripted_authenticator> auth = std::make_shared<scripted_authenticator>();
  std::vector<cancel_cause> causes;
  scripted_server server{sim};
  std::deque<started_call> calls;
  client_node client;
};

}  // namespace

TEST_CASE("auth: the first request of each connection carries the credential, no other does") {
  scripted s;
  braid::endpoint asked_for;
  s.auth->generate = [&](const braid::endpoint& to, yield_context) {
    asked_for = to;
    return credential("token-" + std::to_string(s.auth->generated));
  };
  for (int i = 0; i < 3; ++i) s.start();
  CHECK(credentials_in(s.server.received()) == std::vector<std::string>{"token-1", "-", "-"});
  CHECK(asked_for.to_string() == address);
  s.server.close(true);
  s.sim.run_for(0ms);
  for (int i = 0; i < 2; ++i) s.start();
  CHECK(credentials_in(s.server.received(1)) == std::vector<std::string>{"token-2", "-"});
  CHECK(s.auth->generated == 2);
}

TEST_CASE("auth: a channel without an authenticator sends none, an empty credential is sent") {
  scripted s;
  s.auth->generate = [](const braid::endpoint&, yield_context) { return credential(""); };
  s.start();
  CHECK(credentials_in(s.server.received()) == std::vector<std::string>{""});
  started_call call;  // outlives its client, which ends it
  client_node plain(s.sim, {.timeout = 1s});
  plain.start(call);
  CHECK(credentials_in(s.server.received(1)) == std::vector<std::string>{"-"});
}

TEST_CASE("auth: a request that fails alone leaves the credential to the next one") {
  scripted s({.timeout = 1s, .max_body_size = 200});
  started_call& large = s.calls.emplace_back();
  large.message.set_message(std::string(500, 'x'));
  s.client.start(large);
  CHECK(large.ec == errc::bad_request);
  s.start();
  CHECK(credentials_in(s.server.received()) == std::vector<std::string>{"token-123"});
}

TEST_CASE("auth: calls wait for a slow credential inside their deadlines, and later ones profit") {
  scripted s({.timeout = 100ms});
  s.generate_for(150ms);
  started_call& early = s.start();
  s.sim.run_for(99ms);
  started_call& later = s.start();
  s.sim.run_for(2ms);
  CHECK(early.ec == errc::timed_out);
  CHECK(early.ended_at < 102ms);
  CHECK_FALSE(later.done());
  CHECK(s.server.received().empty());
  s.sim.run_for(60ms);
  CHECK(credentials_in(s.server.received()) == std::vector<std::string>{"token-slow"});
  s.say(answer(s.id(0), echoed()));
  CHECK(later.done());
  CHECK_FALSE(later.ec);
  CHECK(s.auth->generated == 1);
  CHECK(s.causes == std::vector{cancel_cause::none});
}

TEST_CASE(
    "auth: a credential that cannot be made fails the calls that wait with 1004, the next tries again") {
  struct row {
    std::function<credential(const braid::endpoint&, yield_context)> generate;
    std::string text;
  };
  for (const row& each :
       {row{[](const braid::endpoint&, yield_context) -> credential { return error_code(errc::internal); },
            error_code(errc::internal).message()},
        row{[](const braid::endpoint&, yield_context) -> credential {
              throw std::runtime_error("the key is lost");
            },
            "the key is lost"},
        row{[](const braid::endpoint&, yield_context yield) -> credential {
              braid::sleep_for(10ms, yield);
              throw 5;
            },
            "exception"},
        row{[](const braid::endpoint&, yield_context) -> credential { throw std::runtime_error(""); },
            "exception"},
        row{[](const braid::endpoint&, yield_context) -> credential {
              return std::string(32 * 1024 + 1, 'x');
            },
            "32769 bytes are over the limit of 32768"}}) {
    CAPTURE(each.text);
    scripted s;
    s.auth->generate = each.generate;
    started_call& first = s.start();
    started_call& second = s.start();
    s.sim.run_for(20ms);
    for (const started_call* call : {&first, &second}) {
      CHECK(call->ec == errc::auth_failed);
      CHECK(call->control.result().origin == braid::outcome_origin::local);
      CHECK_FALSE(call->control.result().retryable);
      CHECK(has(call->control.ErrorText(), each.text));
      CHECK(has(call->control.ErrorText(), address));
    }
    CHECK(s.server.requests().empty());
    s.auth->generate = scripted_authenticator{}.generate;
    s.start();
    CHECK(s.server.requests().size() == 1);
  }
}

TEST_CASE("auth: a credential of the largest size is sent") {
  scripted s;
  s.auth->generate = [](const braid::endpoint&, yield_context) {
    return credential(std::string(32 * 1024, 'x'));
  };
  s.start();
  CHECK(credentials_in(s.server.received()).at(0).size() == 32 * 1024);
}

TEST_CASE(
    "auth: an authenticator that hangs is cancelled after auth_timeout, and the next call begins anew") {
  scripted s({.timeout = -1s, .auth_timeout = 200ms});
  s.generate_for(1h);
  started_call& call = s.start();
  s.sim.run_for(202ms);
  CHECK(call.ec == errc::auth_failed);
  CHECK(has(call.control.ErrorText(), "auth_timeout, 200 ms"));
  CHECK(s.causes == std::vector{cancel_cause::deadline});
  // One that ignores that holds up no call either.
  s.auth->generate = [](const braid::endpoint&, yield_context yield) {
    braid::shield deaf(yield, 1min);
    error_code ec;
    braid::sleep_for(30s, yield[ec]);
    return credential("token-late");
  };
  started_call& again = s.start();
  s.sim.run_for(202ms);
  CHECK(again.ec == errc::auth_failed);
  s.auth->generate = scripted_authenticator{}.generate;
  s.start();
  CHECK(credentials_in(s.server.received(2)) == std::vector<std::string>{"token-123"});
  s.sim.run_for(1min);
  CHECK(s.server.requests().size() == 1);
}

TEST_CASE("auth: a negative auth_timeout is none") {
  scripted s({.timeout = -1s, .auth_timeout = -1s});
  s.generate_for(1h);
  s.start();
  s.sim.run_for(61min);
  CHECK(s.server.requests().size() == 1);
}

TEST_CASE("auth: a connection that ends while the credential is made fails its calls at once") {
  scripted s({.timeout = -1s});
  s.generate_for(1h);
  started_call& call = s.start();
  s.server.close(false);
  s.sim.run_for(0ms);
  CHECK(braid::to_wire(call.ec) == 1014);
  CHECK(s.causes == std::vector{cancel_cause::peer_gone});
  s.auth->generate = scripted_authenticator{}.generate;
  s.start();
  CHECK(credentials_in(s.server.received(1)) == std::vector<std::string>{"token-123"});
}

TEST_CASE("auth: calls may be cancelled, and channel and runtime may go, while the credential is made") {
  {
    scripted s({.timeout = -1s});
    s.generate_for(1s);
    started_call& call = s.start();
    call.control.StartCancel();
    s.sim.run_for(0ms);
    CHECK(call.ec == aborted);
    s.sim.run_for(2s);
    CHECK(s.server.requests().empty());
    s.start();  // it was made all the same
    CHECK(credentials_in(s.server.received()) == std::vector<std::string>{"token-slow"});
  }
  {
    scripted s({.timeout = -1s});
    s.generate_for(1h);
    started_call& call = s.start();
    s.client.on_loop([&] { s.client.end_channel(); });
    CHECK_FALSE(call.done());  // keeps its connection
    call.control.StartCancel();
    s.sim.run_for(1ms);
    CHECK(call.ec == aborted);
    CHECK(s.causes == std::vector{cancel_cause::peer_gone});
  }
  {
    scripted s({.timeout = -1s});
    s.generate_for(1h);
    started_call& call = s.start();
    s.client.process.reset();
    CHECK(call.ec == aborted);
    REQUIRE(s.causes.size() == 1);
    CHECK(s.causes[0] != cancel_cause::none);
  }
}

TEST_CASE("auth: channels share a connection if they have the same authenticator, and only then") {
  simulation sim{3};
  scripted_server server(sim);
  auto one = std::make_shared<scripted_authenticator>();
  auto two = std::make_shared<scripted_authenticator>();
  two->generate = [](const braid::endpoint&, yield_context) { return credential("token-two"); };
  braid::runtime process(sim.node_options());
  std::deque<braid::channel> channels;
  std::deque<started_call> calls;
  const auto call = [&](std::shared_ptr<braid::authenticator> auth) {
    auto& channel = channels.emplace_back(process);
    channel.init(address, {.timeout = 1s, .auth = std::move(auth)});
    auto& started = calls.emplace_back();
    process.core()->at(0).post([&] {
      channel.async_call(echo(), started.control, started.message, started.response, [](error_code) {});
    });
    sim.run_for(0ms);
  };
  call(one);
  call(two);
  call(one);
  call(nullptr);
  call(two);
  CHECK(server.connections() == 3);
  CHECK(credentials_in(server.received(0)) == std::vector<std::string>{"token-123", "-"});
  CHECK(credentials_in(server.received(1)) == std::vector<std::string>{"token-two", "-"});
  CHECK(credentials_in(server.received(2)) == std::vector<std::string>{"-"});
  sim.run_for(2s);
}

TEST_CASE("auth: a refused credential ends all calls of the connection with 1004, the next connects anew") {
  scripted s;
  for (int i = 0; i < 4; ++i) s.start();
  s.say(refusal(s.id(0)) + refusal(s.id(3)));
  CHECK(s.calls[0].ec == errc::auth_failed);
  CHECK(s.calls[3].ec == errc::auth_failed);
  CHECK(s.calls[0].control.result().origin == braid::outcome_origin::peer);
  CHECK(has(s.calls[0].control.ErrorText(), "Fail to authenticate"));
  CHECK_FALSE(s.calls[1].done());
  s.server.close(false);
  s.sim.run_for(0ms);
  for (const std::size_t i : {1, 2}) {
    CHECK(s.calls[i].ec == errc::auth_failed);
    CHECK_FALSE(s.calls[i].control.result().retryable);
    CHECK(has(s.calls[i].control.ErrorText(), "refused"));
  }
  s.start();
  CHECK(s.auth->generated == 2);
  CHECK(credentials_in(s.server.received(1)) == std::vector<std::string>{"token-123"});
}

TEST_CASE("auth: a 1004 that the connection survives is one call's") {
  scripted s;
  for (int i = 0; i < 4; ++i) s.start();
  s.say(refusal(s.id(1)));  // not the one with the credential
  s.server.close(false);
  s.sim.run_for(0ms);
  CHECK(braid::to_wire(s.calls[0].ec) == 1014);
  CHECK(braid::to_wire(s.calls[2].ec) == 1014);
  for (int i = 0; i < 3; ++i) s.start();
  s.say(refusal(s.id(4)), 1);  // a handler's own
  s.say(answer(s.id(5), echoed()), 1);
  s.server.close(false, 1);
  s.sim.run_for(0ms);
  CHECK(s.calls[4].ec == errc::auth_failed);
  CHECK_FALSE(s.calls[5].ec);
  CHECK(braid::to_wire(s.calls[6].ec) == 1014);
}

TEST_CASE("auth: from end to end, and the authenticator may call other servers itself") {
  simulation sim{3};
  auto auth = std::make_shared<scripted_authenticator>();
  server_node issuer(
      sim,
      [](braid::server_call&, const EchoRequest&, EchoResponse& response, yield_context) {
        response.set_message("token-issued");
      },
      "10.0.0.7:80");
  braid::runtime process(sim.node_options());
  braid::server_options options;
  options.auth = auth;
  braid::server server(process, options);
  std::string user;
  server.handle(&golden::EchoService::Echo,
                [&](braid::server_call& call, const EchoRequest& q, EchoResponse& r, yield_context) {
                  user = call.auth()->user;
                  r.set_message(q.message());
                });
  server.start(address);
  client_node client(sim, {.timeout = 1s, .auth = auth});
  braid::channel to_issuer(*client.process);
  to_issuer.init("10.0.0.7:80", {.timeout = 1s});
  auth->generate = [&](const braid::endpoint&, yield_context yield) -> credential {
    EchoResponse token;
    error_code ec;
    to_issuer.async_call(echo(), request(), token, yield[ec]);
    if (ec) return ec;
    return token.message();
  };
  CHECK_FALSE(client.round());
  CHECK_FALSE(client.round());
  CHECK(user == "issued");
  CHECK(auth->generated == 1);
  CHECK(auth->shown.size() == 1);
  auth->verify = [](std::string_view, const braid::endpoint&,
                    yield_context) -> scripted_authenticator::finding {
    return error_code(errc::auth_failed);
  };
  sim.network().break_connections(braid::endpoint::parse(address).value());
  sim.run_for(0ms);
  CHECK(client.round() == errc::auth_failed);
  CHECK(client.round() == errc::auth_failed);
  CHECK(auth->generated == 3);
}

TEST_CASE("auth: the default functions of an authenticator let nobody in") {
  class neither : public braid::authenticator {};
  simulation sim{3};
  scripted_server server(sim);
  client_node client(sim, {.timeout = 1s, .auth = std::make_shared<neither>()});
  CHECK(client.round() == errc::auth_failed);
  braid::runtime process(sim.node_options());
  braid::server_options options;
  options.auth = std::make_shared<neither>();
  braid::server guarded(process, options);
  guarded.start("10.0.0.2:80");
  client_node second(sim, {.timeout = 1s, .auth = std::make_shared<scripted_authenticator>()}, "10.0.0.2:80");
  CHECK(second.round() == errc::auth_failed);
}

TEST_CASE("auth: what is sent, and what comes back, is as recorded") {
  std::string request_bytes;
  for (const auto& chunk : golden::load(GOLDEN_FRAMES_FILE)) {
    if (chunk.name != "auth" && chunk.name != "noauth") continue;
    CAPTURE(chunk.name);
    if (chunk.to_server) {
      request_bytes = chunk.bytes;
      continue;
    }
    simulation sim{3};
    scripted_server server(sim);
    auto auth = chunk.name == "auth" ? std::make_shared<scripted_authenticator>() : nullptr;
    client_node client(sim, {.timeout = 1s, .auth = auth});
    started_call call;
    client.start(call);
    CHECK(golden::differences(request_bytes, server.received()) == std::vector<std::string>{});
    std::string reply = chunk.bytes;
    const std::size_t at = reply.find("\x20\x82\x80\x80\x80\x10");
    REQUIRE(at != std::string::npos);
    const auto id = static_cast<std::uint64_t>(server.requests().at(0).id);
    for (std::size_t i = 0; i < 5; ++i)
      reply[at + 1 + i] = static_cast<char>((id >> (7 * i) & 0x7f) | (i < 4 ? std::uint64_t{0x80} : 0));
    server.send(reply);
    sim.run_for(0ms);
    REQUIRE(call.done());
    CHECK(braid::to_wire(call.ec) == (auth ? 0 : 1004));
    CHECK(call.response.message() == (auth ? "hello" : ""));
  }
}
