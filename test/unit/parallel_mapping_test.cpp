#include "parallel_fixture.hpp"

#include <google/protobuf/descriptor.pb.h>

#include <stdexcept>

using namespace parallel_fixture;

namespace {

reply echo(std::chrono::milliseconds after = 0ms) { return {.after = after}; }
reply says(std::string text, std::chrono::milliseconds after = 0ms) {
  return {.after = after, .message = std::move(text)};
}

}  // namespace

TEST_CASE("mapper: gets index, count, method, request and response", "[parallel][mapper]") {
  world in;
  braid::parallel_channel channel(in.rt);
  std::vector<std::size_t> indices;
  for (int i = 0; i < 3; ++i) {
    channel.add_channel(in.make(echo()).channel(),
                        map_with([&](std::size_t index, std::size_t count, const auto& method,
                                     const auto& request, auto& response) {
                          indices.push_back(index);
                          CHECK(count == 3);
                          CHECK(&method == &echo_method());
                          CHECK(static_cast<const golden::EchoRequest&>(request).message() == "question");
                          CHECK_FALSE(static_cast<golden::EchoResponse&>(response).has_message());
                          return same_call(method);
                        }));
  }
  test_call call;
  CHECK(in.call(channel, call) == 0);
  CHECK(indices == std::vector<std::size_t>{0, 1, 2});
}

TEST_CASE("mapper: requests and responses may be owned or borrowed", "[parallel][mapper]") {
  world in;
  braid::parallel_channel channel(in.rt);
  const golden::EchoRequest borrowed = request_of("borrowed ");
  golden::EchoResponse* owned_response = nullptr;
  channel.add_channel(in.make(echo()).channel(),
                      map_with([&](auto, auto, const auto& method, const auto&, auto&) {
                        return braid::sub_call(method, &borrowed);
                      }),
                      joining());
  channel.add_channel(
      in.make(echo()).channel(), map_with([&](auto, auto, const auto& method, const auto&, auto&) {
        return braid::sub_call(method, std::make_unique<golden::EchoRequest>(request_of("owned ")));
      }),
      joining());
  channel.add_channel(
      in.make(echo()).channel(), map_with([&](auto, auto, const auto& method, const auto&, auto&) {
        auto response = std::make_unique<golden::EchoResponse>();
        owned_response = response.get();
        return braid::sub_call(method, std::make_unique<golden::EchoRequest>(request_of("both")),
                               std::move(response));
      }),
      merge_with([&](golden::EchoResponse& all, const golden::EchoResponse& one) {
        CHECK(&one == owned_response);
        all.set_message(all.message() + one.message());
        return braid::merge_result::merged;
      }));
  test_call call;
  CHECK(in.call(channel, call) == 0);
  CHECK(call.response.message() == "borrowed owned both");
}

TEST_CASE("mapper: a borrowed response lies inside the response given to it", "[parallel][mapper]") {
  world in;
  // Each sub channel fills a message of its own inside the response, which needs no merger.
  const auto filling = [&](const char* name, int code) {
    return std::make_shared<braid::combo_channel>(in.rt, [=](braid::combo_call& call, braid::yield_context) {
      static_cast<google::protobuf::DescriptorProto&>(call.response()).set_name(name);
      code == 0 ? call.succeed() : call.fail(from_wire(code), "");
    });
  };
  const auto into_part = map_with([](auto, auto, const auto& method, const auto&, auto& response) {
    return braid::sub_call(method, static_cast<const google::protobuf::Message*>(nullptr),
                           static_cast<google::protobuf::FileDescriptorProto&>(response).add_message_type());
  });
  google::protobuf::FileDescriptorProto response;
  response.set_name("untouched");
  const auto run = [&](int last_code, braid::parallel_channel_options options) {
    braid::parallel_channel channel(in.rt, options);
    channel.add_channel(filling("one", 0), into_part);
    channel.add_channel(filling("two", 0), into_part);
    channel.add_channel(filling("three", last_code), into_part);
    test_call call;
    channel.async_call(echo_method(), call.control, call.request, response, [&](error_code ec) {
      call.ec = ec;
      ++call.completions;
    });
    REQUIRE(in.sim.run_until([&] { return call.ended(); }));
    return call.code();
  };
  CHECK(run(5001, {.fail_limit = 1}) == 5001);
  CHECK(response.name() == "untouched");
  CHECK(response.message_type_size() == 0);
  CHECK(run(0, {}) == 0);
  REQUIRE(response.message_type_size() == 3);
  CHECK(response.message_type(0).name() == "one");
  CHECK(response.message_type(2).name() == "three");
}

