#include "core/loop.hpp"
#include "core/runtime_core.hpp"
#include "parallel_fixture.hpp"

#include <boost/asio/error.hpp>

using namespace parallel_fixture;

namespace {

reply ok(std::chrono::milliseconds after = 0ms) { return {.after = after, .message = "ok"}; }
reply fails(int code, std::chrono::milliseconds after = 0ms) { return {.after = after, .code = code}; }
reply partial_ok(std::chrono::milliseconds after = 0ms) {
  return {.after = after, .message = "ok", .partial = true};
}
constexpr auto never = 1h;

}  // namespace

TEST_CASE("parallel: an empty channel fails with 1", "[parallel]") {
  world in;
  test_call call;
  braid::parallel_channel channel(in.rt);
  CHECK(in.call(channel, call) == 1);
  CHECK(call.ec == boost::system::errc::operation_not_permitted);
  CHECK(call.control.sub_count() == 0);
  CHECK(call.control.sub(0) == nullptr);
  CHECK(call.response.message() == "untouched");
}

TEST_CASE("parallel: limits are checked before anything is sent, in the order 1, 1003, 125, 22",
          "[parallel]") {
  world in;
  leaf sub = in.make(ok());
  const auto channel_of = [&](std::vector<char> what, std::optional<int> success_limit) {
    auto channel = std::make_shared<braid::parallel_channel>(
        in.rt, braid::parallel_channel_options{.success_limit = success_limit});
    for (const char each : what) {
      channel->add_channel(sub.channel(),
                           map_with([each](auto, auto, const auto& method, const auto&, auto&) {
                             if (each == 'b') return braid::sub_call::bad();
                             if (each == 's') return braid::sub_call::skip();
                             return same_call(method);
                           }));
    }
    return channel;
  };
  const auto code_of = [&](std::vector<char> what, std::optional<int> success_limit) {
    test_call call;
    const int code = in.call(*channel_of(what, success_limit), call);
    CHECK(call.control.sub_count() == what.size());
    for (std::size_t i = 0; i < what.size(); ++i) CHECK(call.control.sub(i) == nullptr);
    CHECK(call.control.result().cause == cancel_cause::none);
    CHECK_FALSE(call.control.ErrorText().empty());
    return code;
  };
  CHECK(code_of({}, 5) == 1);
  CHECK(code_of({'b'}, 5) == 1003);
  CHECK(code_of({'c', 's', 'b'}, 5) == 1003);
  CHECK(code_of({'s', 's'}, 5) == 125);
  CHECK(code_of({'s', 's'}, {}) == 125);
  CHECK(code_of({'c', 'c'}, 3) == 22);
  CHECK(code_of({'c', 's'}, 2) == 22);
  CHECK(sub.times() == 0);
  test_call call;
  CHECK(in.call(*channel_of({'c', 's'}, 1), call) == 0);
}

TEST_CASE("parallel: fail_limit unset is n, below 1 is 1, above n is n", "[parallel]") {
  world in;
  const auto code_with = [&](std::optional<int> limit, std::vector<reply> answers) {
    test_call call;
    return in.call(*in.parallel({.fail_limit = limit}, answers), call);
  };
  CHECK(code_with({}, {fails(5001), fails(5001), ok()}) == 0);
  CHECK(code_with({}, {fails(5001), fails(5001)}) == 5001);
  CHECK(code_with(0, {fails(5001), ok(1ms)}) == 5001);
  CHECK(code_with(-3, {fails(5001), ok(1ms)}) == 5001);
  CHECK(code_with(9, {fails(5001), ok(1ms)}) == 0);
  CHECK(code_with(9, {fails(5001), fails(5001)}) == 5001);
  CHECK(code_with(2, {fails(5001), fails(5001), ok(1ms)}) == 5001);
  CHECK(code_with(3, {fails(5001), fails(5001), ok(1ms)}) == 0);
}

