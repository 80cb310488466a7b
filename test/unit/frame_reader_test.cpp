#include "golden/frame_model.hpp"
#include "golden/golden_frames.hpp"
#include "wire/frame.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstring>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace {

using braid::buffer;
using braid::wire::frame_error;
using braid::wire::frame_reader;
using braid::wire::inbound_frame;
using braid::wire::rpc_meta;
using golden::make_frame;
using golden::make_header;
using status = frame_reader::status;

std::string encoded(const rpc_meta& meta) {
  std::string bytes(meta_size(meta), '\0');
  encode_meta(meta, bytes.data());
  return bytes;
}

std::string request(std::int64_t id, std::string_view payload, std::string_view attachment = {}) {
  rpc_meta meta;
  meta.has_request = true;
  meta.request.service_name = "Echo";
  meta.request.method_name = "Echo";
  meta.correlation_id = id;
  if (!attachment.empty()) meta.attachment_size = static_cast<std::int32_t>(attachment.size());
  return make_frame(encoded(meta), std::string{payload} + std::string{attachment});
}

/// Reads up to all of `bytes` in one go; returns how many the reader had room for.
std::size_t feed(frame_reader& reader, std::string_view bytes) {
  const auto room = reader.prepare();
  const std::size_t n = std::min(room.size(), bytes.size());
  std::memcpy(room.data(), bytes.data(), n);
  reader.commit(n);
  return n;
}

frame_error error_of(std::string_view bytes) {
  frame_reader reader;
  inbound_frame frame;
  feed(reader, bytes);
  const status got = reader.next(frame);
  if (got != status::broken) CHECK(reader.error() == frame_error::none);
  return reader.error();
}

/// The recorded chunks, each different one once.
std::set<std::string> recorded() {
  std::set<std::string> unique;
  for (const auto& chunk : golden::load(GOLDEN_FRAMES_FILE)) unique.insert(chunk.bytes);
  return unique;
}

bool follows(std::string_view stream, std::size_t read_size, std::size_t max_body = 1 << 20,
             std::size_t max_meta = 1 << 16) {
  return golden::reads_like_model({stream, max_body, max_meta}, stream, read_size, max_body, max_meta);
}

}  // namespace

TEST_CASE("frame_reader: a header is the magic word and two big-endian numbers") {
  CHECK(make_header(0x01020304, 0x05060708) == std::string{"PRPC\1\2\3\4\5\6\7\10"});
}

TEST_CASE("frame_reader: wrong magic is seen at the first wrong byte, one junk byte is enough") {
  CHECK(error_of("X") == frame_error::bad_magic);
  CHECK(error_of(std::string(1, '\0')) == frame_error::bad_magic);
  CHECK(error_of("PX") == frame_error::bad_magic);
  CHECK(error_of("PRX") == frame_error::bad_magic);
  CHECK(error_of("PRPX") == frame_error::bad_magic);
  CHECK(error_of("PRPC") == frame_error::none);
  CHECK(error_of(make_frame("", "") + "x") == frame_error::none);
  frame_reader reader;
  inbound_frame frame;
  feed(reader, make_frame("", "") + "x");
  CHECK(reader.next(frame) == status::frame);
  CHECK(reader.next(frame) == status::broken);
  CHECK(reader.next(frame) == status::broken);
  CHECK_FALSE(to_string(reader.error()).empty());
}

TEST_CASE("frame_reader: the limits hold from the header alone") {
  CHECK(error_of(make_header(1 << 20, 64 * 1024)) == frame_error::none);
  CHECK(error_of(make_header(1 << 20, 64 * 1024 + 1)) == frame_error::meta_too_large);
  CHECK(error_of(make_header(0xffffffff, 0xffffffff)) == frame_error::meta_too_large);
  CHECK(error_of(make_header(10, 10)) == frame_error::none);
  CHECK(error_of(make_header(10, 11)) == frame_error::meta_exceeds_body);
  CHECK(error_of(make_header(10, 10).substr(0, 11)) == frame_error::none);
  CHECK(error_of(make_frame("\x0a", "")) == frame_error::bad_meta);
  CHECK(error_of(make_frame("", "")) == frame_error::none);
}

