// Credentials as a server checks them, against clients that send what the test says.

#include "golden/golden_frames.hpp"
#include "unit/auth_fixture.hpp"
#include "unit/server_world.hpp"
#include "wire/control_frame.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <any>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace server_test;
using auth_fixture::scripted_authenticator;

std::string with(std::string_view credential, std::int64_t id, std::string_view message,
                 std::optional<std::int32_t> timeout_ms = std::nullopt) {
  auto meta = echo_meta(id);
  meta.authentication_data = credential;
  meta.request.timeout_ms = timeout_ms;
  return frame(meta, payload(message));
}

// What outlives the server.
struct record {
  std::shared_ptr<scripted_authenticator> auth = std::make_shared<scripted_authenticator>();
  std::vector<std::string> callers;
  std::vector<cancel_cause> ends;
  std::vector<cancel_cause> cancelled_checks;
  std::vector<braid::endpoint> clients;
};

// A server that lets tokens in, and says who each call is from.
struct guarded : record, world {
  explicit guarded(server_options options = {})
      : world([&] {
          options.auth = auth;
          return options;
        }()) {}

  void start() {
    world::start([this](server_call& call, const EchoRequest& q, EchoResponse& r, yield_context yield) {
      callers.push_back(call.auth() ? call.auth()->user : "nobody");
      r.set_message(q.message());
      error_code ec;
      if (q.message() == "slow") braid::sleep_for(1min, yield[ec]);
      ends.push_back(call.cancelled());
    });
  }
  // From now on a check takes `time`; when it is cancelled, it says why.
  void check_for(std::chrono::milliseconds time) {
    auth->verify = [this, time, accept = scripted_authenticator{}.verify](
                       std::string_view shown, const braid::endpoint& client, yield_context yield) {
      clients.push_back(client);
      error_code ec;
      braid::sleep_for(time, yield[ec]);
      cancelled_checks.push_back(yield.cancelled());
      return accept(shown, client, yield);
    };
  }
};

}  // namespace

TEST_CASE("server auth: one check for each connection, whose finding every call of it sees") {
  guarded w;
  w.start();
  auto client = w.connect();
  client.send(with("token-ada", 1, "first") + echo(2, "second"));
  client.send(with("token-eve", 3, "third"));  // too late to be somebody else
  auto other = w.connect();
  other.send(with("token-bob", 1, "other"));
  CHECK(client.answers().size() == 3);
  CHECK(other.answers().size() == 1);
  CHECK(w.callers == std::vector<std::string>{"ada", "ada", "ada", "bob"});
  CHECK(w.auth->shown == std::vector<std::string>{"token-ada", "token-bob"});
}

TEST_CASE("server auth: without an authenticator credentials are ignored, and calls are nobody's") {
  world w;
  bool nobody = false;
  w.start([&](server_call& call, const EchoRequest&, EchoResponse& r, yield_context) {
    nobody = call.auth() == nullptr;
    r.set_message("x");
  });
  auto client = w.connect();
  client.send(with("anything", 1, "x"));
  REQUIRE(client.answers().size() == 1);
  CHECK(client.answers()[0].code == 0);
  CHECK(nobody);
}

TEST_CASE("server auth: what an authenticator finds reaches the handler whole, beyond the connection") {
  guarded w;
  w.auth->verify = [](std::string_view, const braid::endpoint&, yield_context) {
    return braid::auth_context{.user = "ada",
                               .group = "math",
                               .roles = "admin",
                               .starter = "root",
                               .is_service = true,
                               .details = 42};
  };
  bool right = false;
  w.world::start([&](server_call& call, const EchoRequest&, EchoResponse&, yield_context yield) {
    error_code ec;
    braid::sleep_for(1s, yield[ec]);
    const braid::auth_context& who = *call.auth();
    right = who.user == "ada" && who.group == "math" && who.roles == "admin" && who.starter == "root" &&
            who.is_service && std::any_cast<int>(who.details) == 42;
  });
  auto client = w.connect();
  client.send(with("x", 1, "x"));
  client.reset();
  w.sim.run_for(2s);
  CHECK(right);
}