TEST_CASE("parallel: at fail_limit the rest are cancelled with 125", "[parallel]") {
  world in;
  test_call call;
  CHECK(in.call(*in.parallel({.fail_limit = 2}, {fails(5001, 5ms), ok(never), fails(5001, 9ms), ok(7ms)}),
                call) == 5001);
  CHECK(in.took == 9ms);
  CHECK(call.sub_code(0) == 5001);
  CHECK(call.sub_code(1) == 125);
  CHECK(call.sub_cause(1) == cancel_cause::fail_limit);
  CHECK(call.sub_code(3) == 0);
  CHECK(call.control.result().cause == cancel_cause::none);
}

TEST_CASE("parallel: success_limit unset awaits all, and one success is enough", "[parallel]") {
  world in;
  test_call call;
  CHECK(in.call(*in.parallel({}, {ok(1ms), fails(5001, 20ms), fails(5002, 30ms)}), call) == 0);
  CHECK(in.took == 30ms);
  CHECK(call.control.partial());
}

TEST_CASE("parallel: at success_limit the rest are cancelled with 1006", "[parallel]") {
  world in;
  test_call call;
  CHECK(in.call(*in.parallel({.success_limit = 2}, {ok(5ms), ok(never), ok(9ms), fails(5001, 20ms)}), call) ==
        0);
  CHECK(in.took == 9ms);
  CHECK(call.sub_code(1) == 1006);
  CHECK(call.sub_cause(1) == cancel_cause::success_limit);
  CHECK(call.sub_code(3) == 1006);
  CHECK_FALSE(call.control.partial());
}

TEST_CASE("parallel: success_limit below 1 ends at the first success", "[parallel]") {
  world in;
  test_call call;
  CHECK(in.call(*in.parallel({.success_limit = 0}, {ok(never), ok(3ms)}), call) == 0);
  CHECK(in.took == 3ms);
}

TEST_CASE("parallel: ends at once when success_limit can no longer be reached, a true quorum", "[parallel]") {
  world in;
  test_call call;
  CHECK(in.call(*in.parallel({.success_limit = 2}, {fails(5001, 2ms), fails(5001, 4ms), ok(never)}), call) ==
        5001);
  CHECK(in.took == 4ms);
  CHECK(call.sub_code(2) == 125);
  CHECK(call.sub_cause(2) == cancel_cause::fail_limit);
}

TEST_CASE("parallel: both limits may be set, the first that is reached decides", "[parallel]") {
  world in;
  test_call fails_first;
  CHECK(in.call(*in.parallel({.fail_limit = 1, .success_limit = 1}, {fails(5001, 1ms), ok(2ms)}),
                fails_first) == 5001);
  test_call succeeds_first;
  CHECK(in.call(*in.parallel({.fail_limit = 1, .success_limit = 1}, {fails(5001, 2ms), ok(1ms)}),
                succeeds_first) == 0);
  CHECK(succeeds_first.sub_code(0) == 1006);
}

TEST_CASE("parallel: a sub call unfinished at the deadline is a failure with 1008", "[parallel]") {
  world in;
  SECTION("what had succeeded may be enough") {
    test_call call;
    CHECK(in.call(*in.parallel({.timeout = 50ms}, {ok(1ms), ok(never)}), call) == 0);
    CHECK(in.took == 50ms);
    CHECK(call.sub_code(1) == 1008);
    CHECK(call.sub_cause(1) == cancel_cause::deadline);
    CHECK(call.control.partial());
    CHECK(call.response.message() == "ok");
  }
  SECTION("or not") {
    test_call call;
    CHECK(in.call(*in.parallel({.timeout = 50ms, .fail_limit = 1}, {ok(1ms), ok(never)}), call) == 1008);
    CHECK(call.control.result().cause == cancel_cause::deadline);
    CHECK(call.response.message() == "untouched");
  }
  SECTION("the controller's timeout is the one that counts") {
    test_call call;
    call.control.set_timeout(20ms);
    CHECK(in.call(*in.parallel({.timeout = 50ms}, {ok(never), ok(never)}), call) == 1008);
    CHECK(in.took == 20ms);
  }
}

