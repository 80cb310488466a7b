// The cancel extension as a server keeps it, against clients that send what the test says.

#include "core/coroutine.hpp"
#include "golden/golden_frames.hpp"
#include "unit/server_world.hpp"
#include "wire/control_frame.hpp"

#include <catch2/catch.hpp>

#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace {

using namespace server_test;
using braid::wire::control_frame;

std::string announcing(std::int64_t id, std::string_view message, std::uint64_t features = 1) {
  auto meta = echo_meta(id);
  meta.features = features;
  return frame(meta, payload(message));
}
std::string cancel(std::int64_t id, cancel_cause cause = cancel_cause::user) {
  return std::string(control_frame::cancel(id, cause).bytes());
}
std::string cancel_number(std::int64_t id, std::uint32_t cause) {
  braid::wire::rpc_meta meta;
  meta.correlation_id = id;
  meta.cancel_cause = cause;
  return frame(meta, "");
}
const std::string announcement{control_frame::announcement().bytes()};

// A server whose handler holds each call for a minute, or until it is cancelled.
struct holding : world {
  explicit holding(server_options options = {}) : world(options) {
    start([seen = seen_](server_call& call, const EchoRequest& q, EchoResponse& r, yield_context yield) {
      ++seen->running;
      r.set_message(q.message());
      error_code ec;
      if (q.message() != "quick") braid::sleep_for(1min, yield[ec]);
      seen->causes[q.message()] = call.cancelled();
      seen->inherited[q.message()] = yield.cancelled();
      --seen->running;
    });
  }

 private:
  struct seen_by_handlers {  // which may end as late as the server does
    int running = 0;
    std::map<std::string, cancel_cause> causes;
    std::map<std::string, cancel_cause> inherited;
  };
  std::shared_ptr<seen_by_handlers> seen_ = std::make_shared<seen_by_handlers>();

 public:
  int& running = seen_->running;
  std::map<std::string, cancel_cause>& causes = seen_->causes;        // as the call shows it
  std::map<std::string, cancel_cause>& inherited = seen_->inherited;  // as the coroutine does
};

}  // namespace

TEST_CASE("server cancel: an announcement is answered at once, once, and before the answer") {
  holding w;
  auto client = w.connect();
  client.send(announcing(1, "slow"));
  CHECK(client.received == announcement);
  client.send(announcing(2, "quick"));  // again: it changes nothing
  client.send(announcement);
  const auto got = client.answers();
  REQUIRE(got.size() == 2);
  CHECK(got[0].bytes == announcement);
  CHECK(got[1].id == 2);
  CHECK(got[1].message() == "quick");
}

TEST_CASE("server cancel: the call is cancelled with the client's cause, and answered with nothing") {
  for (const auto cause :
       {cancel_cause::deadline, cancel_cause::user, cancel_cause::fail_limit, cancel_cause::success_limit,
        cancel_cause::sibling_won, cancel_cause::peer_gone, cancel_cause::shutdown}) {
    CAPTURE(to_string(cause));
    holding w;
    auto client = w.connect();
    client.send(announcing(1, "one") + echo(2, "two"));
    CHECK(w.running == 2);
    client.send(cancel(1, cause));
    CHECK(w.running == 1);
    CHECK(w.causes.at("one") == cause);
    CHECK(w.inherited.at("one") == cause);
    CHECK(client.received == announcement);
    client.send(echo(3, "quick"));  // the connection lives on
    w.sim.run_for(2min);
    const auto got = client.answers();
    REQUIRE(got.size() == 3);
    CHECK(got[1].id == 3);
    CHECK(got[2].id == 2);
    CHECK(got[2].message() == "two");
    CHECK_FALSE(client.closed());
  }
}

TEST_CASE("server cancel: causes that nobody knows cancel the call all the same") {
  holding w;
  auto client = w.connect();
  client.send(announcing(1, "a") + echo(2, "b") + echo(3, "c"));
  client.send(cancel_number(1, 0) + cancel_number(2, 99) +
              cancel_number(3, std::numeric_limits<std::uint32_t>::max()));
  CHECK(w.running == 0);
  for (const auto* name : {"a", "b", "c"}) CHECK(w.causes.at(name) == cancel_cause::user);
  CHECK(client.received == announcement);
}

