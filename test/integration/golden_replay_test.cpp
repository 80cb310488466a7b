#include <braid/channel.hpp>
#include <braid/runtime.hpp>
#include <braid/server.hpp>

#include "golden/golden_frames.hpp"
#include "integration/raw_peer.hpp"
#include "unit/server_fixture.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <chrono>
#include <future>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace std::chrono_literals;
using namespace server_test;

struct exchange {
  std::string name;
  std::string request;
  std::string answer;  // empty: none was recorded
};

std::vector<exchange> recorded() {
  std::vector<exchange> all;
  for (auto& chunk : golden::load(GOLDEN_FRAMES_FILE)) {
    if (chunk.to_server) {
      all.push_back({chunk.name, chunk.bytes, {}});
    } else {
      all.back().answer = chunk.bytes;
    }
  }
  return all;
}

std::uint64_t correlation_id(const std::string& request) {
  braid::wire::rpc_meta meta;
  const auto size = static_cast<std::size_t>(static_cast<unsigned char>(request[10]) * 256 +
                                             static_cast<unsigned char>(request[11]));
  REQUIRE(braid::wire::decode_meta(std::string_view(request).substr(12, size), meta));
  return static_cast<std::uint64_t>(meta.correlation_id.value());
}

// The recorded answer with another correlation id and all else as it is.
std::string with_id(const std::string& answer, std::uint64_t id) {
  const std::size_t at = answer.find("\x20\x82\x80\x80\x80");
  REQUIRE(at != std::string::npos);
  std::string number;
  for (; id >= 0x80; id >>= 7) number += static_cast<char>(id | 0x80);
  number += static_cast<char>(id);
  std::string patched = answer;
  patched.replace(at + 1, 5, number);
  const auto grown = static_cast<int>(number.size()) - 5;
  for (const std::size_t low : {std::size_t{7}, std::size_t{11}})
    patched[low] = static_cast<char>(static_cast<unsigned char>(patched[low]) + grown);
  return patched;
}

/// The format of the recorded answer.
braid::payload_format recorded_format(const std::string& name) {
  if (name == "gzip") return {.compression = braid::compression::gzip};
  if (name == "zlib") return {.compression = braid::compression::zlib};
  if (name == "snappy") return {.compression = braid::compression::snappy};
  if (name == "crc32c") return {.checksum = braid::checksum::crc32c};
  return {};
}

/// The settings of the recorded call.
braid::payload_format recorded_request_format(const std::string& name) {
  if (name == "json") return {.content = braid::content_type::json};
  if (name == "protojson") return {.content = braid::content_type::proto_json};
  if (name == "prototext") return {.content = braid::content_type::proto_text};
  return recorded_format(name);
}

}  // namespace

TEST_CASE("golden: the recorded client bytes, replayed over tcp, give the recorded calls") {
  braid::runtime rt({.loops = 1});
  braid::server srv(rt);
  echo_service service;
  std::vector<std::string> called;
  service.run = [&](braid::server_call& call, const golden::EchoRequest& q, golden::EchoResponse& r,
                    google::protobuf::Closure* done) {
    called.push_back(q.message());
    // The recorded server answered in the request's compression and checksum, and always in protobuf's form.
    const braid::payload_format came = call.request_metadata().format;
    call.mutable_response_metadata().format = {.compression = came.compression, .checksum = came.checksum};
    echo_service::answer_at_once(call, q, r, done);
  };
  srv.add_service(service);
  srv.start("127.0.0.1:0");

  // What the replies of this version may differ in, beside what differences() allows.
  const std::map<std::string, std::pair<int, std::string>> other{
      {"noservice", {1001, "golden.NoSuchService"}}};
  int compared = 0;
  std::string last;
  std::optional<raw_peer> client;
  for (const exchange& each : recorded()) {
    CAPTURE(each.name);
    if (each.name != last || !client) client.emplace(raw_peer::connect(srv.port()));
    last = each.name;
    client->send(each.request);
    const std::string reply = client->next_frame();
    const auto parsed = answers_in(reply);
    REQUIRE(parsed.size() == 1);
    CHECK(static_cast<std::uint64_t>(parsed[0].id) == correlation_id(each.request));
    if (const auto found = other.find(each.name); found != other.end()) {
      CHECK(parsed[0].code == found->second.first);
      CHECK(parsed[0].text.find(found->second.second) != std::string::npos);
    } else if (each.name == "timeout" || each.name == "noauth") {
      CHECK(parsed[0].message() ==
            "hello");  // the client gave no deadline; this server asks for no credentials
    } else {
      CHECK(golden::differences(each.answer, reply) == std::vector<std::string>{});
      ++compared;
    }
  }
  CHECK(compared == 16);
  srv.stop();
  CHECK(std::count(called.begin(), called.end(), "first") == 1);
  CHECK(std::count(called.begin(), called.end(), "second") == 1);
  CHECK(std::count(called.begin(), called.end(), "hello") == 15);
}