TEST_CASE("parallel: the sub channels' own timeouts do not apply", "[parallel]") {
  world in;
  auto inner = in.parallel({.timeout = 5ms}, {ok(30ms)});
  braid::parallel_channel outer(in.rt, {.timeout = 50ms});
  outer.add_channel(inner);
  test_call call;
  CHECK(in.call(outer, call) == 0);
  CHECK(in.took == 30ms);
}

TEST_CASE("parallel: the code of a failure", "[parallel]") {
  world in;
  const auto code_of = [&](braid::parallel_channel_options options, std::vector<reply> answers) {
    test_call call;
    return in.call(*in.parallel(options, answers), call);
  };
  CHECK(code_of({}, {fails(5001), fails(5001)}) == 5001);
  CHECK(code_of({}, {fails(5001), fails(5002)}) == 1005);
  CHECK(code_of({}, {fails(5001), {.code = 125, .from_peer = false}}) == 5001);
  CHECK(code_of({}, {fails(5001), {.code = 125}}) == 1005);
  CHECK(code_of({}, {{.code = 125, .from_peer = false}, {.code = 125, .from_peer = false}}) == 125);
  CHECK(code_of({.timeout = 9ms, .fail_limit = 2}, {fails(5001), ok(never), ok(never)}) == 1008);
  CHECK(code_of({.timeout = 9ms, .fail_limit = 1}, {fails(5001), ok(never)}) == 5001);
}

TEST_CASE("parallel: retryable when all that failed are", "[parallel]") {
  world in;
  test_call all;
  CHECK(in.call(*in.parallel({}, {{.code = 111, .from_peer = false}, {.code = 2003}}), all) == 1005);
  CHECK(all.control.result().retryable);
  test_call some;
  CHECK(in.call(*in.parallel({}, {{.code = 111, .from_peer = false}, fails(5001)}), some) == 1005);
  CHECK_FALSE(some.control.result().retryable);
}

TEST_CASE("parallel: the text names each failing index with its text", "[parallel]") {
  world in;
  test_call call;
  CHECK(in.call(*in.parallel({.success_limit = 2},
                             {ok(), {.code = 5001, .message = "disk full"}, fails(5002, 1ms)}),
                call) == 1005);
  CHECK(call.control.ErrorText() ==
        "2 of 3 sub calls failed: #1: 5001 disk full; #2: 5002 " + from_wire(5002).message());
}

TEST_CASE("parallel: partial tells that a sub call did not contribute", "[parallel]") {
  world in;
  const auto partial = [&](const std::shared_ptr<braid::channel_base>& channel) {
    test_call call;
    CHECK(in.call(*channel, call) == 0);
    return call.control.partial();
  };
  CHECK_FALSE(partial(in.parallel({}, {ok(), ok()})));
  CHECK(partial(in.parallel({}, {ok(), fails(5001)})));
  CHECK(partial(in.parallel({}, {ok(), partial_ok()})));
  CHECK_FALSE(partial(in.parallel({.success_limit = 1}, {ok(), ok(never)})));
  auto skipping = std::make_shared<braid::parallel_channel>(in.rt);
  for (int i = 0; i < 2; ++i) {
    skipping->add_channel(in.make(ok()).channel(),
                          map_with([](std::size_t index, auto, const auto& method, const auto&, auto&) {
                            return index == 0 ? braid::sub_call::skip() : same_call(method);
                          }));
  }
  CHECK_FALSE(partial(skipping));
  auto outer = std::make_shared<braid::parallel_channel>(in.rt);
  outer->add_channel(in.parallel({}, {ok(), fails(5001)}));
  CHECK(partial(outer));
}

