#include "wire/meta.hpp"

#include "golden/oracle.hpp"

#include <catch2/catch.hpp>
#include <google/protobuf/stubs/logging.h>

#include <cstdint>
#include <random>
#include <string>

namespace {

using braid::wire::decode_meta;
using braid::wire::encode_meta;
using braid::wire::meta_size;
using braid::wire::rpc_meta;
using golden::oracle_meta;
using golden::same;

std::string encoded(const rpc_meta& meta) {
  std::string bytes(meta_size(meta) + 1, '\x5a');
  const char* end = encode_meta(meta, bytes.data());
  REQUIRE(end == bytes.data() + bytes.size() - 1);
  REQUIRE(bytes.back() == '\x5a');
  bytes.pop_back();
  return bytes;
}

/// True if our decoder and protobuf's parser take or refuse `bytes` alike, and read the same values.
bool agree(const std::string& bytes, rpc_meta& meta, std::size_t* accepted = nullptr) {
  const google::protobuf::LogSilencer no_complaints_about_utf8;
  oracle_meta oracle;
  const bool theirs = oracle.ParseFromString(bytes);
  const bool ours = decode_meta(bytes, meta);
  if (theirs && accepted) ++*accepted;
  return ours == theirs && (!ours || same(meta, oracle));
}

bool agree(const std::string& bytes) {
  rpc_meta meta;
  return agree(bytes, meta);
}

std::string varint(std::uint64_t value, int longer = 0) {
  std::string bytes;
  while (value >= 0x80 || longer-- > 0) {
    bytes += static_cast<char>(value | 0x80);
    value >>= 7;
  }
  return bytes + static_cast<char>(value);
}

std::string field(std::uint32_t number, std::uint32_t type, const std::string& content) {
  return varint(std::uint64_t{number} << 3 | type) + content;
}

std::string sized(std::uint32_t number, const std::string& content) {
  return field(number, 2, varint(content.size()) + content);
}

std::string groups(int depth) {
  std::string bytes;
  for (int i = 0; i < depth; ++i) bytes += field(20, 3, "");
  for (int i = 0; i < depth; ++i) bytes += field(20, 4, "");
  return bytes;
}

/// Makes metas that are nearly right: known and unknown fields, right and wrong wire types, odd encodings.
class generator {
 public:
  explicit generator(std::uint32_t seed) : random_{seed} {}

  std::size_t below(std::size_t n) { return random_() % n; }

  std::string number() {
    static constexpr std::uint64_t odd[] = {0,          1,          127,        128,
                                            0x7fffffff, 0x80000000, 0xffffffff, ~std::uint64_t{0}};
    const std::uint64_t value = below(2) ? odd[below(8)] : std::uint64_t{random_()} << below(33);
    return varint(value, below(8) == 0 ? static_cast<int>(below(12)) : 0);
  }

  std::string text() {
    return std::string(below(8) == 0 ? below(300) : below(6), static_cast<char>(random_()));
  }

  std::string any_field(std::uint32_t highest, int depth) {
    static constexpr std::uint32_t far[] = {0, 14, 20, 1000, 9999, 10000, 10001, 10002, 0x1fffffff};
    const std::uint32_t number =
        below(6) == 0 ? far[below(9)] : 1 + static_cast<std::uint32_t>(below(highest));
    const auto type = below(3) == 0 ? 2 : below(3) == 0 ? static_cast<std::uint32_t>(below(8)) : 0;
    switch (type) {
      case 0:
        return field(number, 0, this->number());
      case 1:
        return field(number, 1, std::string(8, 'f'));
      case 2:
        return sized(number, depth > 0 && below(2) ? message(highest, depth - 1) : text());
      case 3:
        return field(number, 3, depth > 0 ? message(highest, depth - 1) : "") + field(number, 4, "");
      case 5:
        return field(number, 5, "ffff");
      default:
        return field(number, type, "");
    }
  }

  std::string message(std::uint32_t highest, int depth) {
    std::string bytes;
    for (std::size_t n = below(5); n > 0; --n) bytes += any_field(highest, depth);
    return bytes;
  }

  std::string meta() {
    std::string bytes;
    if (below(2)) bytes += sized(1, sized(1, text()) + sized(2, text()) + message(8, 1));
    if (below(2)) bytes += sized(2, message(2, 1));
    for (std::size_t n = below(4); n > 0; --n)
      bytes += sized(9, sized(1, below(2) ? "k" : text()) + message(2, 1));
    if (below(4)) bytes += message(13, 3);
    return bytes;
  }