TEST_CASE("golden: the recorded client bytes give the same calls all at once and one byte at a time") {
  braid::runtime rt({.loops = 1});
  braid::server srv(rt);
  echo_service service;
  srv.add_service(service);
  srv.start("127.0.0.1:0");
  std::string all;
  std::vector<exchange> exchanges = recorded();
  for (const exchange& each : exchanges) all += each.request;
  std::vector<int> codes[2];
  for (const bool piecewise : {false, true}) {
    raw_peer client = raw_peer::connect(srv.port());
    if (piecewise) {
      for (const char& byte : all) client.send(std::string_view(&byte, 1));
    } else {
      client.send(all);
    }
    for (std::size_t i = 0; i < exchanges.size(); ++i) {
      const auto parsed = answers_in(client.next_frame());
      REQUIRE(parsed.size() == 1);
      codes[piecewise].push_back(parsed[0].code);
    }
  }
  CHECK(codes[0] == codes[1]);
}

TEST_CASE("golden: the recorded server bytes, given by a scripted peer, give our client the recorded calls") {
  const std::map<std::string, int> expected{
      {"fail", 12345}, {"nomethod", 2001}, {"noservice", 1002}, {"noauth", 1004}};
  const std::map<std::string, std::string> texts{{"fail", "[127.0.0.1:9100][E12345]asked to fail with 12345"},
                                                 {"nomethod", "Method Missing() not implemented."},
                                                 {"noservice", "Fail to find method"},
                                                 {"noauth", "Fail to authenticate"}};
  for (const exchange& each : recorded()) {
    if (each.answer.empty()) continue;
    CAPTURE(each.name);
    raw_listener listener;
    auto peer = std::async(std::launch::async, [&] {
      raw_peer client = listener.accept();
      const std::string request = client.next_frame();
      client.send(with_id(each.answer, correlation_id(request)));
      client.next_frame();  // until the channel is gone
    });
    {
      braid::runtime rt_of_call({.loops = 1});
      braid::channel ch(rt_of_call);
      ch.init("127.0.0.1:" + std::to_string(listener.port()), {.timeout = 60s, .connect_timeout = 60s});
      golden::EchoRequest request;
      request.set_message("hello");
      golden::EchoResponse response;
      braid::controller control;
      golden::EchoService_Stub(&ch).Echo(&control, &request, &response, nullptr);
      const auto code = expected.find(each.name);
      if (code == expected.end()) {
        CHECK_FALSE(control.error());
        CHECK(response.message() ==
              (each.name == "twice"
                   ? each.answer.substr(each.answer.size() - 5) == "first" ? "first" : "second"
                   : "hello"));
      } else {
        CHECK(braid::to_wire(control.error()) == code->second);
        CHECK(control.result().origin == braid::outcome_origin::peer);
      }
      if (const auto text = texts.find(each.name); text != texts.end())
        CHECK(control.ErrorText().find(text->second) != std::string::npos);
      const braid::controller& result = control;
      if (each.name == "attachment") CHECK(result.response_attachment().to_string() == "ATTACHED-BYTES");
      CHECK(result.response_metadata().format == recorded_format(each.name));
      if (each.name == "userfields") CHECK(result.response_metadata().user_field("k1") == "v1");
    }
    peer.get();
  }
}

TEST_CASE("golden: our client's requests for the recorded calls are the recorded ones, field by field") {
  for (const exchange& each : recorded()) {
    if (each.name == "auth") continue;
    CAPTURE(each.name);
    raw_listener listener;
    std::string sent;
    auto peer = std::async(std::launch::async, [&] {
      raw_peer client = listener.accept();
      sent = client.next_frame();
    });
    braid::runtime rt({.loops = 1});
    braid::channel ch(rt);
    ch.init("127.0.0.1:" + std::to_string(listener.port()), {.timeout = 60s, .connect_timeout = 60s});
    golden::EchoRequest request;
    request.set_message("hello");
    if (each.name == "twice")
      request.set_message(each.request.find("first") != std::string::npos ? "first" : "second");
    if (each.name == "fail") request.set_fail_code(12345);
    if (each.name == "timeout") request.set_sleep_ms(300);
    braid::controller control;
    auto& data = control.mutable_request_metadata();
    data.format = recorded_request_format(each.name);
    if (each.name == "attachment") data.attachment = braid::buffer("ATTACHED-BYTES");
    if (each.name == "userfields") data.set_user_field("k1", "v1");
    if (each.name == "logid") data.log_id = 42, data.request_id = "req-abc";
    golden::EchoResponse response;
    if (each.name == "noservice") {
      golden::NoSuchService_Stub(&ch).Echo(&control, &request, &response, nullptr);
    } else if (each.name == "nomethod") {
      golden::EchoService_Stub(&ch).Missing(&control, &request, &response, nullptr);
    } else {
      golden::EchoService_Stub(&ch).Echo(&control, &request, &response, nullptr);
    }
    peer.get();
    CHECK(golden::differences(each.request, sent) == std::vector<std::string>{});
  }
}
