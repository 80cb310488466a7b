#include "parallel_fixture.hpp"

#include <boost/asio/error.hpp>

#include <stdexcept>

using namespace parallel_fixture;

namespace {

reply says(std::string text, std::chrono::milliseconds after = 0ms) {
  return {.after = after, .message = std::move(text)};
}

/// Runs a function as a combo and returns the code of the call.
template <typename Function>
int run(world& in, Function function, test_call& call) {
  braid::combo_channel channel(in.rt, std::move(function));
  return in.call(channel, call);
}

std::vector<std::size_t> all_of(braid::call_group& subs, braid::yield_context yield) {
  std::vector<std::size_t> indices;
  while (const auto* done = subs.next(yield)) indices.push_back(done->index);
  return indices;
}

}  // namespace

TEST_CASE("call_group: next returns the sub calls in the order in which they end", "[combo][call_group]") {
  world in;
  test_call call;
  CHECK(run(
            in,
            [&](braid::combo_call& of, braid::yield_context yield) {
              braid::call_group subs(of, 4);
              CHECK(subs.next(yield) == nullptr);
              const std::vector<std::chrono::milliseconds> after{20ms, 0ms, 10ms};
              for (std::size_t i = 0; i < 3; ++i) subs.launch(i, *in.make(says("x", after[i])).channel());
              CHECK(subs.running() == 3);
              CHECK(all_of(subs, yield) == std::vector<std::size_t>{1, 2, 0});
              CHECK(subs.running() == 0);
              subs.launch(3, *in.make(says("x", 1ms)).channel());
              CHECK(all_of(subs, yield) == std::vector<std::size_t>{3});
              CHECK(subs.next(yield) == nullptr);
              of.succeed();
            },
            call) == 0);
}

TEST_CASE("call_group: at the deadline next waits for all and goes by index", "[combo][call_group]") {
  world in;
  test_call call;
  std::vector<std::size_t> order;
  call.control.set_timeout(30ms);
  CHECK(run(
            in,
            [&](braid::combo_call& of, braid::yield_context yield) {
              braid::call_group subs(of, 4);
              for (std::size_t i : {3U, 1U, 2U, 0U}) subs.launch(i, *in.make(says("x", 1h)).channel());
              order = all_of(subs, yield);
              for (std::size_t i = 0; i < 4; ++i) CHECK(subs.at(i).result.code == errc::timed_out);
              of.finish_as(subs.at(0));
            },
            call) == 1008);
  CHECK(order == std::vector<std::size_t>{0, 1, 2, 3});
  CHECK(call.control.result().cause == cancel_cause::deadline);
}

TEST_CASE("call_group: cancel_rest cancels with its cause and waits", "[combo][call_group]") {
  world in;
  test_call call;
  CHECK(run(
            in,
            [&](braid::combo_call& of, braid::yield_context yield) {
              braid::call_group subs(of, 3);
              for (std::size_t i = 0; i < 3; ++i)
                subs.launch(i, *in.make(says("x", i == 0 ? 1ms : 1h)).channel());
              CHECK(subs.next(yield)->index == 0);
              subs.cancel_rest(cancel_cause::fail_limit, yield);
              CHECK(subs.running() == 0);
              CHECK(subs.at(0).result.succeeded());
              CHECK(subs.at(2).result.cause == cancel_cause::fail_limit);
              CHECK(all_of(subs, yield) == std::vector<std::size_t>{1, 2});
              subs.cancel_rest(cancel_cause::user, yield);
              of.succeed();
            },
            call) == 0);
  CHECK(call.sub_code(1) == 125);
}

TEST_CASE("call_group: leaving its scope cancels what is left, and the call ends after that",
          "[combo][call_group]") {
  world in;
  test_call call;
  CHECK(run(
            in,
            [&](braid::combo_call& of, braid::yield_context) {
              braid::call_group subs(of, 1);
              subs.launch(0, *in.make(says("x", 1h)).channel());
              of.succeed();
            },
            call) == 0);
  CHECK(in.took == 0ms);
  CHECK(call.sub_code(0) == 125);
  CHECK(call.sub_cause(0) == cancel_cause::sibling_won);
}