TEST_CASE("server cancel: unknown features are no reason not to talk") {
  for (const std::uint64_t features :
       {std::uint64_t{1}, ~std::uint64_t{0}, std::uint64_t{0x8000000000000001}}) {
    holding w;
    auto client = w.connect();
    client.send(announcing(1, "slow", features) + cancel(1));
    CHECK(client.received == announcement);
    CHECK(w.running == 0);
  }
  // Features, but not this one: ours are told, and no end of file is taken for a cancel.
  holding w;
  auto client = w.connect();
  client.send(announcing(1, "slow", 6));
  CHECK(client.received == announcement);
  client.end_sending();
  CHECK(w.running == 1);
}

TEST_CASE("server cancel: an announcement by itself, or on an oversized request, counts") {
  holding w({.max_body_size = 200});
  auto alone = w.connect();
  alone.send(announcement);
  CHECK(alone.received == announcement);
  alone.send(echo(1, "slow") + cancel(1));
  CHECK(w.causes.at("slow") == cancel_cause::user);
  CHECK(alone.received == announcement);

  auto large = w.connect();
  large.send(announcing(1, std::string(1000, 'x')) + echo(2, "behind") + cancel(2));
  const auto got = large.answers();
  REQUIRE(got.size() == 2);
  CHECK(got[0].bytes == announcement);
  CHECK(got[1].code == 1003);
  CHECK(w.causes.at("behind") == cancel_cause::user);
}

TEST_CASE("server cancel: a client that has not announced cancels nothing") {
  holding w;
  auto client = w.connect();
  client.send(echo(1, "held") + cancel(1));
  client.send(announcing(2, "late") + cancel(1) + cancel(2));  // too late: the first meta decides
  CHECK(w.running == 2);
  CHECK(client.received.empty());
  auto first = w.connect();
  first.send(cancel(7) + announcing(8, "slow") + cancel(8));
  CHECK(w.running == 3);
  CHECK(first.received.empty());
}

TEST_CASE("server cancel: ids of no running call mean nothing, before, during and after calls") {
  holding w;
  auto client = w.connect();
  client.send(announcing(1, "one") + cancel(99) + cancel(0) + cancel(-1));
  client.send(cancel(std::numeric_limits<std::int64_t>::min()));
  CHECK(w.running == 1);
  client.send(echo(2, "quick") + cancel(2));  // has been answered
  client.send(cancel(1) + cancel(1));
  CHECK(w.running == 0);
  client.send(echo(1, "quick"));  // the same id again
  const auto got = client.answers();
  REQUIRE(got.size() == 3);
  CHECK(got[1].id == 2);
  CHECK(got[2].id == 1);
  CHECK(got[2].message() == "quick");
  auto other = w.connect();  // ids belong to their connection
  other.send(announcing(5, "five"));
  client.send(cancel(5));
  CHECK(w.running == 1);
}

TEST_CASE("server cancel: a frame that is half a cancel is none") {
  holding w;
  auto client = w.connect();
  client.send(announcing(1, "held"));
  braid::wire::rpc_meta meta;
  meta.correlation_id = 1;
  client.send(frame(meta, ""));  // no cause
  meta.cancel_cause = 2;
  meta.has_response = true;
  client.send(frame(meta, ""));  // an answer
  meta = {};
  meta.cancel_cause = 2;
  client.send(frame(meta, ""));  // no id
  CHECK(w.running == 1);
  meta.correlation_id = 1;
  client.send(frame(meta, "with a payload", "and an attachment"));
  CHECK(w.running == 0);
  // A request that carries a cause is a request.
  auto request = echo_meta(2);
  request.cancel_cause = 2;
  client.send(frame(request, payload("quick")));
  CHECK(client.answers().back().message() == "quick");
}

TEST_CASE("server cancel: calls of one id are cancelled together") {
  holding w;
  auto client = w.connect();
  client.send(announcing(4, "a") + echo(4, "b") + echo(5, "c"));
  client.send(cancel(4, cancel_cause::fail_limit));
  CHECK(w.running == 1);
  CHECK(w.causes.at("a") == cancel_cause::fail_limit);
  CHECK(w.causes.at("b") == cancel_cause::fail_limit);
  client.send(echo(4, "d") + echo(4, "e"));  // in the index from the start
  client.send(cancel(4));
  CHECK(w.running == 1);
}

