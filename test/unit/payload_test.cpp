#include "wire/payload.hpp"

#include <braid/runtime.hpp>
#include <braid/testing/simulation.hpp>

#include "golden.pb.h"
#include "golden/golden_frames.hpp"
#include "unit/live_memory.hpp"
#include "wire/compressors.hpp"
#include "wire/meta.hpp"

#include <catch2/catch.hpp>
#include <google/protobuf/descriptor.pb.h>
#include <google/protobuf/struct.pb.h>
#include <google/protobuf/wrappers.pb.h>

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace {

using namespace std::string_literals;
using namespace braid::wire;
using braid::checksum;
using braid::compression;
using braid::compression_output;
using braid::compressor;
using braid::content_type;
using braid::payload_format;
using braid::core::compressor_set;
using golden::EchoRequest;

constexpr std::size_t plenty = std::size_t{64} * 1024 * 1024;
const compressor_set none_added{{}};

std::string random_text(std::mt19937& random, std::size_t size) {
  std::string text(size, '\0');
  for (char& c : text) c = static_cast<char>('a' + random() % 4);
  return text;
}

EchoRequest echo(std::string text) {
  EchoRequest made;
  made.set_message(std::move(text));
  made.set_sleep_ms(-7);
  return made;
}

/// A received frame that keeps its bytes.
struct received {
  std::string bytes;
  inbound_frame frame;
  crc32c_bytes sum{};

  received(const payload& made, const payload_format& format, const std::string& attachment = {}) {
    bytes = made.bytes.to_string() + attachment;
    frame.payload = std::string_view(bytes).substr(0, made.bytes.size());
    frame.attachment = std::string_view(bytes).substr(made.bytes.size());
    note_format(format, made, braid::buffer(attachment), frame.meta, sum);
  }
  /// A payload that is compressed or is text, without more.
  received(std::string payload, std::int32_t compress, std::int32_t content) : bytes(std::move(payload)) {
    frame.payload = bytes;
    frame.meta.compress_type = compress;
    frame.meta.content_type = content;
  }
  std::string read(google::protobuf::Message& into, std::size_t limit = plenty,
                   const compressor_set& added = none_added) const {
    return decode_payload(frame, added, limit, "request", into).wrong;
  }
};

payload encoded(const google::protobuf::Message& message, const payload_format& format,
                const compressor_set& added = none_added) {
  payload made;
  std::string why;
  const bool good = encode_payload(message, format, added, "request", made, why);
  CAPTURE(why);
  REQUIRE(good);
  return made;
}

std::string compressed_by(const compressor& by, std::string_view bytes) {
  compression_output out{plenty};
  std::string why;
  REQUIRE(by.compress(bytes, out, why));
  return out.take().to_string();
}

bool has(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

const std::array<const compressor*, 3> built_in{&snappy_compressor(), &gzip_compressor(), &zlib_compressor()};

/// One that a program adds: every byte xored, behind a mark.
class mirror : public compressor {
 public:
  explicit mirror(std::string name = "mirror", int number = 77) : name_{std::move(name)}, number_{number} {}
  std::string_view name() const noexcept override { return name_; }
  compression number() const noexcept override { return static_cast<compression>(number_); }
  bool compress(std::string_view bytes, compression_output& out, std::string&) const override {
    return out.write("M") && out.write(turned(bytes));
  }
  bool decompress(std::string_view bytes, compression_output& out, std::string& why) const override {
    if (bytes.substr(0, 1) == "T") throw std::runtime_error{"thrown"};
    if (bytes.substr(0, 1) == "E")
      while (out.write("endless")) {
      }
    if (bytes.substr(0, 1) == "M") return out.write(turned(bytes.substr(1)));
    why = "no mark";
    return false;
  }

 private:
  static std::string turned(std::string_view bytes) {
    std::string result{bytes};
    for (char& c : result) c = static_cast<char>(c ^ 0x55);
    return result;
  }
  std::string name_;
  int number_;
};

}  // namespace

TEST_CASE("crc32c: known values, masked as in the recording") {
  CHECK(extend_crc32c(0, "") == 0);
  CHECK(extend_crc32c(0, "123456789") == 0xe3069283);
  CHECK(extend_crc32c(0, std::string(32, '\0')) == 0x8a9136aa);
  CHECK(extend_crc32c(0, std::string(32, '\xff')) == 0x62a8ab43);
  const crc32c_bytes masked = masked_crc32c(extend_crc32c(0, "\x0a\x05hello"));
  CHECK(std::string(masked.data(), masked.size()) == "\x61\xf6\x3a\x7e");
}

TEST_CASE("crc32c: by instruction, by table, at once and in pieces it is the same") {
  std::mt19937 random{1};
  std::string bytes(3000, '\0');
  for (char& c : bytes) c = static_cast<char>(random());
  int differ = 0;
  for (std::uint32_t from = 0; from < 20; ++from) {
    for (std::size_t size = 0; size < 200; ++size) {
      const std::string_view some = std::string_view(bytes).substr(from, size);
      const std::uint32_t crc = extend_crc32c(from, some);
      const std::uint32_t first = extend_crc32c_by_table(from, some.substr(0, size / 3));
      differ += crc != extend_crc32c_by_table(from, some);
      differ += crc != extend_crc32c(first, some.substr(size / 3));
    }
  }
  CHECK(differ == 0);
  braid::buffer chain{std::string_view(bytes).substr(0, 1000)};
  chain.append(braid::buffer(std::string_view(bytes).substr(1000)));
  CHECK(extend_crc32c(0, chain) == extend_crc32c_by_table(0, bytes));
}

TEST_CASE("payload: every format gives the message back") {
  std::mt19937 random{2};
  for (const std::size_t size : {0, 1, 100, 5000, 300'000}) {
    const EchoRequest sent = echo(random_text(random, size));
    for (int number = 0; number < 4; ++number) {
      for (int content = 0; content < 4; ++content) {
        for (int check = 0; check < 3; ++check) {
          const payload_format format{.compression = static_cast<compression>(number),
                                      .content = static_cast<content_type>(content),
                                      .checksum = check == 0 ? checksum::none : checksum::crc32c,
                                      .checksum_attachment = check == 2};
          CAPTURE(size, number, content, check);
          const payload made = encoded(sent, format);
          const received got{made, format, "attached"};
          EchoRequest read;
          REQUIRE(got.read(read) == "");
          REQUIRE(read.SerializeAsString() == sent.SerializeAsString());
          REQUIRE(format_of(got.frame.meta) == format);
          if (number != 0 && size >= 5000) REQUIRE(made.bytes.size() < sent.ByteSizeLong() * 2 / 3);
        }
      }
    }
  }
}

TEST_CASE("payload: messages of other types, from a pool that is not the program's, and without fields") {
  google::protobuf::FileDescriptorProto file;
  golden::EchoRequest::descriptor()->file()->CopyTo(&file);
  for (int content = 0; content < 4; ++content) {
    const payload_format format{.content = static_cast<content_type>(content)};
    google::protobuf::FileDescriptorProto again;
    CHECK(received(encoded(file, format), format).read(again) == "");
    CHECK(again.SerializeAsString() == file.SerializeAsString());
    google::protobuf::Int64Value empty;
    CHECK(received(encoded(empty, format), format).read(empty) == "");
  }
}

TEST_CASE("payload: json has the names of the .proto file, proto-json its own, and both are read as either") {
  EchoRequest sent;
  sent.set_message("hello");
  sent.set_sleep_ms(1);
  CHECK(encoded(sent, {.content = content_type::json}).bytes.to_string() ==
        R"({"message":"hello","sleep_ms":1})");
  CHECK(encoded(sent, {.content = content_type::proto_json}).bytes.to_string() ==
        R"({"message":"hello","sleepMs":1})");
  CHECK(encoded(sent, {.content = content_type::proto_text}).bytes.to_string() ==
        "message: \"hello\"\nsleep_ms: 1\n");
  for (const int content : {1, 2}) {
    for (const char* text : {R"({"message":"hello","sleep_ms":1})", R"({"message":"hello","sleepMs":"1"})",
                             R"( { "other" : [ {"x":null} ], "sleepMs": 1.0, "message" : "h\u0065llo" } )"}) {
      EchoRequest read;
      CAPTURE(content, text);
      CHECK(received(text, 0, content).read(read) == "");
      CHECK(read.SerializeAsString() == sent.SerializeAsString());
    }
  }
}

TEST_CASE("payload: a text that is none says what is wrong with it") {
  struct row {
    std::string text;
    int content;
    const char* why;
  };
  const std::vector<row> rows{
      {"", 1, "no valid JSON for a golden.EchoRequest"},
      {"{", 1, "no valid JSON"},
      {R"({"message":5})", 2, "no valid proto-JSON"},
      {R"({"message":"x","sleep_ms":"much"})", 1, "sleep_ms"},
      {R"({"message":"x"} {)", 1, "no valid JSON"},
      {R"(["message"])", 2, "no valid proto-JSON"},
      {"{\"message\":\"\xff\xfe\"}", 1, "no valid JSON"},
      {"{}", 1, "message"},
      {"", 3, "lacks required fields: message"},
      {"message: ", 3, "no valid proto-text for a golden.EchoRequest: line 1, column"},
      {"message: 'x'\nother: 1", 3, "line 2, column"},
      {"message: \"x", 3, "no valid proto-text"},
      {std::string("message: 'x'\0", 13), 3, "no valid proto-text"},
  };
  for (const row& each : rows) {
    EchoRequest read;
    CAPTURE(each.text, each.content);
    CHECK(has(received(each.text, 0, each.content).read(read), each.why));
  }
}

TEST_CASE("payload: nesting is bounded in every format") {
  const std::size_t deep = 200'000;
  std::string json = R"({"a":)", text, end;
  for (std::size_t i = 0; i < deep; ++i) json += "[", text += "list_value{values{";
  google::protobuf::Struct structure;
  google::protobuf::Value value;
  CHECK(received(json, 0, 1).read(structure) != "");
  CHECK(received(json, 0, 2).read(structure) != "");
  CHECK(received(text, 0, 3).read(value) != "");
  const auto wrapped = [](char tag, const std::string& inner) {
    std::string outer{tag};
    for (std::size_t n = inner.size();; n >>= 7) {
      outer += static_cast<char>(n >= 0x80 ? n | 0x80 : n);
      if (n < 0x80) return outer + inner;
    }
  };
  std::string binary;
  for (int i = 0; i < 2000; ++i) binary = wrapped('\x0a', wrapped('\x32', binary));
  google::protobuf::ListValue list;
  CHECK(received(binary, 0, 0).read(list) != "");
}

TEST_CASE(
    "payload: the fields that are missing are named in a small message, and cost nothing in a large one") {
  const std::string one_part = "\x12\x00"s;  // whose two required fields are missing
  google::protobuf::UninterpretedOption read;
  CHECK(received(one_part, 0, 0).read(read) ==
        "the request lacks required fields: name[0].name_part, name[0].is_extension");
  std::string many;
  for (int i = 0; i < 100'000; ++i) many += one_part;
  google::protobuf::UninterpretedOption large;
  const received frame(many, 0, 0);
  test_memory::restart_peak();
  const std::size_t before = test_memory::live();
  CHECK(frame.read(large) == "the request lacks required fields");
  CHECK(test_memory::peak() - before < 20'000'000);  // the message; the names would be more
}

TEST_CASE(
    "payload: text that was compressed is parsed as one piece, so that a long value costs no more than its "
    "size") {
  // Before its end protobuf's JSON parser would begin with a number anew for each piece.
  for (const content_type as : {content_type::json, content_type::proto_json, content_type::proto_text}) {
    const std::string value(1'000'000, '7');
    const std::string text =
        as == content_type::proto_text ? "message: '" + value + "'" : "{\"message\": \"" + value + "\"}";
    EchoRequest read;
    REQUIRE(received(compressed_by(zlib_compressor(), text), 3, static_cast<std::int32_t>(as)).read(read) ==
            "");
    CHECK(read.message() == value);
  }
  EchoRequest read;
  const std::string number = "{\"message\": \"x\", \"sleep_ms\": " + std::string(8'000'000, '7') + "}";
  CHECK(has(received(compressed_by(zlib_compressor(), number), 3, 1).read(read), "no valid JSON"));
}

TEST_CASE("payload: what the protocol does not know is named") {
  EchoRequest read;
  const std::string hello = echo("hello").SerializeAsString();
  CHECK(has(received(hello, 4, 0).read(read), "compress_type 4 (lz4) is not supported"));
  CHECK(has(received(hello, 5, 0).read(read), "compress_type 5 is not supported"));
  CHECK(has(received(hello, -1, 0).read(read), "compress_type -1 is not supported"));
  CHECK(has(received(hello, 0, 4).read(read), "the request's content_type 4 is not supported"));
  CHECK(has(received(hello, 0, -1).read(read), "content_type -1 is not supported"));
  received checked{hello, 0, 0};
  checked.frame.meta.checksum_type = 2;
  CHECK(has(checked.read(read), "the request's checksum_type 2 is not supported"));
  payload made;
  std::string why;
  CHECK_FALSE(encode_payload(echo("x"), {.compression = compression::lz4}, none_added, "request", made, why));
  CHECK(why == "the request cannot be compressed: compress_type 4 (lz4) is not supported");
  CHECK_FALSE(
      encode_payload(EchoRequest(), {.content = content_type::json}, none_added, "request", made, why));
  CHECK(why == "the request lacks required fields: message");
}

TEST_CASE("payload: a checksum covers the payload as it is sent, and the attachment where it says so") {
  for (const bool compressed : {false, true}) {
    for (const bool with_attachment : {false, true}) {
      const payload_format format{.compression = compressed ? compression::gzip : compression::none,
                                  .checksum = checksum::crc32c,
                                  .checksum_attachment = with_attachment};
      const payload made = encoded(echo("hello"), format);
      const std::string bytes = made.bytes.to_string();
      const received good{made, format, "attached"};
      EchoRequest read;
      CHECK(good.read(read) == "");
      const crc32c_bytes expected =
          masked_crc32c(extend_crc32c_by_table(0, with_attachment ? bytes + "attached" : bytes));
      CHECK(good.frame.meta.checksum_value == std::string_view(expected.data(), expected.size()));
      CHECK(good.frame.meta.checksum_with_attachment.value_or(false) == with_attachment);
      for (std::size_t i = 0; i < bytes.size() + 8; ++i) {
        received damaged{made, format, "attached"};
        damaged.bytes[i] = static_cast<char>(damaged.bytes[i] ^ 1);
        const bool covered = i < bytes.size() || with_attachment;
        CHECK(damaged.read(read) == (covered ? "the request's checksum is wrong" : ""));
      }
      for (const std::string_view wrong : {"", "\x61", "\x61\xf6\x3a\x7f", "\x61\xf6\x3a\x7e\x7e"}) {
        received other{made, format, "attached"};
        other.frame.meta.checksum_value = wrong;
        CHECK(other.read(read) == "the request's checksum is wrong");
      }
    }
  }
  received unchecked{echo("hello").SerializeAsString(), 0, 0};
  unchecked.frame.meta.checksum_value = "junk";  // without a type it means nothing
  EchoRequest read;
  CHECK(unchecked.read(read) == "");
}

TEST_CASE("compression: a bomb is refused as soon as the limit is reached") {
  const std::string zeros(8 * 1024 * 1024, '\0');
  for (const compressor* by : built_in) {
    const std::string bomb = compressed_by(*by, zeros);
    CAPTURE(by->name(), bomb.size());
    CHECK(bomb.size() < zeros.size() / 20);
    for (const std::size_t limit : {std::size_t{0}, std::size_t{1}, std::size_t{100'000}, zeros.size() - 1}) {
      compression_output out{limit};
      std::string why;
      CHECK_FALSE(by->decompress(bomb, out, why));
      CHECK(out.over_limit());
      CHECK(out.size() <= limit + 1);
    }
    compression_output out{zeros.size()};
    std::string why;
    CHECK(by->decompress(bomb, out, why));
    CHECK_FALSE(out.over_limit());
    CHECK(out.take().to_string() == zeros);
    EchoRequest read;
    const received got{bomb, static_cast<int>(by->number()), 0};
    test_memory::restart_peak();
    const std::size_t before = test_memory::live();
    CHECK(got.read(read, 1000) ==
          "the request cannot be decompressed: decompressed it is over max_body_size 1000");
    CHECK(test_memory::peak() < before + 1000 + 2 * compression_output::max_block);
  }
}

TEST_CASE("compression: a length that snappy data claim is not trusted") {
  const auto claiming = [](std::uint32_t size) {
    std::string data;
    for (; size >= 0x80; size >>= 7) data += static_cast<char>(size | 0x80);
    data += static_cast<char>(size);
    return data + "\x08" + "abc";
  };
  EchoRequest read;
  CHECK(has(received(claiming(0xffffffff), 1, 0).read(read), "over max_body_size"));
  compression_output out{plenty};
  std::string why;
  CHECK_FALSE(snappy_compressor().decompress(claiming(plenty), out, why));
  CHECK(out.size() < 10);
  CHECK(has(received(claiming(1), 1, 0).read(read), "no valid snappy: the data are damaged"));
  CHECK(has(received("", 1, 0).read(read), "no valid snappy"));
}

TEST_CASE("payload: a length that a field claims is not trusted, compressed or not") {
  // A message of 40 MiB, of which two bytes are there.
  const std::string claim =
      "\x0a\x80\x80\x80\x14"
      "ab";
  for (const compressor* by : built_in) {
    EchoRequest read;
    test_memory::restart_peak();
    const std::size_t before = test_memory::live();
    const received got{compressed_by(*by, claim), static_cast<int>(by->number()), 0};
    CHECK(got.read(read) == "the request is no valid golden.EchoRequest");
    CHECK(test_memory::peak() < before + 300'000);
  }
}

TEST_CASE("compression: damaged, truncated and prolonged data are refused, or are what they were") {
  std::mt19937 random{3};
  const std::string text = echo(random_text(random, 700)).SerializeAsString();
  for (const compressor* by : built_in) {
    const std::string good = compressed_by(*by, text);
    const int number = static_cast<int>(by->number());
    CAPTURE(by->name());
    EchoRequest read;
    int accepted = 0;
    for (std::size_t size = 0; size < good.size(); ++size)
      accepted += received(good.substr(0, size), number, 0).read(read).empty();
    CHECK(accepted == 0);
    CHECK(received(good + "x", number, 0).read(read) != "");
    CHECK(received(good + good, number, 0).read(read) != "");
    for (int i = 0; i < 2000; ++i) {
      std::string damaged = good;
      damaged[random() % damaged.size()] = static_cast<char>(random());
      compression_output out{10'000};
      std::string why;
      const bool intact = by->decompress(damaged, out, why);
      if (number != 1 && intact && out.take().to_string() != text)
        ++accepted;  // both of zlib's have checksums
    }
    CHECK(accepted == 0);
  }
}

TEST_CASE("compression: our gzip and zlib are read by zlib itself, and the recording's by us") {
  const std::string text = "\x0a\x05hello";
  const std::string gzip = golden::from_hex("1f8b0800000000000003e362cd48cdc9c907001840e39907000000");
  const std::string zlib = golden::from_hex("789ce362cd48cdc9c9070006920224");
  const std::string snappy = golden::from_hex("07180a0568656c6c6f");
  EchoRequest read;
  for (const auto& [bytes, number] : {std::pair{gzip, 2}, std::pair{zlib, 3}, std::pair{snappy, 1}}) {
    read.Clear();
    CHECK(received(bytes, number, 0).read(read) == "");
    CHECK(read.message() == "hello");
  }
  const std::string ours = compressed_by(zlib_compressor(), text);
  std::string out(100, '\0');
  uLongf size = out.size();
  REQUIRE(uncompress(reinterpret_cast<Bytef*>(out.data()), &size, reinterpret_cast<const Bytef*>(ours.data()),
                     ours.size()) == Z_OK);
  CHECK(out.substr(0, size) == text);
}

TEST_CASE("compression: a program's own compressor serves calls like a built-in one") {
  const compressor_set added{{std::make_shared<mirror>(), std::make_shared<mirror>("lz4", 4)}};
  for (const int number : {77, 4}) {
    const payload_format format{.compression = static_cast<compression>(number),
                                .content = content_type::json};
    const payload made = encoded(echo("hello"), format, added);
    CHECK(made.bytes.to_string().substr(0, 1) == "M");
    EchoRequest read;
    CHECK(received(made, format).read(read, plenty, added) == "");
    CHECK(read.message() == "hello");
  }
  EchoRequest read;
  CHECK(has(received("?", 77, 0).read(read, plenty, added), "no valid mirror: no mark"));
  CHECK(has(received("T", 77, 0).read(read, plenty, added), "no valid mirror: thrown"));
  CHECK(has(received("E", 77, 0).read(read, plenty, added), "over max_body_size"));
  CHECK(has(received("M", 78, 0).read(read, plenty, added), "compress_type 78 is not supported"));
}

TEST_CASE(
    "compression: a runtime finds compressors by name, and refuses those whose name or number is taken") {
  using list = std::vector<std::shared_ptr<const compressor>>;
  braid::testing::simulation sim(1);
  braid::runtime_options options = sim.node_options();
  options.compressors = {std::make_shared<mirror>(), std::make_shared<mirror>("lz4", 4)};
  const braid::runtime rt(options);
  CHECK(rt.find_compression("none") == compression::none);
  CHECK(rt.find_compression("snappy") == compression::snappy);
  CHECK(rt.find_compression("gzip") == compression::gzip);
  CHECK(rt.find_compression("zlib") == compression::zlib);
  CHECK(rt.find_compression("lz4") == compression::lz4);
  CHECK(rt.find_compression("mirror") == static_cast<compression>(77));
  CHECK_FALSE(rt.find_compression("GZIP"));
  CHECK_FALSE(rt.find_compression(""));
  const std::vector<std::pair<list, const char*>> bad{
      {{nullptr}, "null"},
      {{std::make_shared<mirror>("", 9)}, "number 9 has no name"},
      {{std::make_shared<mirror>("x", 0)}, "'x': the number 0 is taken"},
      {{std::make_shared<mirror>("x", 2)}, "'x': the number 2 is taken"},
      {{std::make_shared<mirror>("zlib", 9)}, "'zlib': the name is taken"},
      {{std::make_shared<mirror>("x", 9), std::make_shared<mirror>("x", 10)}, "'x': the name is taken"},
      {{std::make_shared<mirror>("x", 9), std::make_shared<mirror>("y", 9)}, "'y': the number 9 is taken"},
  };
  for (const auto& [compressors, why] : bad) {
    options.compressors = compressors;
    CHECK_THROWS_WITH(braid::runtime(options), Catch::Contains(why));
  }
}