TEST_CASE("mapper: the borrowed response may be the whole one", "[parallel][mapper]") {
  world in;
  braid::parallel_channel channel(in.rt);
  channel.add_channel(in.make(says("whole")).channel(),
                      map_with([](auto, auto, const auto& method, const auto&, auto& response) {
                        return braid::sub_call(method, static_cast<const google::protobuf::Message*>(nullptr),
                                               &response);
                      }));
  test_call call;
  CHECK(in.call(channel, call) == 0);
  CHECK(call.response.message() == "whole");
}

TEST_CASE("mapper: bad() fails at once with 1003 and sends nothing", "[parallel][mapper]") {
  const int how = GENERATE(0, 1, 2);
  world in;
  leaf sub = in.make(echo());
  braid::parallel_channel channel(in.rt);
  for (int i = 0; i < 3; ++i) {
    channel.add_channel(sub.channel(),
                        map_with([=](std::size_t index, auto, const auto& method, const auto&, auto&) {
                          if (index != 1) return same_call(method);
                          if (how == 0) return braid::sub_call::bad();
                          if (how == 1) throw std::runtime_error("cannot map");
                          braid::sub_call mapped = same_call(method);  // throws when the controller is set up
                          mapped.prepare([](braid::controller&) { throw 5; });
                          return mapped;
                        }));
  }
  test_call call;
  CHECK(in.call(channel, call) == 1003);
  CHECK(in.took == 0ms);
  CHECK(sub.times() == 0);
  CHECK(call.control.sub_count() == 3);
  CHECK(call.control.sub(0) == nullptr);
  CHECK(in.log.size() == (how == 0 ? 0U : 1U));
}

TEST_CASE("mapper: a method that is not of generated code needs a response, else it counts as bad",
          "[parallel][mapper]") {
  const bool with_response = GENERATE(false, true);
  const foreign_echo foreign;
  world in;
  leaf sub = in.make(echo());
  braid::parallel_channel channel(in.rt);
  channel.add_channel(sub.channel(), map_with([&](auto, auto, const auto&, const auto&, auto& response) {
                        return braid::sub_call(foreign.method(),
                                               static_cast<const google::protobuf::Message*>(nullptr),
                                               with_response ? &response : nullptr);
                      }));
  test_call call;
  CHECK(in.call(channel, call) == (with_response ? 0 : 1003));
  CHECK(sub.times() == (with_response ? 1U : 0U));
  CHECK(in.log.size() == (with_response ? 0U : 1U));
}

TEST_CASE("mapper: skip() leaves sub(i) null and is not counted", "[parallel][mapper]") {
  world in;
  leaf skipped = in.make(echo());
  braid::parallel_channel channel(in.rt, {.fail_limit = 2});
  channel.add_channel(skipped.channel(), map_with([](auto, auto, const auto&, const auto&, auto&) {
                        return braid::sub_call::skip();
                      }));
  channel.add_channel(in.make({.code = 5001}).channel());
  channel.add_channel(in.make({.code = 5001}).channel());
  test_call call;
  CHECK(in.call(channel, call) == 5001);  // fail_limit is 2 of the two that are left
  CHECK(skipped.times() == 0);
  CHECK(call.control.sub_count() == 3);
  CHECK(call.control.sub(0) == nullptr);
  CHECK(call.sub_code(1) == 5001);
}

TEST_CASE("mapper: without one the same method and request, and a new response", "[parallel][mapper]") {
  world in;
  leaf one = in.make(echo(2ms));
  leaf two = in.make(echo(1ms));
  braid::parallel_channel channel(in.rt);
  channel.add_channel(one.channel());
  channel.add_channel(two.channel());
  test_call call;
  CHECK(in.call(channel, call) == 0);
  CHECK(one.asked().at(0).message == "question");
  CHECK(two.asked().at(0).message == "question");
  CHECK(call.response.message() == "question");
}

TEST_CASE("mapper: metadata goes to every sub call, and changes are its own sub call's",
          "[parallel][mapper]") {
  world in;
  leaf one = in.make(echo());
  leaf two = in.make(echo());
  leaf deep = in.make(echo());
  auto inner = std::make_shared<braid::parallel_channel>(in.rt);
  inner->add_channel(deep.channel());
  braid::parallel_channel channel(in.rt);
  channel.add_channel(one.channel(), map_with([](auto, auto, const auto& method, const auto&, auto&) {
                        braid::sub_call mapped = same_call(method);
                        mapped.prepare([](braid::controller& own) {
                          auto& data = own.mutable_request_metadata();
                          data.set_user_field("tenant", "one");
                          data.request_id = "r-1";
                          data.request_code = 1;
                          data.attachment = braid::buffer("other");
                        });
                        return mapped;
                      }));
  channel.add_channel(two.channel());
  channel.add_channel(inner);
  test_call call;
  auto& data = call.control.mutable_request_metadata();
  data.set_user_field("tenant", "all");
  data.request_id = "r-0";
  data.log_id = 77;
  data.trace_id = 78;
  data.span_id = 79;
  data.parent_span_id = 80;
  data.request_code = 0;
  data.attachment = braid::buffer("bytes");
  CHECK(in.call(channel, call) == 0);
  const auto& changed = one.asked().at(0).data;
  CHECK(changed.user_field("tenant") == "one");
  CHECK(changed.request_id == "r-1");
  CHECK(changed.request_code == 1U);
  CHECK(changed.log_id == 77);
  CHECK(changed.attachment.to_string() == "other");
  for (leaf* each : {&two, &deep}) {
    const auto& same = each->asked().at(0).data;
    CHECK(same.user_field("tenant") == "all");
    CHECK(same.request_id == "r-0");
    CHECK(same.log_id == 77);
    CHECK(same.trace_id == 78);
    CHECK(same.span_id == 79);
    CHECK(same.parent_span_id == 80);
    CHECK(same.request_code == 0U);
    CHECK(same.attachment.to_string() == "bytes");
  }
  CHECK(call.control.request_metadata().user_field("tenant") == "all");
}