TEST_CASE("parallel: 1006 only for the direct sub calls of the call that has its successes", "[parallel]") {
  world in;
  leaf deep = in.make(ok(never));
  auto inner = std::make_shared<braid::parallel_channel>(in.rt);
  inner->add_channel(deep.channel());
  inner->add_channel(deep.channel());
  braid::parallel_channel outer(in.rt, {.success_limit = 1});
  outer.add_channel(in.make(ok(3ms)).channel());
  outer.add_channel(inner);
  test_call call;
  CHECK(in.call(outer, call) == 0);
  CHECK(call.sub_code(1) == 1006);
  CHECK(call.sub_cause(1) == cancel_cause::success_limit);
  REQUIRE(call.control.sub(1)->sub_count() == 2);
  for (std::size_t i = 0; i < 2; ++i) {
    CHECK(braid::to_wire(call.control.sub(1)->sub(i)->error()) == 125);
    CHECK(call.control.sub(1)->sub(i)->result().cause == cancel_cause::success_limit);
  }
}

TEST_CASE("parallel: a cancelled call ends with 125, never with success, and merges nothing", "[parallel]") {
  world in;
  int merged = 0;
  auto channel = std::make_shared<braid::parallel_channel>(in.rt);
  const auto count = merge_with([&](auto&, const auto&) {
    ++merged;
    return braid::merge_result::merged;
  });
  channel->add_channel(in.make(ok(1ms)).channel(), nullptr, count);
  channel->add_channel(in.make(ok(never)).channel(), nullptr, count);
  test_call call;
  in.start(*channel, call);
  in.sim.run_for(10ms);
  CHECK_FALSE(call.ended());
  call.control.StartCancel();
  REQUIRE(in.sim.run_until([&] { return call.ended(); }));
  CHECK(in.sim.elapsed() == 10ms);
  CHECK(call.code() == 125);
  CHECK(call.ec == boost::asio::error::operation_aborted);
  CHECK(call.control.result().cause == cancel_cause::user);
  CHECK(call.control.IsCanceled());
  CHECK(call.sub_code(0) == 0);
  CHECK(call.sub_cause(1) == cancel_cause::user);
  CHECK(merged == 0);
  CHECK(call.response.message() == "untouched");
}

TEST_CASE("parallel: a call cancelled before its start sends nothing", "[parallel]") {
  world in;
  leaf sub = in.make(ok());
  braid::parallel_channel channel(in.rt);
  channel.add_channel(sub.channel());
  test_call call;
  call.control.StartCancel();
  CHECK(in.call(channel, call) == 125);
  CHECK(call.control.result().cause == cancel_cause::user);
  CHECK(sub.times() == 0);
}

TEST_CASE("parallel: timed out and cancelled are told apart at every depth", "[parallel]") {
  const bool cancel = GENERATE(false, true);
  world in;
  std::shared_ptr<braid::channel_base> channel = in.make(ok(never)).channel();
  constexpr int depth = 6;
  for (int i = 0; i < depth; ++i) {
    auto outer =
        std::make_shared<braid::parallel_channel>(in.rt, braid::parallel_channel_options{.timeout = 40ms});
    outer->add_channel(channel);
    outer->add_channel(channel);
    channel = outer;
  }
  test_call call;
  in.start(*channel, call);
  if (cancel) {
    in.sim.run_for(10ms);
    call.control.StartCancel();
  }
  REQUIRE(in.sim.run_until([&] { return call.ended(); }));
  CHECK(in.sim.elapsed() == (cancel ? 10ms : 40ms));
  int calls = 0;
  const std::function<void(const braid::controller&)> check = [&](const braid::controller& of) {
    ++calls;
    CHECK(of.result().code == (cancel ? from_wire(125) : from_wire(1008)));
    CHECK(of.result().cause == (cancel ? cancel_cause::user : cancel_cause::deadline));
    for (std::size_t i = 0; i < of.sub_count(); ++i) check(*of.sub(i));
  };
  check(call.control);
  CHECK(calls == (2 << depth) - 1);
}

