// Combos as a user writes them: each in a few lines, with the public headers alone.
#include "parallel_fixture.hpp"

#include <boost/asio/any_completion_handler.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/post.hpp>
#include <google/protobuf/descriptor.pb.h>

#include <optional>
#include <stdexcept>

using namespace parallel_fixture;

namespace {

using channels = std::vector<std::shared_ptr<braid::channel_base>>;

/// The first success wins, the others are cancelled.
std::shared_ptr<braid::combo_channel> race(const braid::runtime& rt, channels over) {
  return std::make_shared<braid::combo_channel>(
      rt, [over](braid::combo_call& call, braid::yield_context yield) {
        braid::call_group subs(call, over.size());
        for (std::size_t i = 0; i < over.size(); ++i) subs.launch(i, *over[i]);
        while (const auto* done = subs.next(yield)) {
          call.finish_as(*done);
          if (done->result.succeeded()) return subs.cancel_rest(cancel_cause::sibling_won, yield);
        }
      });
}

/// One after the other, until one succeeds or may not be tried elsewhere.
std::shared_ptr<braid::combo_channel> failover(const braid::runtime& rt, channels over) {
  return std::make_shared<braid::combo_channel>(rt,
                                                [over](braid::combo_call& call, braid::yield_context yield) {
                                                  braid::call_group subs(call, over.size());
                                                  for (std::size_t i = 0; i < over.size(); ++i) {
                                                    subs.launch(i, *over[i]);
                                                    const auto* done = subs.next(yield);
                                                    call.finish_as(*done);
                                                    if (!done->result.retryable) return;
                                                  }
                                                });
}

reply says(std::string text, std::chrono::milliseconds after = 0ms) {
  return {.after = after, .message = std::move(text)};
}

}  // namespace

TEST_CASE("combo: a race takes the first success and cancels the rest", "[combo]") {
  world in;
  auto channel =
      race(in.rt, {in.make(says("slow", 30ms)).channel(), in.make({.after = 1ms, .code = 5001}).channel(),
                   in.make(says("fast", 10ms)).channel()});
  test_call call;
  CHECK(in.call(*channel, call) == 0);
  CHECK(in.took == 10ms);
  CHECK(call.response.message() == "fast");
  CHECK(call.control.sub_count() == 3);
  CHECK(call.sub_code(0) == 125);
  CHECK(call.sub_cause(0) == cancel_cause::sibling_won);
  CHECK(call.sub_code(1) == 5001);
}

TEST_CASE("combo: a race that nobody wins ends as its last sub call", "[combo]") {
  world in;
  auto channel = race(in.rt, {in.make({.after = 2ms, .code = 5002, .message = "last"}).channel(),
                              in.make({.after = 1ms, .code = 5001}).channel()});
  test_call call;
  CHECK(in.call(*channel, call) == 5002);
  CHECK(call.control.ErrorText() == "last");
  CHECK(call.control.result().origin == braid::outcome_origin::peer);
}

TEST_CASE("combo: a loop that tries one channel after the other", "[combo]") {
  world in;
  leaf third = in.make(says("never asked"));
  auto channel = failover(in.rt, {in.make({.after = 5ms, .code = 2003}).channel(),
                                  in.make({.after = 5ms, .message = "second"}).channel(), third.channel()});
  test_call call;
  CHECK(in.call(*channel, call) == 0);
  CHECK(call.response.message() == "second");
  CHECK(in.took == 10ms);
  CHECK(third.times() == 0);
  CHECK(call.sub_code(0) == 2003);
  CHECK(call.control.sub(2) == nullptr);
}

TEST_CASE("combo: a group for each try, of which the controller shows the last", "[combo]") {
  world in;
  leaf sub = in.make({.code = 2003});
  braid::combo_channel channel(in.rt, [&](braid::combo_call& call, braid::yield_context yield) {
    for (std::size_t tries = 1; tries <= 3; ++tries) {
      if (tries == 3) sub.set(says("third"));
      braid::call_group one(call, tries);
      one.launch(tries - 1, *sub.channel());
      call.finish_as(*one.next(yield));
    }
  });
  test_call call;
  CHECK(in.call(channel, call) == 0);
  CHECK(call.response.message() == "third");
  CHECK(call.control.sub_count() == 3);
  CHECK(call.control.sub(0) == nullptr);
  CHECK(call.sub_code(2) == 0);
  CHECK(sub.times() == 3);
}