TEST_CASE("server auth: a first request without a credential is refused with 1004, and the connection ends") {
  guarded w;
  w.start();
  auto client = w.connect();
  client.send(echo(7, "x") + with("token-ada", 8, "x"));
  const auto got = client.answers();
  REQUIRE(got.size() == 2);
  CHECK(got[0].id == 7);
  CHECK(got[0].code == 1004);
  CHECK(got[1].code == 1004);
  CHECK(client.ended);
  CHECK_FALSE(client.broken);
  CHECK(w.auth->shown.empty());
  CHECK(w.callers.empty());
  CHECK(w.log.count("credential was refused") == 1);
  w.sim.run_for(900ms);
  CHECK_FALSE(client.broken);
  client.reset();
  CHECK(w.connections() == 0);
}

TEST_CASE("server auth: a refused credential is 1004 for all that has arrived, told before the end of file") {
  for (const bool slow : {false, true}) {
    CAPTURE(slow);
    guarded w({.max_connections = 1});
    if (slow) w.check_for(100ms);
    w.start();
    auto client = w.connect();
    client.send(with("guess", 1, "x") + echo(2, "x") + echo(3, "x"));
    w.sim.run_for(200ms);
    const auto got = client.answers();
    REQUIRE(got.size() == 3);
    for (const auto& each : got) {
      CHECK(each.code == 1004);
      CHECK(each.text.find("guess") == std::string::npos);
    }
    CHECK(client.ended);
    CHECK_FALSE(client.broken);
    CHECK(w.callers.empty());
    CHECK(w.log.count("credential was refused") == 1);
    CHECK(w.log.count("guess") == 0);
    client.send(with("token-ada", 4, "x"));  // nobody listens any more
    CHECK(client.answers().size() == 3);
    w.sim.run_for(2s);  // nor waits for ever
    auto next = w.connect();
    next.send(with("token-ada", 1, "x"));
    w.sim.run_for(200ms);
    CHECK(next.answers().size() == 1);
  }
}

