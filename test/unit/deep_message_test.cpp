// Messages that nest deeply, in the formats that protobuf writes and reads by recursion.

#include "unit/call_fixture.hpp"
#include "wire/message_text.hpp"
#include "wire/nesting.hpp"

#include <catch2/catch.hpp>
#include <google/protobuf/any.pb.h>
#include <google/protobuf/struct.pb.h>

#include <cstddef>
#include <string>
#include <vector>

namespace {

using namespace call_fixture;
using braid::content_type;
using braid::errc;
using braid::server_call;
using braid::yield_context;
using braid::wire::parse_message;
using braid::wire::print_message;
using google::protobuf::Any;
using google::protobuf::Message;
using google::protobuf::Struct;
using google::protobuf::Value;

const braid::method<Any, Any> wrap{"deep.Service", "Wrap"};
const braid::method<Struct, Struct> build{"deep.Service", "Build"};

/// An Any in so many others.
Any chain(int anys) {
  Any innermost;
  for (int i = 0; i < anys; ++i) {
    Any around;
    around.set_type_url("type.googleapis.com/google.protobuf.Any");
    around.set_value(innermost.SerializeAsString());
    innermost = around;
  }
  return innermost;
}

Struct deep_struct(int lists) {
  Struct whole;
  Value* value = &(*whole.mutable_fields())["a"];
  for (int i = 0; i < lists; ++i) value = value->mutable_list_value()->add_values();
  value->set_string_value("deep");
  return whole;
}

/// A server that sends each request back in a format, with a plain handler or a stackful one, and a client.
struct world {
  world(bool stackful, bool intercepted)
      : process(sim.node_options()),
        server(process, {.interceptors = around<braid::server_interceptor>(intercepted)}),
        client(sim.node_options()),
        channel(client) {
    handle(wrap, stackful);
    handle(build, stackful);
    server.start(address);
    channel.init(address, {.interceptors = around<braid::client_interceptor>(intercepted)});
  }

  /// Makes the call in a coroutine.
  template <typename Sent>
  braid::outcome call(const braid::method<Sent, Sent>& method, const Sent& request, Sent& response) {
    braid::controller control;
    control.mutable_request_metadata().format.content = request_as;
    bool ended = false;
    braid::spawn(client, [&](yield_context) {
      error_code ec;
      channel.call(method, control, request, response, ec);
      ended = true;
    });
    REQUIRE(sim.run_until([&] { return ended; }));
    text = control.ErrorText();
    return control.result();
  }

  simulation sim{1};
  content_type request_as = content_type::protobuf;
  content_type answer_as = content_type::protobuf;
  std::string text;  ///< What the last call failed with.
  braid::runtime process;
  braid::server server;
  braid::runtime client;
  braid::channel channel;

 private:
  template <typename Interceptor>
  static std::vector<Interceptor> around(bool intercepted) {
    if (!intercepted) return {};
    return {[](auto&, auto& next, yield_context yield) { next(yield); }};
  }

  template <typename Sent>
  void handle(const braid::method<Sent, Sent>& method, bool stackful) {
    if (stackful) {
      server.handle(method, [this](server_call& call, const Sent& request, Sent& response, yield_context) {
        response = request;
        call.mutable_response_metadata().format.content = answer_as;
      });
    } else {
      server.handle(method, [this](server_call& call, const Sent& request, Sent& response) {
        response = request;
        call.mutable_response_metadata().format.content = answer_as;
      });
    }
  }
};

}  // namespace

TEST_CASE("deep messages: 90 Anys in one another travel as JSON, from and to coroutines") {
  const bool stackful = GENERATE(true, false);
  const bool intercepted = GENERATE(true, false);
  CAPTURE(stackful, intercepted);
  world w(stackful, intercepted);
  const Any sent = chain(90);
  for (const bool in_request : {true, false}) {
    for (const auto as : {content_type::json, content_type::proto_json}) {
      w.request_as = in_request ? as : content_type::protobuf;
      w.answer_as = in_request ? content_type::protobuf : as;
      Any got;
      const auto result = w.call(wrap, sent, got);
      CAPTURE(w.text);
      CHECK_FALSE(result.code);
      CHECK(got.SerializeAsString() == sent.SerializeAsString());
    }
  }
}