TEST_CASE("mapper: may give its sub call an earlier deadline, never a later one", "[parallel][mapper]") {
  world in;
  const bool by_timeout = GENERATE(false, true);
  leaf early = in.make(echo(1h));
  leaf late = in.make(echo(1h));
  braid::parallel_channel channel(in.rt, {.timeout = 50ms});
  const auto with_deadline = [&](std::chrono::milliseconds rest) {
    return map_with([&, rest](auto, auto, const auto& method, const auto&, auto&) {
      if (!by_timeout) return braid::sub_call(same_call(method).set_deadline(in.sim.now() + rest));
      return braid::sub_call(
          same_call(method).prepare([rest](braid::controller& own) { own.set_timeout(rest); }));
    });
  };
  channel.add_channel(early.channel(), with_deadline(10ms));
  channel.add_channel(late.channel(), with_deadline(90ms));
  channel.add_channel(in.make(echo(20ms)).channel());
  test_call call;
  const auto from = in.sim.now();
  CHECK(in.call(channel, call) == 0);
  CHECK(in.took == 50ms);
  CHECK(early.asked().at(0).deadline == from + 10ms);
  CHECK(late.asked().at(0).deadline == from + 50ms);
  CHECK(call.sub_code(0) == 1008);
  CHECK(call.control.sub(0)->latency() == 10ms);
  CHECK(call.sub_code(1) == 1008);
  CHECK(call.control.sub(1)->latency() == 50ms);
}

TEST_CASE("mapper: an earlier deadline that has passed sends nothing for that sub call",
          "[parallel][mapper]") {
  world in;
  leaf sub = in.make(echo());
  braid::parallel_channel channel(in.rt);
  channel.add_channel(sub.channel(), map_with([&](auto, auto, const auto& method, const auto&, auto&) {
                        braid::sub_call mapped = same_call(method);
                        mapped.set_deadline(in.sim.now());
                        return mapped;
                      }));
  channel.add_channel(in.make(says("other")).channel());
  test_call call;
  CHECK(in.call(channel, call) == 0);
  CHECK(sub.times() == 0);
  CHECK(call.sub_code(0) == 1008);
}

TEST_CASE("merger: merges in the order of the channels, successes only", "[parallel][merger]") {
  world in;
  braid::parallel_channel channel(in.rt);
  channel.add_channel(in.make(says("a", 30ms)).channel(), nullptr, joining());
  channel.add_channel(in.make({.code = 5001}).channel(), nullptr, joining());
  channel.add_channel(in.make(says("b", 10ms)).channel(), nullptr, joining());
  channel.add_channel(in.make(says("c", 20ms)).channel(), nullptr, joining());
  test_call call;
  CHECK(in.call(channel, call) == 0);
  CHECK(call.response.message() == "abc");
}

TEST_CASE("merger: starts when all is decided and no sub call lives any more", "[parallel][merger]") {
  world in;
  braid::parallel_channel channel(in.rt, {.success_limit = 2});
  std::vector<std::chrono::nanoseconds> when;
  const auto note = merge_with([&](auto&, const auto&) {
    when.push_back(in.sim.elapsed());
    return braid::merge_result::merged;
  });
  for (const auto after : {5ms, 9ms, 30ms})
    channel.add_channel(in.make(says("x", after)).channel(), nullptr, note);
  test_call call;
  CHECK(in.call(channel, call) == 0);
  CHECK(when == std::vector<std::chrono::nanoseconds>{9ms, 9ms});
  CHECK(call.sub_code(2) == 1006);
}

TEST_CASE("merger: without one MergeFrom, in the order of the channels", "[parallel][merger]") {
  world in;
  test_call call;
  CHECK(in.call(*in.parallel({}, {says("first", 9ms), says("last", 1ms)}), call) == 0);
  CHECK(call.response.message() == "last");
}

