#include "golden/golden_frames.hpp"

#include "golden/frame_model.hpp"
#include "golden/oracle.hpp"
#include "wire/frame.hpp"

#include <catch2/catch.hpp>
#include <google/protobuf/descriptor.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace {

using namespace std::string_literals;
using braid::wire::frame_reader;
using braid::wire::inbound_frame;
using braid::wire::rpc_meta;

constexpr std::string_view service = "golden.EchoService";
constexpr std::string_view no_service_text =
    "[127.0.0.1:9100][E1002]Fail to find method=golden.NoSuchService/Echo";
constexpr std::int64_t first_id = 0x100000002;
constexpr std::int64_t second_id = 0x300000002;
const std::string hello = "\x0a\x05hello";

/// One recorded frame, written down by hand.
struct expectation {
  std::string name;
  bool to_server;
  rpc_meta meta;
  std::string payload = hello;
  std::string attachment = {};
};

using change = std::function<void(rpc_meta&)>;

/// What bRPC writes in all of these metas, zeros included.
rpc_meta common() {
  rpc_meta m;
  m.compress_type = 0;
  m.correlation_id = first_id;
  m.content_type = 0;
  m.checksum_type = 0;
  m.checksum_value = "";
  return m;
}

rpc_meta request(const change& more = {}) {
  rpc_meta m = common();
  m.has_request = true;
  m.request.service_name = service;
  m.request.method_name = "Echo";
  if (more) more(m);
  return m;
}

rpc_meta response(const change& more = {}) {
  rpc_meta m = common();
  m.has_response = true;
  m.response.error_code = 0;
  if (more) more(m);
  return m;
}

change fails(std::int32_t code, std::string_view text) {
  return [=](rpc_meta& m) {
    m.response.error_code = code;
    m.response.error_text = text;
  };
}

change compressed(std::int32_t type) {
  return [=](rpc_meta& m) { m.compress_type = type; };
}

change content(std::int32_t type) {
  return [=](rpc_meta& m) { m.content_type = type; };
}

void second(rpc_meta& m) { m.correlation_id = second_id; }

void attached(rpc_meta& m) { m.attachment_size = 14; }

void checked(rpc_meta& m) {
  m.checksum_type = 1;
  m.checksum_value = "\x61\xf6\x3a\x7e";
}

void with_field(rpc_meta& m) { m.user_fields = {{"k1", "v1"}}; }

void bare_refusal(rpc_meta& m) {
  m = rpc_meta{};
  m.has_response = true;
  m.response.error_code = 1004;
  m.response.error_text = "Fail to authenticate";
  m.correlation_id = first_id;
}

/// The recording, frame by frame in order.
std::vector<expectation> expectations() {
  const std::string gzip = golden::from_hex("1f8b0800000000000003e362cd48cdc9c907001840e39907000000");
  const std::string zlib = golden::from_hex("789ce362cd48cdc9c9070006920224");
  const std::string snappy = golden::from_hex("07180a0568656c6c6f");
  const std::string first = "\x0a\x05"s + "first";
  const std::string again = "\x0a\x06"s + "second";
  const auto log_id = [](rpc_meta& m) {
    m.request.log_id = 42;
    m.request.request_id = "req-abc";
  };
  const auto missing = [](rpc_meta& m) { m.request.method_name = "Missing"; };
  const auto unregistered = [](rpc_meta& m) { m.request.service_name = "golden.NoSuchService"; };
  const auto token = [](rpc_meta& m) { m.authentication_data = "token-123"; };
  return {
      {"plain", true, request()},
      {"plain", false, response()},
      {"twice", true, request(), first},
      {"twice", false, response(), first},
      {"twice", true, request(second), again},
      {"twice", false, response(second), again},
      {"attachment", true, request(attached), hello, "ATTACHED-BYTES"},
      {"attachment", false, response(attached), hello, "ATTACHED-BYTES"},
      {"gzip", true, request(compressed(2)), gzip},
      {"gzip", false, response(compressed(2)), gzip},
      {"zlib", true, request(compressed(3)), zlib},
      {"zlib", false, response(compressed(3)), zlib},
      {"snappy", true, request(compressed(1)), snappy},
      {"snappy", false, response(compressed(1)), snappy},
      {"crc32c", true, request(checked)},
      {"crc32c", false, response(checked)},
      {"userfields", true, request(with_field)},
      {"userfields", false, response(with_field)},
      {"logid", true, request(log_id)},
      {"logid", false, response()},
      {"json", true, request(content(1)), R"({"message":"hello"})"},
      {"json", false, response()},
      {"prototext", true, request(content(3)), "message: \"hello\"\n"},
      {"prototext", false, response()},
      {"protojson", true, request(content(2)), R"({"message":"hello"})"},
      {"protojson", false, response()},
      {"fail", true, request(), hello + "\x18\xb9\x60"},
      {"fail", false, response(fails(12345, "[127.0.0.1:9100][E12345]asked to fail with 12345")), ""},
      {"nomethod", true, request(missing)},
      {"nomethod", false, response(fails(2001, "[127.0.0.1:9100]Method Missing() not implemented.")), ""},
      {"noservice", true, request(unregistered)},
      {"noservice", false, response(fails(1002, no_service_text)), ""},
      {"timeout", true, request(), hello + "\x10\xac\x02"},
      {"auth", true, request(token)},
      {"auth", false, response()},
      {"noauth", true, request()},
      {"noauth", false, response(bare_refusal), ""},
  };
}