TEST_CASE("parallel: what had succeeded deep down at the deadline counts above", "[parallel]") {
  world in;
  auto inner = in.parallel({}, {ok(5ms), ok(never)});
  auto middle = std::make_shared<braid::parallel_channel>(in.rt);
  middle->add_channel(inner);
  middle->add_channel(in.make(ok(never)).channel());
  braid::parallel_channel outer(in.rt, {.timeout = 30ms});
  outer.add_channel(middle);
  outer.add_channel(in.make(ok(never)).channel());
  test_call call;
  CHECK(in.call(outer, call) == 0);
  CHECK(in.took == 30ms);
  CHECK(call.control.partial());
  CHECK(call.response.message() == "ok");
  CHECK(call.sub_code(0) == 0);
  CHECK(call.sub_code(1) == 1008);
}

TEST_CASE("parallel: at the deadline combos resume deepest first and judge in index order", "[parallel]") {
  world in;
  std::vector<std::string> order;
  const auto note = [&](const char* who) {
    return merge_with([&order, who](auto&, const auto&) {
      order.emplace_back(who);
      return braid::merge_result::merged;
    });
  };
  const auto with_one_done = [&](const char* who, std::shared_ptr<braid::channel_base> more) {
    auto made =
        std::make_shared<braid::parallel_channel>(in.rt, braid::parallel_channel_options{.timeout = 20ms});
    if (more) made->add_channel(std::move(more), nullptr, note(who));
    made->add_channel(in.make(ok(2ms)).channel(), nullptr, note(who));
    made->add_channel(in.make(ok(1ms)).channel(), nullptr, note(who));
    made->add_channel(in.make(ok(never)).channel(), nullptr, note(who));
    return made;
  };
  auto channel = with_one_done("top", with_one_done("middle", with_one_done("deep", nullptr)));
  test_call call;
  CHECK(in.call(*channel, call) == 0);
  CHECK(order == std::vector<std::string>{"deep", "deep", "middle", "middle", "middle", "top", "top", "top"});
}

TEST_CASE("parallel: a reply at the deadline's instant is late for the whole call", "[parallel]") {
  // The timer has a resolution of 1 ms; a sub call that finds the instant passed ends the call.
  world in;
  test_call call;
  call.control.set_timeout(10ms);
  CHECK(in.call(*in.parallel({.fail_limit = 2}, {ok(10ms), ok(10ms), fails(5001, 1ms)}), call) == 1008);
  CHECK(call.control.result().cause == cancel_cause::deadline);
}

TEST_CASE("parallel: the same channel may be added many times", "[parallel]") {
  world in;
  leaf sub = in.make(ok());
  braid::parallel_channel channel(in.rt);
  for (int i = 0; i < 64; ++i) channel.add_channel(sub.channel(), nullptr, joining());
  CHECK(channel.channel_count() == 64);
  test_call call;
  CHECK(in.call(channel, call) == 0);
  CHECK(sub.times() == 64);
  CHECK(call.control.sub_count() == 64);
  CHECK(call.response.message().size() == 128);
}

TEST_CASE("parallel: channels are owned or borrowed; none and itself are refused", "[parallel]") {
  world in;
  leaf sub = in.make(ok());
  braid::parallel_channel channel(in.rt);
  channel.add_channel(sub.channel().get());
  channel.add_channel(in.make(ok()).channel());  // kept by the parallel channel alone
  CHECK_THROWS_AS(channel.add_channel(std::shared_ptr<braid::channel_base>()), std::invalid_argument);
  CHECK_THROWS_AS(channel.add_channel(static_cast<braid::channel_base*>(nullptr)), std::invalid_argument);
  CHECK_THROWS_AS(channel.add_channel(&channel), std::invalid_argument);
  braid::parallel_channel between(in.rt), inner(in.rt);
  between.add_channel(&inner);
  inner.add_channel(in.make(ok()).channel());
  CHECK_THROWS_AS(inner.add_channel(&between), std::invalid_argument);  // which would never end
  channel.add_channel(&between);
  test_call call;
  CHECK(in.call(channel, call) == 0);
  CHECK_FALSE(call.control.partial());
}