TEST_CASE("combo: one that ignores its cancellation is ended without it", "[combo]") {
  world in;
  bool returned = false;
  braid::combo_channel channel(
      in.rt,
      [&](braid::combo_call& call, braid::yield_context yield) {
        const std::string before = static_cast<const golden::EchoRequest&>(call.request()).message();
        const braid::metadata& given = call.control().request_metadata();
        const braid::shield deaf(yield, 1h);
        braid::sleep_for(30ms, yield);
        // Its request, settings and scratch are its own, whatever the caller has done with theirs.
        CHECK(static_cast<const golden::EchoRequest&>(call.request()).message() == before);
        static_cast<golden::EchoResponse&>(call.response()).set_message("too late");
        CHECK(&call.control().request_metadata() == &given);
        CHECK(given.request_id == "r");
        CHECK(call.control().timeout() == 15ms);
        call.succeed();
        returned = true;
      },
      15ms);
  auto call = std::make_unique<test_call>();
  const bool by_user = GENERATE(false, true);
  call->control.mutable_request_metadata().request_id = "r";
  call->control.set_timeout(15ms);
  call->control.set_request_outlives_call(true);
  in.start(channel, *call);
  if (by_user) {
    in.sim.run_for(12ms);
    call->control.StartCancel();
  }
  REQUIRE(in.sim.run_until([&] { return call->ended(); }));
  CHECK(in.sim.elapsed() == (by_user ? 12ms : 15ms));
  CHECK(call->code() == (by_user ? 125 : 1008));
  CHECK(call->response.message() == "untouched");
  call.reset();
  CHECK(in.sim.run_until([&] { return returned; }));
}

namespace {

/// Succeeds after a time during which it does not listen.
std::shared_ptr<braid::combo_channel> stubborn(const braid::runtime& rt, std::chrono::milliseconds after,
                                               bool& returned) {
  return std::make_shared<braid::combo_channel>(
      rt, [=, &returned](braid::combo_call& call, braid::yield_context yield) {
        {
          const braid::shield deaf(yield, 1h);
          braid::sleep_for(after, yield);
        }
        static_cast<golden::EchoResponse&>(call.response()).set_message("late");
        call.succeed();
        returned = true;
      });
}

}  // namespace

TEST_CASE("combo: one that ignores its cancellation does not hold up those above", "[combo]") {
  world in;
  bool returned = false;
  auto inner = std::make_shared<braid::parallel_channel>(in.rt);
  inner->add_channel(stubborn(in.rt, 100ms, returned));
  SECTION("at the deadline: what had succeeded above it counts") {
    braid::parallel_channel outer(in.rt, {.timeout = 20ms});
    outer.add_channel(inner);
    outer.add_channel(in.make(says("ok", 5ms)).channel());
    test_call call;
    in.start(outer, call);
    REQUIRE(in.sim.run_until([&] { return call.ended(); }));
    CHECK(in.sim.elapsed() == 20ms);
    CHECK_FALSE(returned);
    CHECK(call.code() == 0);
    CHECK(call.response.message() == "ok");
    CHECK(call.sub_code(0) == 1008);
  }
  SECTION("at a limit") {
    braid::parallel_channel outer(in.rt, {.success_limit = 1});
    outer.add_channel(inner);
    outer.add_channel(in.make(says("ok", 5ms)).channel());
    test_call call;
    in.start(outer, call);
    REQUIRE(in.sim.run_until([&] { return call.ended(); }));
    CHECK(in.sim.elapsed() == 5ms);
    CHECK_FALSE(returned);
    CHECK(call.code() == 0);
    CHECK(call.sub_code(0) == 1006);
  }
  CHECK(in.sim.run_until([&] { return returned; }));
  CHECK(in.sim.elapsed() == 100ms);
}