TEST_CASE("frame_reader: payload and attachment are cut by attachment_size") {
  frame_reader reader;
  inbound_frame frame;
  feed(reader, request(7, "payload", "attached") + request(8, "", "only") + request(9, "", ""));
  REQUIRE(reader.next(frame) == status::frame);
  CHECK(frame.meta.correlation_id == 7);
  CHECK(frame.payload == "payload");
  CHECK(frame.attachment == "attached");
  CHECK(frame.take_payload().to_string() == "payload");
  CHECK(frame.take_attachment().to_string() == "attached");
  REQUIRE(reader.next(frame) == status::frame);
  CHECK(frame.payload.empty());
  CHECK(frame.attachment == "only");
  REQUIRE(reader.next(frame) == status::frame);
  CHECK(frame.attachment.empty());
  CHECK(frame.take_attachment().empty());
  CHECK(reader.next(frame) == status::need_more);
  CHECK_FALSE(reader.mid_frame());
  CHECK(reader.bytes_buffered() == 0);
}

TEST_CASE("frame_reader: an attachment_size that lies fails that call only") {
  for (const std::int32_t claimed : {-1, 8, 0x7fffffff, std::int32_t{-0x7fffffff - 1}}) {
    rpc_meta meta;
    meta.correlation_id = 3;
    meta.attachment_size = claimed;
    frame_reader reader;
    inbound_frame frame;
    feed(reader, make_frame(encoded(meta), "7 bytes") + request(4, "next"));
    REQUIRE(reader.next(frame) == status::frame);
    CHECK(frame.bad_attachment_size);
    CHECK(frame.meta.correlation_id == 3);
    CHECK(frame.payload == "7 bytes");
    CHECK(frame.attachment.empty());
    REQUIRE(reader.next(frame) == status::frame);
    CHECK_FALSE(frame.bad_attachment_size);
    CHECK(frame.payload == "next");
  }
}

TEST_CASE("frame_reader: every recorded chunk reads as protobuf's parser says, at any size of the reads") {
  for (const std::string& bytes : recorded()) {
    for (const std::size_t read_size : {1, 2, 3, 7, 12, 13, 50, 1000}) CHECK(follows(bytes, read_size));
  }
}

TEST_CASE("frame_reader: every truncation of every recorded chunk reads as protobuf's parser says") {
  bool good = true;
  for (const std::string& bytes : recorded()) {
    for (std::size_t n = 0; n < bytes.size(); ++n) {
      good = good && follows(std::string_view{bytes}.substr(0, n), 1000);
      // A frame cut short and followed by another: the lengths now lie.
      good = good && follows(bytes.substr(0, n) + bytes, 1000);
    }
  }
  CHECK(good);
}

TEST_CASE("frame_reader: every one-byte change of every recorded chunk reads as protobuf's parser says") {
  std::size_t different = 0;
  for (std::string bytes : recorded()) {
    for (char& changed : bytes) {
      const char original = changed;
      for (int other = 1; other < 256; ++other) {
        changed = static_cast<char>(original ^ other);
        different += !follows(bytes, 1000);
      }
      changed = original;
    }
  }
  CHECK(different == 0);
}

TEST_CASE(
    "frame_reader: random streams of good, large and lying frames read the same at any size of the reads") {
  std::mt19937 random{99};
  constexpr std::size_t max_body = 6000;
  for (int round = 0; round < 300; ++round) {
    std::string stream;
    for (int i = 0; i < 6; ++i) {
      const std::size_t size = random() % 4 == 0 ? random() % 12000 : random() % 200;
      stream += request(i, std::string(size, 'p'), std::string(random() % 100, 'a'));
      if (random() % 8 == 0) stream.insert(random() % stream.size(), 1, static_cast<char>(random()));
    }
    const golden::frame_model model{stream, max_body, 64};
    bool good = true;
    for (const std::size_t read_size :
         {1u, 5u, 333u, 4096u, 1u << 20, 1 + static_cast<unsigned>(random() % 3000)}) {
      good = good && golden::reads_like_model(model, stream, read_size, max_body, 64);
    }
    REQUIRE(good);
  }
}