TEST_CASE("parallel: may be destroyed right after an asynchronous start", "[parallel]") {
  world in;
  auto inner = in.parallel({}, {ok(5ms)});
  auto outer = std::make_unique<braid::parallel_channel>(in.rt);
  outer->add_channel(std::move(inner), nullptr, joining());
  test_call call;
  in.start(*outer, call);
  outer.reset();
  call.request.set_message("changed after the start");
  REQUIRE(in.sim.run_until([&] { return call.ended(); }));
  CHECK(call.code() == 0);
  CHECK(call.response.message() == "ok");
}

TEST_CASE("parallel: the request is free after the start, unless it promises to stay", "[parallel]") {
  const bool in_coroutine = GENERATE(false, true);
  world in;
  leaf sub = in.make({.after = 1ms});
  braid::parallel_channel channel(in.rt);
  channel.add_channel(sub.channel());
  test_call call;
  const auto start = [&] {
    auto request = std::make_unique<golden::EchoRequest>(request_of("kept"));
    channel.async_call(echo_method(), call.control, *request, call.response, [&](error_code ec) {
      ++call.completions;
      call.ec = ec;
    });
    request->set_message("gone");
  };
  if (in_coroutine) {
    braid::spawn(in.rt, [&](braid::yield_context) { start(); });
  } else {
    start();
  }
  REQUIRE(in.sim.run_until([&] { return call.ended(); }));
  CHECK(call.response.message() == "kept");
}

TEST_CASE("parallel: a request that outlives its call is not copied, another one is where it must be",
          "[parallel]") {
  enum class from { elsewhere, its_loop, coroutine_that_goes_on, coroutine_that_waits };
  const auto started =
      GENERATE(from::elsewhere, from::its_loop, from::coroutine_that_goes_on, from::coroutine_that_waits);
  const bool outlives = GENERATE(false, true);
  world in;
  const google::protobuf::Message* mapped = nullptr;
  const google::protobuf::Message* nested = nullptr;
  const google::protobuf::Message* run = nullptr;
  const auto note = [](const google::protobuf::Message*& where) {
    return map_with([&where](auto, auto, const auto& method, const auto& request, auto&) {
      where = &request;
      return same_call(method);
    });
  };
  auto inner = std::make_shared<braid::parallel_channel>(in.rt);
  inner->add_channel(std::make_shared<braid::combo_channel>(in.rt,
                                                            [&](braid::combo_call& call, auto) {
                                                              run = &call.request();
                                                              call.succeed();
                                                            }),
                     note(nested));
  braid::parallel_channel channel(in.rt);
  channel.add_channel(inner, note(mapped));
  test_call call;
  call.control.set_request_outlives_call(outlives);
  const auto start = [&] {
    in.start(channel, call);
    CHECK((mapped != nullptr) == (started != from::elsewhere));  // on its loop at once
  };
  switch (started) {
    case from::elsewhere:
      start();
      break;
    case from::its_loop:
      in.rt.core()->at(0).post(start);
      break;
    case from::coroutine_that_goes_on:
      braid::spawn(in.rt, [&](braid::yield_context) { start(); });
      break;
    case from::coroutine_that_waits:
      braid::spawn(in.rt, [&](braid::yield_context yield) {
        channel.async_call(echo_method(), call.control, call.request, call.response, yield[call.ec]);
        ++call.completions;
      });
      break;
  }
  REQUIRE(in.sim.run_until([&] { return call.ended(); }));
  CHECK(call.code() == 0);
  if (outlives || started == from::coroutine_that_waits) CHECK(mapped == &call.request);
  if (!outlives && started == from::elsewhere) CHECK(mapped != &call.request);
  CHECK(nested == mapped);      // no copy for each level
  CHECK(run != &call.request);  // a combo of the program's own may outlive the call
}