TEST_CASE("combo: sub calls started by one that was ended without it are cancelled at once", "[combo]") {
  world in;
  leaf sub = in.make(says("never asked"));
  int code = 0;
  braid::combo_channel channel(
      in.rt,
      [&](braid::combo_call& call, braid::yield_context yield) {
        {
          const braid::shield deaf(yield, 1h);
          braid::sleep_for(30ms, yield);
        }
        braid::call_group subs(call, 1);
        subs.launch(0, *sub.channel());
        code = braid::to_wire(subs.next(yield)->result.code);
      },
      10ms);
  test_call call;
  in.start(channel, call);
  CHECK(in.sim.run_until([&] { return code != 0; }));
  CHECK(call.code() == 1008);
  CHECK(code == 1008);
  CHECK(sub.times() == 0);
}

TEST_CASE("combo: one that throws fails its call with 2001, and is logged", "[combo]") {
  world in;
  braid::combo_channel channel(in.rt, [](braid::combo_call& call, braid::yield_context) {
    call.succeed();
    throw std::runtime_error("lost my way");
  });
  test_call call;
  CHECK(in.call(channel, call) == 2001);
  CHECK(call.control.ErrorText().find("lost my way") == std::string::npos);
  CHECK(call.response.message() == "untouched");
  REQUIRE(in.log.size() == 1);
  CHECK(in.log[0].find("lost my way") != std::string::npos);
}

TEST_CASE("combo: one that throws while sub calls run ends them", "[combo]") {
  world in;
  leaf sub = in.make(says("x", 1h));
  braid::combo_channel channel(in.rt, [&](braid::combo_call& call, braid::yield_context yield) {
    braid::call_group subs(call, 2);
    subs.launch(0, *sub.channel());
    braid::sleep_for(5ms, yield);
    throw 5;
  });
  test_call call;
  CHECK(in.call(channel, call) == 2001);
  CHECK(in.took == 5ms);
  CHECK(call.sub_code(0) == 125);
}

TEST_CASE("combo: what the deadline makes it throw is 1008, and nothing to report", "[combo]") {
  world in;
  const bool by_user = GENERATE(false, true);
  braid::combo_channel channel(
      in.rt, [](braid::combo_call&, braid::yield_context yield) { braid::sleep_for(1h, yield); }, 20ms);
  test_call call;
  in.start(channel, call);
  in.sim.run_for(5ms);
  if (by_user) call.control.StartCancel();
  REQUIRE(in.sim.run_until([&] { return call.ended(); }));
  CHECK(call.code() == (by_user ? 125 : 1008));
  CHECK(call.control.result().cause == (by_user ? cancel_cause::user : cancel_cause::deadline));
  CHECK(in.log.empty());
}

TEST_CASE("combo: at the deadline the aborted waits of one that reports them are 1008 too", "[combo]") {
  world in;
  braid::combo_channel channel(
      in.rt,
      [](braid::combo_call& call, braid::yield_context yield) {
        error_code ec;
        braid::sleep_for(1h, yield[ec]);
        call.fail(ec, "the wait was aborted");
      },
      20ms);
  test_call call;
  CHECK(in.call(channel, call) == 1008);
  CHECK(call.control.result().cause == cancel_cause::deadline);
}

TEST_CASE("combo: one that returns without a result fails its call with 2001", "[combo]") {
  world in;
  braid::combo_channel channel(in.rt, [](braid::combo_call&, braid::yield_context) {});
  test_call call;
  CHECK(in.call(channel, call) == 2001);
  CHECK(call.control.ErrorText().find("without a result") != std::string::npos);
}