/// A recorded frame taken out of its chunk.
struct recorded_frame {
  std::string name;
  bool to_server;
  std::string bytes;
};

/// Cuts the recording into frames by the header rule alone.
std::vector<recorded_frame> recording() {
  std::vector<recorded_frame> frames;
  for (const auto& chunk : golden::load(GOLDEN_FRAMES_FILE)) {
    std::string_view rest = chunk.bytes;
    while (!rest.empty()) {
      REQUIRE(rest.size() >= 12);
      const std::size_t size =
          12 + std::size_t{static_cast<unsigned char>(rest[6])} * 256 + static_cast<unsigned char>(rest[7]);
      REQUIRE(rest.size() >= size);
      frames.push_back({chunk.name, chunk.to_server, std::string{rest.substr(0, size)}});
      rest.remove_prefix(size);
    }
  }
  return frames;
}

std::string frame_of(const rpc_meta& meta, std::string_view payload, std::string_view attachment) {
  std::string bytes(meta_size(meta), '\0');
  encode_meta(meta, bytes.data());
  return golden::make_frame(bytes, std::string{payload} + std::string{attachment});
}

/// The frame that we send for the same call: no explicit zeros, an id, a deadline, features and a text of our
/// own.
std::string ours(expectation e) {
  rpc_meta& m = e.meta;
  m.correlation_id = 77;
  m.features = 1;
  if (m.has_request) m.request.timeout_ms = 500;
  for (auto* field : {&m.compress_type, &m.attachment_size, &m.content_type, &m.checksum_type}) {
    if (*field == 0) field->reset();
  }
  if (m.checksum_value == "") m.checksum_value.reset();
  if (m.response.error_code == 0) m.response.error_code.reset();
  if (m.response.error_text) m.response.error_text = "our own words";
  return frame_of(m, e.payload, e.attachment);
}

std::string named(const recorded_frame& frame) { return frame.name + (frame.to_server ? " c>s" : " s>c"); }

}  // namespace

TEST_CASE("golden frames: each recorded frame decodes to the expected fields") {
  const auto frames = recording();
  const auto expected = expectations();
  REQUIRE(frames.size() == expected.size());
  for (std::size_t i = 0; i < frames.size(); ++i) {
    const expectation& e = expected[i];
    CAPTURE(i, named(frames[i]));
    REQUIRE(frames[i].name == e.name);
    REQUIRE(frames[i].to_server == e.to_server);
    frame_reader reader;
    inbound_frame frame;
    const auto room = reader.prepare();
    std::memcpy(room.data(), frames[i].bytes.data(), frames[i].bytes.size());
    reader.commit(frames[i].bytes.size());
    REQUIRE(reader.next(frame) == frame_reader::status::frame);
    CHECK(frame.payload == e.payload);
    CHECK(frame.attachment == e.attachment);
    CHECK_FALSE(frame.bad_attachment_size);
    std::string bytes(meta_size(e.meta), '\0');
    encode_meta(e.meta, bytes.data());
    golden::oracle_meta oracle;
    REQUIRE(oracle.ParseFromString(bytes));
    CHECK(golden::same(frame.meta, oracle));
    CHECK(frame.meta.response.error_text == e.meta.response.error_text);
    CHECK(reader.next(frame) == frame_reader::status::need_more);
  }
}

TEST_CASE("golden frames: our encoding of the recorded values is byte for byte the recording") {
  const auto frames = recording();
  const auto expected = expectations();
  for (std::size_t i = 0; i < std::min(frames.size(), expected.size()); ++i) {
    CAPTURE(named(frames[i]));
    CHECK(frame_of(expected[i].meta, expected[i].payload, expected[i].attachment) == frames[i].bytes);
  }
}