TEST_CASE("parallel: a call after its runtime has gone ends with 125", "[parallel]") {
  braid::testing::simulation sim(1);
  std::shared_ptr<braid::parallel_channel> channel;
  test_call call;
  {
    braid::runtime rt(sim.node_options());
    channel = std::make_shared<braid::parallel_channel>(rt);
    channel->add_channel(leaf(rt, ok(never)).channel());
    channel->async_call(echo_method(), call.control, call.request, call.response,
                        [&](error_code ec) { call.ec = ec, ++call.completions; });
    sim.run_for(5ms);
  }
  CHECK(call.completions == 1);
  CHECK(call.code() == 125);
  CHECK(call.control.result().cause == cancel_cause::shutdown);
  CHECK(call.sub_cause(0) == cancel_cause::shutdown);
  test_call late;
  CHECK_THROWS_AS(channel->call(echo_method(), late.control, late.request, late.response), braid::call_error);
  CHECK(braid::to_wire(late.control.error()) == 125);
}

TEST_CASE("parallel: sub(i) is valid until the controller is reused", "[parallel]") {
  world in;
  test_call call;
  CHECK(in.call(*in.parallel({}, {ok(), fails(5001)}), call) == 0);
  CHECK(call.control.sub_count() == 2);
  CHECK(call.sub_code(1) == 5001);
  CHECK(call.control.sub(2) == nullptr);
  call.completions = 0;
  CHECK(in.call(*in.parallel({}, {ok(), ok(), ok()}), call) == 0);
  CHECK(call.control.sub_count() == 3);
  call.control.Reset();
  CHECK(call.control.sub_count() == 0);
  call.completions = 0;
  CHECK(in.call(*in.make(ok()).channel(), call) == 0);
  CHECK(call.control.sub(0) == nullptr);
}

namespace {

class known_state final : public braid::combo_channel::behaviour {
 public:
  known_state(bool usable, int capacity) : usable_(usable), capacity_(capacity) {}
  void run(braid::combo_call& call, braid::yield_context) override { call.succeed(); }
  bool usable() const noexcept override { return usable_; }
  int capacity() const noexcept override { return capacity_; }

 private:
  bool usable_;
  int capacity_;
};

}  // namespace

TEST_CASE("parallel: capacity is the least, usable if enough are for a success", "[parallel]") {
  world in;
  const auto sub = [&](bool usable, int capacity) {
    return std::make_shared<braid::combo_channel>(in.rt, std::make_shared<known_state>(usable, capacity));
  };
  const auto usable = [&](braid::parallel_channel_options options, int up, int down) {
    braid::parallel_channel channel(in.rt, options);
    for (int i = 0; i < up; ++i) channel.add_channel(sub(true, 1));
    for (int i = 0; i < down; ++i) channel.add_channel(sub(false, 1));
    return channel.usable();
  };
  CHECK_FALSE(usable({}, 0, 0));
  CHECK(usable({}, 1, 2));
  CHECK_FALSE(usable({}, 0, 3));
  CHECK_FALSE(usable({.fail_limit = 1}, 2, 1));
  CHECK(usable({.fail_limit = 2}, 2, 1));
  CHECK(usable({.success_limit = 2}, 2, 1));
  CHECK_FALSE(usable({.success_limit = 2}, 1, 2));
  CHECK_FALSE(usable({.success_limit = 3}, 2, 0));  // each call fails with 22

  braid::parallel_channel channel(in.rt);
  CHECK(channel.capacity() == 0);
  channel.add_channel(sub(true, 7));
  channel.add_channel(sub(true, 3));
  channel.add_channel(sub(true, 5));
  CHECK(channel.capacity() == 3);
}