TEST_CASE("combo: success after a cancellation by the user does not count", "[combo]") {
  world in;
  braid::combo_channel channel(in.rt, [](braid::combo_call& call, braid::yield_context yield) {
    error_code ignored;
    braid::sleep_for(1h, yield[ignored]);
    static_cast<golden::EchoResponse&>(call.response()).set_message("done anyway");
    call.finish(outcome{.cause = cancel_cause::user}, {});
  });
  test_call call;
  in.start(channel, call);
  in.sim.run_for(5ms);
  call.control.StartCancel();
  REQUIRE(in.sim.run_until([&] { return call.ended(); }));
  CHECK(call.code() == 125);
  CHECK(call.response.message() == "untouched");
}

TEST_CASE("combo: success in the turn of the deadline counts", "[combo]") {
  world in;
  braid::combo_channel channel(
      in.rt,
      [](braid::combo_call& call, braid::yield_context yield) {
        error_code ignored;
        braid::sleep_for(1h, yield[ignored]);
        static_cast<golden::EchoResponse&>(call.response()).set_message("what I have");
        call.succeed(true);
      },
      20ms);
  test_call call;
  CHECK(in.call(channel, call) == 0);
  CHECK(call.response.message() == "what I have");
  CHECK(call.control.partial());
}

TEST_CASE("combo: success after the deadline's instant is late, also before the timer says so", "[combo]") {
  world in;
  std::optional<boost::asio::any_completion_handler<void()>> resume;
  braid::combo_channel channel(in.rt, [&](braid::combo_call& call, braid::yield_context yield) {
    boost::asio::async_initiate<braid::yield_context, void()>(
        [&](auto handler) { resume.emplace(std::move(handler)); }, yield);
    call.succeed();
  });
  test_call call;
  call.control.set_timeout(10400us);
  in.start(channel, call);
  in.sim.run_for(10600us);
  REQUIRE_FALSE(call.ended());
  boost::asio::post(in.rt.get_executor(), [&] { std::move (*resume)(); });
  in.sim.run_for(0ms);
  REQUIRE(call.ended());
  CHECK(call.code() == 1008);
  CHECK(call.control.result().cause == cancel_cause::deadline);
}

TEST_CASE("combo: a failure without a code is 2001", "[combo]") {
  world in;
  braid::combo_channel channel(
      in.rt, [](braid::combo_call& call, braid::yield_context) { call.fail({}, "something is wrong"); });
  test_call call;
  CHECK(in.call(channel, call) == 2001);
  CHECK(call.control.ErrorText() == "something is wrong");
}

TEST_CASE("combo: finish_as copies up response, code, text, partial", "[combo]") {
  world in;
  test_call good;
  CHECK(in.call(*race(in.rt, {in.make({.message = "r", .partial = true}).channel()}), good) == 0);
  CHECK(good.response.message() == "r");
  CHECK(good.control.partial());
  braid::combo_channel strange(
      in.rt, [sub = in.make({}).channel()](braid::combo_call& call, braid::yield_context yield) {
        braid::call_group subs(call, 1);
        subs.launch(0, *sub, {.owned_response = std::make_unique<google::protobuf::FileDescriptorProto>()});
        call.finish_as(*subs.next(yield));
      });
  test_call bad;
  CHECK(in.call(strange, bad) == 2002);
}

TEST_CASE("combo: the channel may be destroyed right after a start", "[combo]") {
  world in;
  auto channel = race(in.rt, {in.make(says("kept", 5ms)).channel()});
  test_call call;
  in.start(*channel, call);
  channel.reset();
  REQUIRE(in.sim.run_until([&] { return call.ended(); }));
  CHECK(call.response.message() == "kept");
}

TEST_CASE("combo: usable and capacity are its behaviour's", "[combo]") {
  world in;
  struct behaviour final : braid::combo_channel::behaviour {
    void run(braid::combo_call& call, braid::yield_context) override { call.succeed(); }
    bool usable() const noexcept override { return false; }
    int capacity() const noexcept override { return 9; }
  };
  braid::combo_channel channel(in.rt, std::make_shared<behaviour>());
  CHECK_FALSE(channel.usable());
  CHECK(channel.capacity() == 9);
  CHECK(race(in.rt, {})->usable());
  CHECK(race(in.rt, {})->capacity() == 1);
}