TEST_CASE("golden frames: ours for the same calls differ only where they may") {
  const auto frames = recording();
  const auto expected = expectations();
  for (std::size_t i = 0; i < std::min(frames.size(), expected.size()); ++i) {
    CAPTURE(named(frames[i]));
    CHECK(golden::differences(frames[i].bytes, ours(expected[i])) == std::vector<std::string>{});
  }
}

TEST_CASE("golden frames: the comparison fails on any other difference") {
  const auto frames = recording();
  const auto expected = expectations();
  const std::vector<std::pair<std::string, change>> requests = {
      {"service", [](rpc_meta& m) { m.request.service_name = "EchoService"; }},
      {"method", [](rpc_meta& m) { m.request.method_name = "echo"; }},
      {"log_id", [](rpc_meta& m) { m.request.log_id = 1; }},
      {"trace_id", [](rpc_meta& m) { m.request.trace_id = 1; }},
      {"span_id", [](rpc_meta& m) { m.request.span_id = 1; }},
      {"parent_span_id", [](rpc_meta& m) { m.request.parent_span_id = 1; }},
      {"request_id", [](rpc_meta& m) { m.request.request_id = "x"; }},
      {"no request", [](rpc_meta& m) { m.has_request = false; }},
      {"a response too", [](rpc_meta& m) { m.has_response = true; }},
  };
  const std::vector<std::pair<std::string, change>> responses = {
      {"error_code", [](rpc_meta& m) { m.response.error_code = m.response.error_code.value_or(0) + 1; }},
      {"error_text only on one side",
       [](rpc_meta& m) {
         m.response.error_text =
             m.response.error_text ? std::nullopt : std::optional<std::string_view>{"text"};
       }},
      {"no response", [](rpc_meta& m) { m.has_response = false; }},
  };
  const std::vector<std::pair<std::string, change>> metas = {
      {"compress_type", [](rpc_meta& m) { m.compress_type = 9; }},
      {"no correlation_id", [](rpc_meta& m) { m.correlation_id.reset(); }},
      {"attachment_size", [](rpc_meta& m) { m.attachment_size = m.attachment_size.value_or(0) + 1; }},
      {"chunk_info", [](rpc_meta& m) { m.chunk_info = "x"; }},
      {"authentication_data", [](rpc_meta& m) { m.authentication_data = "x"; }},
      {"stream_settings", [](rpc_meta& m) { m.stream_settings = "x"; }},
      {"user_fields",
       [](rpc_meta& m) {
         m.user_fields.push_back({"k2", ""});
       }},
      {"content_type", [](rpc_meta& m) { m.content_type = 9; }},
      {"checksum_type", [](rpc_meta& m) { m.checksum_type = 9; }},
      {"checksum_value", [](rpc_meta& m) { m.checksum_value = "x"; }},
      {"checksum_with_attachment", [](rpc_meta& m) { m.checksum_with_attachment = true; }},
  };
  // Every field of the meta is either free to differ or changed above.
  const auto fields = [](const google::protobuf::Descriptor* type) { return type->field_count(); };
  REQUIRE(fields(golden::oracle_meta::descriptor()) == static_cast<int>(metas.size()) + 2 + 2);
  REQUIRE(fields(braid::wire::oracle::RpcRequestMeta::descriptor()) ==
          static_cast<int>(requests.size()) - 2 + 1);
  REQUIRE(fields(braid::wire::oracle::RpcResponseMeta::descriptor()) == 2);
  for (std::size_t i = 0; i < std::min(frames.size(), expected.size()); ++i) {
    auto changes = expected[i].meta.has_request ? requests : responses;
    changes.insert(changes.end(), metas.begin(), metas.end());
    for (const auto& [name, apply] : changes) {
      expectation changed = expected[i];
      apply(changed.meta);
      const std::string bytes = name == "no correlation_id"
                                    ? frame_of(changed.meta, changed.payload, changed.attachment)
                                    : ours(changed);
      CAPTURE(named(frames[i]), name);
      CHECK_FALSE(golden::differences(frames[i].bytes, bytes).empty());
    }
    expectation payload = expected[i];
    payload.payload += "x";
    CHECK_FALSE(golden::differences(frames[i].bytes, ours(payload)).empty());
    std::string bytes = ours(expected[i]);
    bytes.insert(12, "\xf0\x01\x01");  // field 30
    bytes[7] = static_cast<char>(bytes[7] + 3);
    bytes[11] = static_cast<char>(bytes[11] + 3);
    CHECK_FALSE(golden::differences(frames[i].bytes, bytes).empty());
  }
}