TEST_CASE("server auth: a refused client that does not read is given up in time all the same") {
  guarded w({.max_unsent_bytes = 1024, .progress_timeout = 0ms, .idle_timeout = 0ms, .max_connections = 1});
  w.start();
  auto client = w.connect();
  client.stop_reading();
  std::string requests = with("bad", 1, "x");
  for (int i = 2; i < 20'000; ++i) requests += echo(i, "x");
  client.send(requests);
  w.sim.run_for(2s);
  auto next = w.connect();
  next.send(with("token-ada", 1, "x"));
  w.sim.run_for(200ms);
  CHECK(next.answers().size() == 1);
}

TEST_CASE("server auth: requests wait for a slow check, in order, and are not read without bound") {
  guarded w;
  w.check_for(1s);
  w.start();
  auto client = w.connect();
  client.send(with("token-ada", 1, "one") + echo(2, "two"));
  client.send(echo(3, "three"));
  std::string flood;
  for (int i = 0; i < 3; ++i) flood += echo(10 + i, std::string(1024 * 1024, 'x'));
  client.send(flood);
  w.sim.run_for(900ms);
  CHECK(client.received.empty());
  CHECK(w.callers.empty());
  CHECK(client.unsent.size() > 2 * 1024 * 1024);  // the window is full: the server reads no more
  w.sim.run_for(1s);
  const auto got = client.answers();
  REQUIRE(got.size() == 6);
  CHECK(got[0].message() == "one");
  CHECK(got[1].message() == "two");
  CHECK(got[2].message() == "three");
  CHECK(w.auth->shown.size() == 1);
  CHECK(w.callers == std::vector<std::string>(6, "ada"));
  // Other connections are served meanwhile.
  auto slow = w.connect();
  slow.send(with("token-bob", 1, "x"));
  client.send(echo(20, "y"));
  CHECK(client.answers().back().id == 20);
  CHECK(slow.received.empty());
}

TEST_CASE("server auth: the authenticator is told who asks, and may answer in any way it fails") {
  guarded w;
  w.check_for(0ms);
  w.start();
  auto client = w.connect();
  client.send(with("token-ada", 1, "x"));
  REQUIRE(w.clients.size() == 1);
  CHECK(w.clients[0].is_literal());

  const std::vector<decltype(scripted_authenticator::verify)> failing{
      [](std::string_view, const braid::endpoint&, yield_context) -> scripted_authenticator::finding {
        throw std::runtime_error("the secret database is down");
      },
      [](std::string_view, const braid::endpoint&, yield_context) -> scripted_authenticator::finding {
        throw 5;
      },
      [](std::string_view, const braid::endpoint&, yield_context yield) -> scripted_authenticator::finding {
        braid::sleep_for(10ms, yield);
        throw boost::system::system_error(error_code(12345, boost::system::system_category()));
      },
      [](std::string_view, const braid::endpoint&, yield_context) -> scripted_authenticator::finding {
        return error_code(errc::internal);
      }};
  for (const auto& each : failing) {
    w.auth->verify = each;
    auto refused = w.connect();
    refused.send(with("token-ada", 1, "x"));
    w.sim.run_for(2s);
    REQUIRE(refused.answers().size() == 1);
    CHECK(refused.answers()[0].code == 1004);
    CHECK(refused.answers()[0].text.find("database") == std::string::npos);
    CHECK(refused.ended);
  }
  CHECK(w.log.count("credential was refused") == 4);
  client.send(echo(2, "still here"));
  CHECK(client.answers().back().message() == "still here");
}

TEST_CASE(
    "server auth: a check that takes too long is refused then, and cancelled, also one that does not heed") {
  guarded w({.auth_timeout = 100ms});
  w.check_for(1h);
  w.start();
  auto client = w.connect();
  client.send(with("token-ada", 1, "x"));
  w.sim.run_for(99ms);
  CHECK(client.received.empty());
  w.sim.run_for(3ms);
  REQUIRE(client.answers().size() == 1);
  CHECK(client.answers()[0].code == 1004);
  CHECK(client.ended);
  CHECK(w.cancelled_checks == std::vector{cancel_cause::deadline});
  CHECK(w.callers.empty());

  w.auth->verify = [&](std::string_view, const braid::endpoint&, yield_context yield) {
    braid::shield deaf(yield, 1min);
    error_code ec;
    braid::sleep_for(30s, yield[ec]);
    return scripted_authenticator::finding(braid::auth_context{.user = "too late"});
  };
  auto second = w.connect();
  second.send(with("token-ada", 1, "x"));
  w.sim.run_for(102ms);
  REQUIRE(second.answers().size() == 1);
  CHECK(second.answers()[0].code == 1004);
  w.sim.run_for(1min);
  CHECK(w.callers.empty());
  CHECK(second.answers().size() == 1);
}

TEST_CASE("server auth: without a limit a check may take as long as it likes") {
  guarded w({.idle_timeout = 0ms, .auth_timeout = 0ms});
  w.check_for(1h);
  w.start();
  auto client = w.connect();
  client.send(with("token-ada", 1, "x"));
  w.sim.run_for(61min);
  REQUIRE(client.answers().size() == 1);
  CHECK(client.answers()[0].message() == "x");
}

TEST_CASE("server auth: a request's deadline counts from its arrival, also while the credential is checked") {
  guarded w;
  w.check_for(100ms);
  w.start();
  auto client = w.connect();
  client.send(with("token-ada", 1, "too late", 50) + echo_within(2, "in time", 150) +
              echo_within(3, "too late behind it", 50) + echo_within(4, "rest", 150));
  w.sim.run_for(101ms);
  const auto got = client.answers();
  REQUIRE(got.size() == 4);
  CHECK(got[0].code == 1008);
  CHECK(got[1].message() == "in time");
  CHECK(got[2].code == 1008);
  CHECK(got[3].message() == "rest");
  CHECK(w.callers.size() == 2);
  auto expired = w.connect();
  expired.send(with("token-ada", 1, "x", 0));
  w.sim.run_for(101ms);
  REQUIRE(expired.answers().size() == 1);
  CHECK(expired.answers()[0].code == 1008);
  CHECK(w.callers.size() == 2);
}

TEST_CASE("server auth: a client that goes while it is checked harms nobody") {
  guarded w;
  w.check_for(100ms);
  w.start();
  auto stays = w.connect();
  {
    auto reset = w.connect();
    reset.send(with("token-ada", 1, "x"));
    reset.reset();
    auto ends = w.connect();
    ends.send(with("token-bob", 1, "x"));
    ends.end_sending();
    stays.send(with("token-eve", 1, "x"));
    w.sim.run_for(1s);
    REQUIRE(ends.answers().size() == 1);  // a half-close
    CHECK(ends.closed());
  }
  REQUIRE(stays.answers().size() == 1);
  stays.send(echo(2, "y"));
  CHECK(stays.answers().size() == 2);
  CHECK(w.connections() == 1);
}

TEST_CASE("server auth: a client of ours that goes, or cancels, while it is checked has its call cancelled") {
  guarded w;
  w.check_for(100ms);
  w.start();
  auto meta = echo_meta(1);
  meta.authentication_data = "token-ada";
  meta.features = 1;
  auto goes = w.connect();
  goes.send(frame(meta, payload("slow")));
  CHECK(goes.received == braid::wire::control_frame::announcement().bytes());
  goes.end_sending();
  auto cancels = w.connect();
  cancels.send(frame(meta, payload("slow")) +
               std::string(braid::wire::control_frame::cancel(1, cancel_cause::fail_limit).bytes()));
  w.sim.run_for(101ms);
  std::sort(w.ends.begin(), w.ends.end());
  CHECK(w.ends == std::vector{cancel_cause::fail_limit, cancel_cause::peer_gone});
  CHECK(goes.closed());
  CHECK_FALSE(cancels.closed());
}

TEST_CASE("server auth: a server that stops answers the request that waits for a check") {
  guarded w;
  w.check_for(1h);
  w.start();
  auto client = w.connect();
  client.send(with("token-ada", 1, "x"));
  bool stopped = false;
  w.srv->async_stop({.grace = 1s, .kill = 1s},
                    [&](error_code, const std::vector<std::string>&) { stopped = true; });
  REQUIRE(w.sim.run_until([&] { return stopped; }, 5s));
  w.sim.run_for(1ms);
  REQUIRE(client.answers().size() == 1);
  CHECK(client.answers()[0].code == 2003);
  CHECK(client.closed());
  CHECK(w.cancelled_checks == std::vector{cancel_cause::peer_gone});
}

TEST_CASE("server auth: a server, and its runtime, may go while they check") {
  for (const bool runtime_too : {false, true}) {
    guarded w;
    w.check_for(1h);
    w.start();
    auto client = w.connect();
    client.send(with("token-ada", 1, "x"));
    w.srv.reset();
    if (runtime_too) w.server_side.reset();
    w.sim.run_for(1s);
    CHECK(client.closed());
    CHECK(w.cancelled_checks.size() == 1);
  }
}

TEST_CASE("server auth: an oversized first request is checked too, and alone in its failure") {
  guarded w({.max_body_size = 1000});
  w.check_for(10ms);
  w.start();
  auto client = w.connect();
  client.send(with("token-ada", 1, std::string(5000, 'x')) + echo(2, "small"));
  w.sim.run_for(11ms);
  const auto got = client.answers();
  REQUIRE(got.size() == 2);
  CHECK(got[0].code == 1003);
  CHECK(got[1].message() == "small");
  CHECK(w.callers == std::vector<std::string>{"ada"});
  auto refused = w.connect();
  refused.send(with("guess", 1, std::string(5000, 'x')));
  w.sim.run_for(11ms);
  REQUIRE(refused.answers().size() == 1);
  CHECK(refused.answers()[0].code == 1004);
}

TEST_CASE("server auth: what is no request needs no credential") {
  guarded w;
  w.start();
  auto client = w.connect();
  client.send(braid::wire::control_frame::announcement().bytes());
  braid::wire::rpc_meta meta;
  meta.correlation_id = 9;
  client.send(frame(meta, "neither"));
  CHECK_FALSE(client.closed());
  client.send(with("token-ada", 1, "x"));
  CHECK(client.answers().size() == 2);
}

TEST_CASE("server auth: an empty credential is one, and judged by the authenticator") {
  guarded w;
  w.start();
  auto client = w.connect();
  client.send(with("", 1, "x"));
  CHECK(w.auth->shown == std::vector<std::string>{""});
  REQUIRE(client.answers().size() == 1);
  CHECK(client.answers()[0].code == 1004);
}

TEST_CASE("server auth: byte by byte, and as the recorded frames have it") {
  for (const auto& chunk : golden::load(GOLDEN_FRAMES_FILE)) {
    if (chunk.name != "auth" && chunk.name != "noauth") continue;
    CAPTURE(chunk.name, chunk.to_server);
    static std::string request;
    if (chunk.to_server) {
      request = chunk.bytes;
      continue;
    }
    guarded w;
    w.start();
    auto client = w.connect();
    for (const char& byte : request) client.send(std::string_view(&byte, 1));
    CHECK(golden::differences(chunk.bytes, client.received) == std::vector<std::string>{});
    CHECK(client.ended == (chunk.name == "noauth"));
    CHECK(w.callers == std::vector<std::string>(chunk.name == "auth" ? 1 : 0, "123"));
  }
}