  std::string mutated(std::string bytes) {
    if (bytes.empty()) return bytes;
    for (std::size_t n = below(3); n > 0; --n) bytes[below(bytes.size())] = static_cast<char>(random_());
    if (below(3) == 0) bytes.resize(below(bytes.size() + 1));
    if (below(5) == 0) bytes.insert(below(bytes.size() + 1), text());
    return bytes;
  }

  rpc_meta filled(std::string_view words) {
    rpc_meta m;
    const auto word = [&] { return words.substr(below(words.size()), below(200)); };
    const auto whole = [&] {
      return static_cast<std::int64_t>(std::uint64_t{random_()} << 32 | random_()) >> below(64);
    };
    const auto part = [&] { return static_cast<std::int32_t>(random_()) >> below(32); };
    if ((m.has_request = below(2))) {
      m.request.service_name = word();
      m.request.method_name = word();
      for (auto* f :
           {&m.request.log_id, &m.request.trace_id, &m.request.span_id, &m.request.parent_span_id}) {
        if (below(2)) *f = whole();
      }
      if (below(2)) m.request.request_id = word();
      if (below(2)) m.request.timeout_ms = part();
    }
    if ((m.has_response = below(2))) {
      if (below(2)) m.response.error_code = part();
      if (below(2)) m.response.error_text = word();
    }
    if (below(2)) m.correlation_id = whole();
    for (auto* f : {&m.compress_type, &m.attachment_size, &m.content_type, &m.checksum_type}) {
      if (below(2)) *f = part();
    }
    for (auto* f : {&m.chunk_info, &m.authentication_data, &m.stream_settings, &m.checksum_value}) {
      if (below(2)) *f = word();
    }
    for (std::size_t n = below(4); n > 0; --n) m.user_fields.push_back({words.substr(n, n), word()});
    if (below(2)) m.checksum_with_attachment = below(2) == 0;
    if (below(2)) m.features = static_cast<std::uint64_t>(whole());
    if (below(2)) m.cancel_cause = static_cast<std::uint32_t>(part());
    return m;
  }

 private:
  std::mt19937 random_;
};

}  // namespace

TEST_CASE("meta: what is encoded reads the same in protobuf and in our decoder") {
  const google::protobuf::LogSilencer no_complaints_about_utf8;
  generator make{1};
  std::string words;
  for (int i = 0; i < 1000; ++i) words += static_cast<char>(i * 7);
  for (int i = 0; i < 3000; ++i) {
    const rpc_meta meta = make.filled(words);
    const std::string bytes = encoded(meta);
    oracle_meta oracle;
    const bool good =
        oracle.ParseFromString(bytes) && same(meta, oracle) && oracle.ByteSizeLong() == bytes.size();
    REQUIRE(good);
    REQUIRE(agree(bytes));
  }
}

TEST_CASE("meta: an empty one is no bytes, and decoding forgets what was there") {
  rpc_meta meta = generator{5}.filled("some words to fill it with");
  REQUIRE(decode_meta("", meta));
  CHECK(meta_size(meta) == 0);
  CHECK(same(meta, oracle_meta{}));
}

TEST_CASE("meta: a request needs both names, which may come in several parts") {
  rpc_meta meta;
  CHECK_FALSE(decode_meta(sized(1, ""), meta));
  CHECK_FALSE(decode_meta(sized(1, sized(1, "s")), meta));
  CHECK_FALSE(decode_meta(sized(1, sized(2, "m")), meta));
  const std::string parts = sized(1, sized(1, "s")) + sized(1, sized(2, "m") + field(3, 0, varint(7)));
  REQUIRE(decode_meta(parts, meta));
  CHECK(meta.request.service_name == "s");
  CHECK(meta.request.method_name == "m");
  CHECK(meta.request.log_id == 7);
}