TEST_CASE("call_group: one kept beyond its combo keeps no sub call alive", "[combo][call_group]") {
  world in;
  test_call call;
  std::unique_ptr<braid::call_group> kept;
  CHECK(run(
            in,
            [&](braid::combo_call& of, braid::yield_context) {
              kept = std::make_unique<braid::call_group>(of, 1);
              kept->launch(0, *in.make(says("x", 1h)).channel());
              of.succeed();
            },
            call) == 0);
  CHECK(in.took == 0ms);
  CHECK(call.sub_code(0) == 125);
  CHECK(kept->running() == 0);
  kept.reset();
}

TEST_CASE("call_group: an index that is out of range or used twice is refused", "[combo][call_group]") {
  world in;
  test_call call;
  CHECK(run(
            in,
            [&](braid::combo_call& of, braid::yield_context yield) {
              braid::call_group subs(of, 1);
              leaf sub = in.make(says("x", 1ms));
              CHECK_THROWS_AS(subs.control(1), std::out_of_range);
              CHECK_THROWS_AS(subs.launch(1, *sub.channel()), std::out_of_range);
              subs.launch(0, *sub.channel());
              CHECK_THROWS_AS(subs.launch(0, *sub.channel()), std::logic_error);
              CHECK_THROWS_AS(subs.at(0), std::logic_error);  // has not ended
              CHECK(subs.next(yield)->index == 0);
              of.succeed();
            },
            call) == 0);
}

TEST_CASE("call_group: a sub call may have its own method, messages, metadata and deadline",
          "[combo][call_group]") {
  world in;
  leaf sub = in.make({.after = 1h});
  const auto& other = *golden::EchoService::descriptor()->FindMethodByName("Missing");
  test_call call;
  call.control.mutable_request_metadata().request_id = "parent";
  const auto from = in.sim.now();
  CHECK(run(
            in,
            [&](braid::combo_call& of, braid::yield_context yield) {
              braid::call_group subs(of, 2);
              subs.control(0).mutable_request_metadata().log_id = 5;
              const golden::EchoRequest mine = request_of("mine");
              golden::EchoResponse answer;
              subs.launch(
                  0, *sub.channel(),
                  {.method = &other, .request = &mine, .response = &answer, .deadline = in.sim.now() + 7ms});
              const auto* done = subs.next(yield);
              CHECK(&done->response == &answer);
              CHECK(in.sim.now() == from + 7ms);
              CHECK(done->result.code == errc::timed_out);
              of.finish_as(*done);
            },
            call) == 1008);
  REQUIRE(sub.times() == 1);
  CHECK(sub.asked()[0].message == "mine");
  CHECK(sub.asked()[0].data.request_id == "parent");
  CHECK(sub.asked()[0].data.log_id == 5);
  CHECK(sub.asked()[0].deadline == from + 7ms);
  CHECK_FALSE(call.control.request_metadata().log_id);
}

TEST_CASE("call_group: many sub calls, most of them at once", "[combo][call_group]") {
  world in;
  leaf sub = in.make(says("x"));
  test_call call;
  CHECK(run(
            in,
            [&](braid::combo_call& of, braid::yield_context yield) {
              constexpr std::size_t n = 2000;
              braid::call_group subs(of, n);
              for (std::size_t i = 0; i < n; ++i) subs.launch(i, *sub.channel());
              CHECK(all_of(subs, yield).size() == n);
              of.succeed();
            },
            call) == 0);
  CHECK(sub.times() == 2000);
}

TEST_CASE("call_group: a method that is not of generated code needs a response", "[combo][call_group]") {
  const foreign_echo foreign;
  world in;
  leaf sub = in.make(says("x"));
  test_call call;
  CHECK(run(
            in,
            [&](braid::combo_call& of, braid::yield_context yield) {
              braid::call_group subs(of, 2);
              CHECK_THROWS_AS(subs.launch(0, *sub.channel(), {.method = &foreign.method()}),
                              std::invalid_argument);
              golden::EchoResponse answer;
              subs.launch(1, *sub.channel(), {.method = &foreign.method(), .response = &answer});
              of.finish_as(*subs.next(yield));
            },
            call) == 0);
  CHECK(sub.times() == 1);
}