TEST_CASE("frame_reader: an oversized body is announced with its meta, discarded, and the next frame lives") {
  constexpr std::size_t limit = 1000;
  frame_reader reader{limit};
  inbound_frame frame;
  const std::string exact = request(1, std::string(limit - request(1, "").size() + 12, 'x'));
  REQUIRE(exact.size() == limit + 12);
  for (std::string_view rest = exact; !rest.empty();) {
    rest.remove_prefix(feed(reader, rest));
    CHECK(reader.next(frame) == (rest.empty() ? status::frame : status::need_more));
  }
  const std::string large =
      request(2, std::string(std::size_t{40} << 20, 'x'), "attached") + request(3, "after");
  std::string_view rest = large;
  std::size_t most = 0;
  int announced = 0;
  bool after = false;
  while (!rest.empty()) {
    rest.remove_prefix(feed(reader, rest));
    most = std::max(most, reader.capacity());
    for (status got = reader.next(frame); got != status::need_more; got = reader.next(frame)) {
      REQUIRE(got != status::broken);
      if (got == status::oversized) {
        ++announced;
        CHECK(frame.meta.correlation_id == 2);
        CHECK(frame.payload.empty());
        CHECK(frame.attachment.empty());
      } else {
        after = frame.meta.correlation_id == 3 && frame.payload == "after";
      }
    }
    CHECK(reader.bytes_buffered() <= request(3, "after").size());
    if (rest.size() > 1000) CHECK(reader.mid_frame());
  }
  CHECK(announced == 1);
  CHECK(after);
  CHECK_FALSE(reader.mid_frame());
  CHECK(most <= frame_reader::max_block);
}