TEST_CASE("meta: the last value wins, embedded messages merge, known fields of a wrong type are skipped") {
  rpc_meta meta;
  REQUIRE(decode_meta(field(4, 0, varint(1)) + field(4, 0, varint(2)) + field(4, 2, varint(1) + "x"), meta));
  CHECK(meta.correlation_id == 2);
  const std::string merged = sized(2, field(1, 0, varint(5))) + sized(2, sized(2, "text"));
  REQUIRE(decode_meta(merged, meta));
  CHECK(meta.response.error_code == 5);
  CHECK(meta.response.error_text == "text");
  const std::string repeated =
      sized(9, sized(1, "k") + sized(2, "old")) + sized(9, "") + sized(9, sized(2, "new") + sized(1, "k"));
  REQUIRE(decode_meta(repeated, meta));
  REQUIRE(meta.user_fields.size() == 2);
  CHECK(meta.user_fields[0] == braid::wire::user_field{"", ""});
  CHECK(meta.user_fields[1] == braid::wire::user_field{"k", "new"});
}

TEST_CASE("meta: unknown fields from 10000 on are skipped, features and cancel_cause are read") {
  rpc_meta meta;
  const std::string bytes = field(9999, 0, varint(9)) + field(10000, 0, varint(1)) + sized(10002, "later") +
                            field(10001, 0, varint(3)) + field(10003, 5, "1234");
  REQUIRE(decode_meta(bytes, meta));
  CHECK(meta.features == 1u);
  CHECK(meta.cancel_cause == 3u);
  CHECK(agree(bytes));
}

TEST_CASE("meta: odd encodings are taken and refused as protobuf does") {
  for (int depth = 95; depth <= 105; ++depth) {
    CAPTURE(depth);
    CHECK(agree(groups(depth)));
    CHECK(agree(sized(1, sized(1, "s") + sized(2, "m") + groups(depth))));
    CHECK(agree(sized(2, groups(depth))));
    CHECK(agree(sized(9, groups(depth))));
    CHECK(agree(sized(9, sized(1, "k") + sized(2, "v") + groups(depth))));
  }
  for (int longer = 0; longer <= 12; ++longer) {
    CAPTURE(longer);
    CHECK(agree(varint(4 << 3, longer) + varint(5)));
    CHECK(agree(field(4, 0, varint(5, longer))));
    CHECK(agree(field(13, 0, varint(std::uint64_t{1} << 40, longer))));
    CHECK(agree(field(7, 2, varint(3, longer) + "abc")));
  }
  CHECK(agree("\x20\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f"));
  CHECK(agree("\xa0\x80\x80\x80\x70\x05"));                       // a tag whose high bits are cut off
  CHECK(agree("\x3a\x83\x80\x80\x80\x10" + std::string{"abc"}));  // a size of 4 GiB and 3
  CHECK(agree(std::string{"\0", 1}));
  CHECK(agree(std::string{"\x02\0", 2}));
  CHECK(agree(field(20, 3, "") + field(21, 4, "")));
  CHECK(agree(field(20, 4, "")));
  CHECK(agree(sized(9, field(1, 4, ""))));
}

TEST_CASE("meta: random, mutated and truncated ones are taken and refused as by protobuf's parser") {
  generator make{20261130};
  rpc_meta meta;
  std::size_t accepted = 0;
  constexpr std::size_t rounds = 60000;
  for (std::size_t i = 0; i < rounds; ++i) {
    const std::string whole = make.meta();
    const std::string bytes = i % 3 == 0 ? whole : make.mutated(whole);
    const bool good = agree(bytes, meta, &accepted);
    if (!good) {
      CAPTURE(i, bytes);
      REQUIRE(good);
    }
  }
  CAPTURE(accepted);
  CHECK(accepted > rounds / 10);
  CHECK(accepted < rounds * 9 / 10);
}

TEST_CASE("meta: every truncation of a full one is taken and refused as by protobuf's parser") {
  generator make{3};
  std::string words(300, 'w');
  for (int i = 0; i < 40; ++i) {
    const std::string bytes = encoded(make.filled(words));
    bool good = true;
    for (std::size_t n = 0; n <= bytes.size(); ++n) good = good && agree(bytes.substr(0, n));
    REQUIRE(good);
  }
}

TEST_CASE("meta: one full of user fields gives each key once and keeps no memory") {
  std::string bytes;
  for (int i = 0; bytes.size() < 65000; ++i)
    bytes += sized(9, sized(1, std::to_string(i % 9000)) + sized(2, "v"));
  rpc_meta meta;
  REQUIRE(decode_meta(bytes, meta));
  CHECK(agree(bytes, meta));
  REQUIRE(decode_meta("", meta));
  CHECK(meta.user_fields.capacity() <= 64);
}
