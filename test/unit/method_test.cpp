#include <braid/channel.hpp>
#include <braid/method.hpp>
#include <braid/server.hpp>
#include <braid/spawn.hpp>
#include <braid/testing/simulation.hpp>

#include <boost/asio/detached.hpp>
#include <catch2/catch.hpp>
#include <google/protobuf/descriptor.pb.h>

#include <golden.pb.h>
#include <plain.pb.h>

#include <functional>
#include <string>

using namespace std::chrono_literals;
using golden::EchoRequest;
using golden::EchoResponse;

namespace {

using ask_method = braid::method<plain::Question, plain::Answer>;

/// What is wrong, as the exception says it; empty: nothing.
std::string refusal(const std::function<void()>& make) {
  try {
    make();
  } catch (const boost::system::system_error& e) {
    CHECK(e.code() == braid::error_code(EINVAL, boost::system::system_category()));
    return e.what();
  }
  return {};
}
bool says(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("method: a generated service's is the one that protobuf knows, and so is one without a class") {
  const braid::method<EchoRequest, EchoResponse> echo{"golden.EchoService", "Echo"};
  CHECK(&echo.descriptor() == golden::EchoService::descriptor()->FindMethodByName("Echo"));
  CHECK(&echo.descriptor() == &braid::describe_method(&golden::EchoService::Echo));
  const ask_method ask{"plain.Oracle", "Ask"};
  CHECK(ask.descriptor().full_name() == "plain.Oracle.Ask");
  CHECK(&ask.descriptor() ==
        google::protobuf::DescriptorPool::generated_pool()->FindMethodByName("plain.Oracle.Ask"));
}

TEST_CASE("method: a service that no linked .proto has is described, once for each name") {
  const ask_method one{"elsewhere.deep.Oracle", "Ask"};
  const google::protobuf::MethodDescriptor& made = one;
  CHECK(made.full_name() == "elsewhere.deep.Oracle.Ask");
  CHECK(made.service()->full_name() == "elsewhere.deep.Oracle");
  CHECK(made.input_type() == plain::Question::descriptor());
  CHECK(made.output_type() == plain::Answer::descriptor());
  CHECK(&made == &ask_method("elsewhere.deep.Oracle", "Ask").descriptor());

  const ask_method sibling{"elsewhere.deep.Oracle", "AskAgain"};
  CHECK(sibling.descriptor().full_name() == "elsewhere.deep.Oracle.AskAgain");
  const braid::method<EchoRequest, plain::Answer> of_two_files{"elsewhere.deep.Oracle", "Ask"};
  CHECK(of_two_files.descriptor().input_type() == EchoRequest::descriptor());
  CHECK(ask_method("Unpackaged", "Ask").descriptor().full_name() == "Unpackaged.Ask");
}

TEST_CASE("method: what is wrong with a name or a type is said") {
  using echo_method = braid::method<EchoRequest, EchoResponse>;
  const auto missing = refusal([] { echo_method("golden.EchoService", "Ehco"); });
  CHECK(says(missing, "golden.EchoService.Ehco"));
  CHECK(says(missing, "it has: Echo, Missing"));
  CHECK(says(refusal([] { braid::method<EchoResponse, EchoResponse>("golden.EchoService", "Echo"); }),
             "it takes golden.EchoRequest and returns golden.EchoResponse, not golden.EchoResponse"));
  CHECK(says(refusal([] { braid::method<EchoRequest, EchoRequest>("golden.EchoService", "Echo"); }),
             "returns golden.EchoResponse, not golden.EchoRequest and golden.EchoRequest"));
  CHECK(says(refusal([] { ask_method("plain.Oracle", "Recite"); }), "streaming"));
  CHECK(says(refusal([] { ask_method("plain.Question", "Ask"); }), "plain.Question is no service"));
  const char* const services[] = {"", ".", "a..B", "a.", ".B", "1a.B", "a.B C", "a/B", "a.B\n"};
  for (const char* service : services) {
    INFO(service);
    CHECK(says(refusal([&] { ask_method(service, "Ask"); }), "is no name of a service"));
  }
  const char* const names[] = {"", "A.B", "a b", "1", "\xff"};
  for (const char* name : names) {
    INFO(name);
    CHECK(says(refusal([&] { ask_method("elsewhere.Names", name); }), "is no name of a method"));
  }
}

TEST_CASE("method: a client and a server meet over one without a generated class, and over a made one") {
  const std::string service = GENERATE("plain.Oracle", "elsewhere.Oracle");
  braid::testing::simulation sim(1);
  braid::runtime serving(sim.node_options()), calling(sim.node_options());
  braid::server server(serving);
  const ask_method ask{service, "Ask"};
  server.handle(ask, [](braid::server_call& call, const plain::Question& question, plain::Answer& answer,
                        braid::yield_context) {
    answer.set_text(question.text() + " of " + call.method().full_name());
  });
  CHECK_THROWS_AS(server.handle(ask_method(service, "Ask"), [](braid::server_call&, const plain::Question&,
                                                               plain::Answer&, braid::yield_context) {}),
                  boost::system::system_error);
  server.start("10.0.0.1:80");
  braid::channel channel(calling);
  channel.init("10.0.0.1:80");
  plain::Question question;
  question.set_text("the answer");
  CHECK(ask.call(channel, question).text() == "the answer of " + service + ".Ask");

  braid::error_code ec;
  ask_method(service == "plain.Oracle" ? "elsewhere.Oracle" : "elsewhere.Other", "Ask")
      .call(channel, question, ec);
  CHECK(ec == braid::errc::no_service);
}

TEST_CASE("method: several of one service that was made are served together") {
  braid::testing::simulation sim(1);
  braid::runtime serving(sim.node_options()), calling(sim.node_options());
  braid::server server(serving);
  const ask_method one{"elsewhere.Both", "One"}, two{"elsewhere.Both", "Two"},
      three{"elsewhere.Both", "Three"};
  for (const auto* each : {&one, &two}) {
    server.handle(*each, [name = each->descriptor().name()](braid::server_call&, const plain::Question&,
                                                            plain::Answer& answer,
                                                            braid::yield_context) { answer.set_text(name); });
  }
  server.start("10.0.0.1:80");
  braid::channel channel(calling);
  channel.init("10.0.0.1:80");
  CHECK(one.call(channel, {}).text() == "One");
  CHECK(two.call(channel, {}).text() == "Two");
  braid::error_code ec;
  three.call(channel, {}, ec);
  CHECK(ec == braid::errc::no_method);
}

TEST_CASE("method: a named one takes handlers of every style") {
  braid::testing::simulation sim(1);
  braid::runtime serving(sim.node_options()), calling(sim.node_options());
  braid::server server(serving);
  const ask_method plain_style{"elsewhere.Styles", "Plain"}, stackful{"elsewhere.Styles", "Stackful"},
      awaitable{"elsewhere.Styles", "Awaitable"}, callback{"elsewhere.Styles", "Callback"};
  server.handle(plain_style, [](braid::server_call&, const plain::Question&, plain::Answer& answer) {
    answer.set_text("plain");
  });
  server.handle(stackful, [](braid::server_call&, const plain::Question&, plain::Answer& answer,
                             braid::yield_context yield) {
    braid::sleep_for(1ms, yield);
    answer.set_text("stackful");
  });
  server.handle(
      awaitable,
      [](braid::server_call&, const plain::Question&, plain::Answer& answer) -> boost::asio::awaitable<void> {
        answer.set_text("awaitable");
        co_return;
      });
  server.handle(callback, [](braid::server_call&, const plain::Question&, plain::Answer& answer,
                             braid::call_done done) {
    answer.set_text("callback");
    done();
  });
  server.start("10.0.0.1:80");
  braid::channel channel(calling);
  channel.init("10.0.0.1:80");
  CHECK(plain_style.call(channel, {}).text() == "plain");
  CHECK(stackful.call(channel, {}).text() == "stackful");
  CHECK(awaitable.call(channel, {}).text() == "awaitable");
  CHECK(callback.call(channel, {}).text() == "callback");
}