TEST_CASE("deep messages: a Struct as deep as protobuf reads one travels as text, from and to coroutines") {
  const bool stackful = GENERATE(true, false);
  const bool intercepted = GENERATE(true, false);
  CAPTURE(stackful, intercepted);
  world w(stackful, intercepted);
  const Struct sent = deep_struct(45);
  for (const bool in_request : {true, false}) {
    w.request_as = in_request ? content_type::proto_text : content_type::protobuf;
    w.answer_as = in_request ? content_type::protobuf : content_type::proto_text;
    Struct got;
    const auto result = w.call(build, sent, got);
    CAPTURE(w.text);
    CHECK_FALSE(result.code);
    CHECK(got.SerializeAsString() == sent.SerializeAsString());
  }
}

TEST_CASE("deep messages: a coroutine writes deeper text than any server reads") {
  world w(false, false);
  w.request_as = content_type::proto_text;
  Struct got;
  CHECK(w.call(build, deep_struct(500), got).code == errc::bad_request);
  CHECK(has(w.text, "it nests more than 100 messages"));
}

TEST_CASE("deep messages: what nests too deeply for JSON is 1003 as a request and 2002 as an answer") {
  world w(GENERATE(true, false), false);
  const Any sent = chain(2000);
  Any got;
  w.answer_as = content_type::json;
  CHECK(w.call(wrap, sent, got).code == errc::bad_response);
  CHECK(has(w.text, "the response cannot be serialised: it nests more than 100 messages"));
  w.request_as = content_type::json;
  CHECK(w.call(wrap, sent, got).code == errc::bad_request);
  CHECK(has(w.text, "the request cannot be serialised: it nests more than 100 messages"));
}

TEST_CASE("deep messages: JSON of a hundred messages is written, with those in Anys and maps, and no more") {
  std::string json, why;
  CHECK(print_message(chain(99), content_type::json, json, why));
  CHECK_FALSE(print_message(chain(100), content_type::json, json, why));
  Any holder;
  holder.PackFrom(chain(50));
  for (int i = 0; i < 50; ++i) {
    Any around;
    around.PackFrom(holder);
    holder = around;
  }
  CHECK_FALSE(print_message(holder, content_type::json, json, why));
  holder.PackFrom(deep_struct(20));
  CHECK(print_message(holder, content_type::json, json, why));
  const std::string bytes = holder.SerializeAsString();
  // The Any, the Struct, its value, and two messages for each list.
  CHECK(braid::wire::bytes_nest_within(bytes, *Any::descriptor(), 3 + 40));
  CHECK_FALSE(braid::wire::bytes_nest_within(bytes, *Any::descriptor(), 2 + 40));
}

TEST_CASE("deep messages: bytes that are no message do not keep their nesting from being told") {
  const auto& type = *Struct::descriptor();
  const std::string bytes = deep_struct(3).SerializeAsString();
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    CAPTURE(size);
    CHECK(braid::wire::bytes_nest_within(bytes.substr(0, size), type, 10));
  }
}

TEST_CASE("deep messages: text with Anys in one another is bounded") {
  const std::string open = "[type.googleapis.com/google.protobuf.Any]{";
  std::string deep, why;
  for (int i = 0; i < 200'000; ++i) deep += open;
  Any read;
  CHECK_FALSE(parse_message(deep, content_type::proto_text, read, why));
  CHECK(has(why, "more than 100"));
  std::string fine;
  for (int i = 0; i < 90; ++i) fine += open;
  CHECK(parse_message(fine + std::string(90, '}'), content_type::proto_text, read, why));
  std::string wide = "# {{{ \" \n fields { key: '{\\'{' value { list_value {";
  for (int i = 0; i < 200; ++i) wide += "values { string_value: \"[{<\" } ";
  Struct flat;
  why.clear();
  CHECK(parse_message(wide + "}}}", content_type::proto_text, flat, why));
  CHECK(why == "");
}