TEST_CASE("server cancel: a flood costs no memory, no answers and no other call") {
  holding w;
  auto client = w.connect();
  client.send(announcing(1, "held"));
  for (std::int64_t id = 2; id < 2002; ++id) client.send(echo(id, "of many"));
  std::string flood;
  for (int i = 0; i < 100'000; ++i) flood += cancel(1'000'000 + i);
  client.send(flood);
  w.sim.run_for(1s);
  CHECK(w.running == 2001);
  CHECK(client.received == announcement);
  client.send(echo(1'000'000, "quick"));
  CHECK(client.answers().back().message() == "quick");
  std::string all;
  for (std::int64_t id = 2001; id > 0; --id) all += cancel(id);
  client.send(all);
  w.sim.run_for(1s);
  CHECK(w.running == 0);
  CHECK(client.answers().size() == 2);
}

TEST_CASE("server cancel: an end of file cancels the calls of a client that has announced, and no other's") {
  holding w;
  auto ours = w.connect();
  auto theirs = w.connect();
  ours.send(announcing(1, "ours"));
  theirs.send(echo(1, "theirs"));
  ours.end_sending();
  theirs.end_sending();
  CHECK(w.running == 1);
  CHECK(w.causes.at("ours") == cancel_cause::peer_gone);
  CHECK(ours.closed());
  CHECK(ours.received == announcement);
  CHECK_FALSE(theirs.closed());
  w.sim.run_for(2min);
  CHECK(w.causes.at("theirs") == cancel_cause::none);
  REQUIRE(theirs.answers().size() == 1);
  CHECK(theirs.answers()[0].message() == "theirs");
  CHECK(theirs.closed());
}

TEST_CASE("server cancel: requests that came just before the end of file are begun and cancelled") {
  holding w;
  auto client = w.connect();
  client.send(announcing(1, "quick") + echo(2, "slow") + echo(3, "cut").substr(0, 20));
  client.end_sending();
  CHECK(w.causes.at("slow") == cancel_cause::peer_gone);
  CHECK(w.causes.size() == 2);
  REQUIRE(client.answers().size() == 2);
  CHECK(client.answers()[1].message() == "quick");
  CHECK(client.closed());
}

TEST_CASE("server cancel: a reset cancels too, and a cancel that came before it keeps its cause") {
  holding w;
  auto client = w.connect();
  client.send(announcing(1, "one") + echo(2, "two"));
  client.send(cancel(1, cancel_cause::sibling_won));
  client.reset();
  w.sim.run_for(1s);
  CHECK(w.causes.at("one") == cancel_cause::sibling_won);
  CHECK(w.causes.at("two") == cancel_cause::peer_gone);
}

TEST_CASE("server cancel: a generated handler that answers later is told, and its answer is dropped") {
  world w;
  google::protobuf::Closure* kept = nullptr;
  bool notified = false;
  struct note : google::protobuf::Closure {
    explicit note(bool& to) : to(to) {}
    void Run() override { to = true; }
    bool& to;
  } on_cancel{notified};
  w.service.run = [&](server_call& call, const EchoRequest&, EchoResponse&, google::protobuf::Closure* done) {
    call.NotifyOnCancel(&on_cancel);
    kept = done;
  };
  w.start();
  auto client = w.connect();
  client.send(announcing(1, "later"));
  REQUIRE(kept);
  client.send(cancel(1));
  CHECK(notified);
  kept->Run();
  w.sim.run_for(1s);
  CHECK(client.received == announcement);
}

TEST_CASE("server cancel: frames arrive a byte at a time") {
  holding w;
  auto client = w.connect();
  const std::string stream = announcing(1, "slow") + cancel(1, cancel_cause::fail_limit) + echo(2, "quick");
  for (const char& byte : stream) client.send(std::string_view(&byte, 1));
  CHECK(w.causes.at("slow") == cancel_cause::fail_limit);
  REQUIRE(client.answers().size() == 2);
  CHECK(client.answers()[1].message() == "quick");
}

TEST_CASE("server cancel: a client that speaks only the recorded frames gets nothing but its answers") {
  world w;
  w.start();
  for (const auto& chunk : golden::load(GOLDEN_FRAMES_FILE)) {
    if (!chunk.to_server) continue;
    CAPTURE(chunk.name);
    auto client = w.connect();
    client.send(chunk.bytes);
    client.end_sending();
    const auto got = client.answers();
    REQUIRE(got.size() == 1);
    CHECK(got[0].bytes == client.received);
    CHECK(client.received.find("\x80\xf1\x04") == std::string::npos);  // the key of field 10000
    CHECK(client.received.find("\x88\xf1\x04") == std::string::npos);  // and of 10001
    CHECK(client.closed());
  }
}