TEST_CASE(
    "frame_reader: a frame that was dropped is announced with its meta and not stored, others are not") {
  frame_reader reader;
  inbound_frame frame;
  const auto feed = [&](std::string_view bytes) {
    while (!bytes.empty()) {
      const auto room = reader.prepare();
      const std::size_t n = std::min(room.size(), bytes.size());
      std::memcpy(room.data(), bytes.data(), n);
      reader.commit(n);
      bytes.remove_prefix(n);
    }
  };
  golden::oracle_meta meta;
  meta.set_correlation_id(7);
  const std::string dropped = golden::make_frame(meta.SerializeAsString(), std::string(100'000, 'x'));
  meta.set_correlation_id(8);
  const std::string next = golden::make_frame(meta.SerializeAsString(), "next");

  feed(dropped.substr(0, 11));
  CHECK(reader.next(frame) == status::need_more);
  CHECK(reader.frame_size() == 0);
  const std::size_t at = GENERATE(12, 13, 14, 5000);
  feed(dropped.substr(11, at - 11));
  CHECK(reader.next(frame) == status::need_more);
  CHECK(reader.frame_size() == dropped.size());
  reader.drop_frame();
  if (at < 14) {
    CHECK(reader.next(frame) == status::need_more);
    feed(dropped.substr(at, 1));
    if (at == 12) {
      CHECK(reader.next(frame) == status::need_more);
      feed(dropped.substr(at + 1, 1));
    }
  }
  REQUIRE(reader.next(frame) == status::oversized);
  CHECK(frame.meta.correlation_id == 7);
  CHECK(frame.payload.empty());
  CHECK(reader.next(frame) == status::need_more);
  CHECK(reader.bytes_buffered() == 0);
  CHECK(reader.mid_frame());
  feed(dropped.substr(std::max<std::size_t>(at, 14)) + next);
  REQUIRE(reader.next(frame) == status::frame);
  CHECK(frame.meta.correlation_id == 8);
  CHECK(frame.payload == "next");
  CHECK_FALSE(reader.mid_frame());
}

TEST_CASE("frame_reader: an oversized frame with an unreadable meta breaks the stream") {
  frame_reader reader{100};
  inbound_frame frame;
  feed(reader, make_header(1000, 1) + "\x0a");
  CHECK(reader.next(frame) == status::broken);
  CHECK(reader.error() == frame_error::bad_meta);
}

TEST_CASE("frame_reader: storage follows the bytes received, not what a header claims") {
  frame_reader reader;
  inbound_frame frame;
  CHECK(reader.capacity() == 0);
  CHECK(reader.prepare().size() == frame_reader::min_block);
  std::size_t received = feed(reader, make_header(60 << 20, 20));
  const std::string piece(700, '\0');
  while (received < (3u << 20)) {
    REQUIRE(reader.next(frame) == status::need_more);
    received += feed(reader, piece);
    REQUIRE(reader.capacity() <= std::max(frame_reader::min_block, 5 * received));
    REQUIRE(reader.bytes_buffered() == received);
  }
}

TEST_CASE(
    "frame_reader: a large frame is copied a bounded number of times and the storage shrinks afterwards") {
  frame_reader reader;
  inbound_frame frame;
  const std::string large = request(1, std::string(std::size_t{5} << 20, 'x'));
  std::string_view rest = large;
  std::size_t blocks = 0;
  std::size_t capacity = 0;
  while (!rest.empty()) {
    rest.remove_prefix(feed(reader, rest));
    blocks += reader.capacity() != capacity;
    capacity = reader.capacity();
    const status got = reader.next(frame);
    REQUIRE(got == (rest.empty() ? status::frame : status::need_more));
  }
  CHECK(blocks < 16);
  CHECK(capacity <= large.size() + large.size() / 100);
  CHECK(frame.payload.size() == std::size_t{5} << 20);
  reader.prepare();
  CHECK(reader.capacity() <= frame_reader::max_block);
  for (int i = 0; i < 1000; ++i) {
    feed(reader, request(i, "small"));
    REQUIRE(reader.next(frame) == status::frame);
  }
  reader.prepare();
  CHECK(reader.capacity() <= 4 * frame_reader::min_block);
}

TEST_CASE("frame_reader: frames of one large size come to lie where they are read, attached or not") {
  frame_reader reader;
  inbound_frame frame;
  const bool attached = GENERATE(false, true);
  golden::oracle_meta meta;
  meta.set_correlation_id(7);
  if (attached) meta.set_attachment_size(1 << 20);
  const std::string large = make_frame(meta.SerializeAsString(), std::string(std::size_t{1} << 20, 'x'));
  for (int i = 0; i < 10; ++i) {
    CAPTURE(i);
    std::string_view rest = large;
    const char* first = nullptr;
    while (!rest.empty()) {
      const auto room = reader.prepare();
      if (!first) first = room.data();
      const std::size_t n = std::min({rest.size(), room.size(), std::size_t{100'000}});
      std::memcpy(room.data(), rest.data(), n);
      reader.commit(n);
      rest.remove_prefix(n);
      REQUIRE(reader.next(frame) == (rest.empty() ? status::frame : status::need_more));
    }
    const std::string_view bytes = attached ? frame.attachment : frame.payload;
    REQUIRE(bytes.size() == std::size_t{1} << 20);
    if (i > 0) CHECK(bytes.data() == first + (large.size() - bytes.size()));
    const braid::buffer kept = frame.take_attachment();  // until the next frame has begun
    reader.prepare();
  }
}

TEST_CASE("frame_reader: reads that fill the storage make it grow, up to its limit") {
  frame_reader reader;
  inbound_frame frame;
  std::string stream;
  while (stream.size() < (4u << 20)) stream += request(1, "a small request");
  std::string_view rest = stream;
  std::size_t reads = 0;
  while (!rest.empty()) {
    rest.remove_prefix(feed(reader, rest));
    ++reads;
    while (reader.next(frame) == status::frame) {
    }
    REQUIRE(reader.capacity() <= frame_reader::max_block);
  }
  CHECK(reads < 40);
}

TEST_CASE("frame_reader: a steady stream of small frames stays in one block") {
  frame_reader reader;
  inbound_frame frame;
  feed(reader, request(0, "first"));
  REQUIRE(reader.next(frame) == status::frame);
  const char* where = frame.payload.data();
  bool same = true;
  for (int i = 1; i < 1000; ++i) {
    feed(reader, request(0, "first"));
    same = same && reader.next(frame) == status::frame && frame.payload.data() == where;
  }
  CHECK(same);
}

TEST_CASE("frame_reader: what was taken shares the storage and stays as it was, whatever is read later") {
  frame_reader reader;
  inbound_frame frame;
  std::vector<buffer> kept;
  std::vector<std::string> expected;
  std::mt19937 random{4};
  bool shared = false;
  for (int i = 0; i < 200; ++i) {
    const std::string payload(random() % 3000, static_cast<char>('a' + i % 26));
    const std::string attachment(1 + random() % 3000, static_cast<char>('A' + i % 26));
    const std::string bytes = request(i, payload, attachment) + request(i, "between");
    std::string_view rest = bytes;
    while (!rest.empty()) {
      const std::size_t n = feed(reader, rest.substr(0, 1 + random() % 5000));
      rest.remove_prefix(n);
      while (reader.next(frame) == status::frame) {
        if (frame.payload == "between") continue;
        kept.push_back(frame.take_attachment());
        expected.push_back(attachment);
        kept.push_back(frame.take_payload());
        expected.push_back(payload);
        shared = shared || kept[kept.size() - 2].piece(0).data() == frame.attachment.data();
      }
    }
  }
  CHECK(shared);
  REQUIRE(kept.size() == 400);
  bool good = true;
  for (std::size_t i = 0; i < kept.size(); ++i) good = good && kept[i].to_string() == expected[i];
  CHECK(good);
}