TEST_CASE("merger: a response of another type needs one", "[parallel][merger]") {
  world in;
  const auto& other = *golden::EchoService::descriptor()->FindMethodByName("Missing");
  braid::parallel_channel channel(in.rt);
  channel.add_channel(
      in.make(says("same type")).channel(),
      map_with([&](auto, auto, const auto&, const auto&, auto&) { return same_call(other); }));
  test_call call;
  CHECK(in.call(channel, call) == 0);
  braid::parallel_channel strange(in.rt);
  auto set_name = std::make_shared<braid::combo_channel>(
      in.rt, [](braid::combo_call& of, braid::yield_context) { of.succeed(); });
  strange.add_channel(set_name, map_with([](auto, auto, const auto& method, const auto&, auto&) {
                        return braid::sub_call(method, std::make_unique<golden::EchoRequest>(),
                                               std::make_unique<google::protobuf::FileDescriptorProto>());
                      }));
  test_call refused;
  CHECK(in.call(strange, refused) == 2002);
}

TEST_CASE("merger: fail turns the success into a failure, judged again", "[parallel][merger]") {
  world in;
  const auto run = [&](braid::parallel_channel_options options, std::vector<char> verdicts, test_call& call) {
    braid::parallel_channel channel(in.rt, options);
    for (const char each : verdicts) {
      auto merge = merge_with([each](golden::EchoResponse& all, const golden::EchoResponse& one) {
        if (each == 't') throw std::runtime_error("cannot merge");
        if (each == 'f') return braid::merge_result::fail;
        if (each == 'F') return braid::merge_result::fail_all;
        all.set_message(all.message() + one.message());
        return braid::merge_result::merged;
      });
      channel.add_channel(in.make(each == 'x' ? reply{.code = 5001} : says("m")).channel(), nullptr, merge);
    }
    return in.call(channel, call);
  };
  SECTION("enough are left: success, and partial") {
    test_call call;
    CHECK(run({}, {'f', 'm', 'f', 'm'}, call) == 0);
    CHECK(call.response.message() == "mm");
    CHECK(call.control.partial());
  }
  SECTION("fail_limit reached: 2002") {
    test_call call;
    CHECK(run({.fail_limit = 2}, {'f', 'm', 'f', 'm'}, call) == 2002);
    CHECK(call.response.message() == "untouched");
    CHECK(call.control.result().cause == cancel_cause::none);
    CHECK_FALSE(call.control.ErrorText().empty());
  }
  SECTION("together with those that had failed") {
    test_call call;
    CHECK(run({.fail_limit = 2}, {'x', 'm', 'f'}, call) == 2002);
    CHECK(call.response.message() == "untouched");
  }
  SECTION("no success is left: 2002") {
    test_call call;
    CHECK(run({}, {'f', 'f'}, call) == 2002);
  }
  SECTION("fail_all, and throwing: 2002") {
    test_call all;
    CHECK(run({}, {'m', 'F', 'm'}, all) == 2002);
    CHECK(all.response.message() == "untouched");
    test_call thrown;
    CHECK(run({}, {'m', 't', 'm'}, thrown) == 2002);
    CHECK(thrown.response.message() == "untouched");
    CHECK(in.log.size() == 1);
  }
}

TEST_CASE("merger: calls ended with 1006 are not revived by a failing merge", "[parallel][merger]") {
  world in;
  braid::parallel_channel channel(in.rt, {.success_limit = 1});
  channel.add_channel(in.make(says("x", 1ms)).channel(), nullptr,
                      merge_with([](auto&, const auto&) { return braid::merge_result::fail; }));
  channel.add_channel(in.make(says("y", 5ms)).channel(), nullptr, joining());
  test_call call;
  CHECK(in.call(channel, call) == 2002);
  CHECK(in.took == 1ms);
  CHECK(call.sub_code(1) == 1006);
  CHECK(call.response.message() == "untouched");
}

TEST_CASE("merger: nested ones merge from the inside out", "[parallel][merger]") {
  world in;
  std::shared_ptr<braid::channel_base> channel = in.make(says("x")).channel();
  for (int depth = 0; depth < 6; ++depth) {
    auto outer = std::make_shared<braid::parallel_channel>(in.rt);
    outer->add_channel(channel, nullptr, joining());
    outer->add_channel(in.make(says(std::to_string(depth))).channel(), nullptr, joining());
    channel = outer;
  }
  test_call call;
  CHECK(in.call(*channel, call) == 0);
  CHECK(call.response.message() == "x012345");
}

TEST_CASE("parallel: on a failure the user's response is as it was", "[parallel][merger]") {
  world in;
  test_call call;
  CHECK(in.call(*in.parallel({.fail_limit = 1}, {says("a"), {.after = 5ms, .code = 5001}}), call) == 5001);
  CHECK(call.response.message() == "untouched");
}
