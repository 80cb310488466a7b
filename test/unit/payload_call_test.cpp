// Calls in each format, and what travels beside the message.

#include <braid/parallel_channel.hpp>

#include "unit/call_fixture.hpp"
#include "unit/server_fixture.hpp"
#include "unit/watched_network.hpp"
#include "wire/compressors.hpp"
#include "wire/payload.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace {

using namespace call_fixture;
using namespace std::string_literals;
using braid::checksum;
using braid::compression;
using braid::content_type;
using braid::errc;
using braid::outcome_origin;
using braid::payload_format;

std::vector<payload_format> all_formats() {
  std::vector<payload_format> all;
  for (int number = 0; number < 4; ++number)
    for (int content = 0; content < 4; ++content)
      for (int check = 0; check < 3; ++check)
        all.push_back({.compression = static_cast<compression>(number),
                       .content = static_cast<content_type>(content),
                       .checksum = check == 0 ? checksum::none : checksum::crc32c,
                       .checksum_attachment = check == 2});
  return all;
}

/// Copies its bytes, and counts.
class counting_compressor final : public braid::compressor {
 public:
  std::string_view name() const noexcept override { return "counting"; }
  compression number() const noexcept override { return counted; }
  bool compress(std::string_view bytes, braid::compression_output& out, std::string& why) const override {
    ++compressed;
    if (bytes.size() > 1000) why = "too much for it";
    return bytes.size() <= 1000 && out.write(bytes);
  }
  bool decompress(std::string_view bytes, braid::compression_output& out, std::string&) const override {
    ++decompressed;
    return out.write(bytes);
  }
  static constexpr auto counted = static_cast<compression>(100);
  mutable int compressed = 0;
  mutable int decompressed = 0;
};

}  // namespace

TEST_CASE("payload: calls travel in every format, both ways, and both sides see in which", "[call]") {
  simulation sim(1);
  payload_format came, answer_in;
  server_node server(sim,
                     [&](braid::server_call& call, const EchoRequest&, EchoResponse&, braid::yield_context) {
                       came = call.request_metadata().format;
                       call.mutable_response_metadata().format = answer_in;
                       call.response_attachment() = std::as_const(call).request_attachment();
                     });
  client_node client(sim);
  const auto formats = all_formats();
  for (std::size_t i = 0; i < formats.size(); ++i) {
    const payload_format& back = formats[formats.size() - 1 - i];
    for (const std::size_t size : {5, 50'000}) {
      CAPTURE(i, size);
      answer_in = back;
      started_call call;
      call.message.set_message(std::string(size, 'm'));
      call.control.mutable_request_metadata().format = formats[i];
      call.control.request_attachment() = braid::buffer("attached");
      client.start(call);
      client.finish(call);
      REQUIRE(call.control.ErrorText() == "");
      CHECK(call.response.message() == call.message.message());
      CHECK(came == formats[i]);
      CHECK(std::as_const(call.control).response_metadata().format == back);
      CHECK(call.control.response_attachment().to_string() == "attached");
    }
  }
}

TEST_CASE("payload: an answer is plain unless the handler says otherwise, whatever the request was",
          "[call]") {
  simulation sim(1);
  server_node server(sim);
  client_node client(sim);
  for (const payload_format& format : all_formats()) {
    started_call call;
    call.control.mutable_request_metadata().format = format;
    client.start(call);
    client.finish(call);
    REQUIRE_FALSE(call.ec);
    CHECK(std::as_const(call.control).response_metadata().format.is_plain());
  }
}

TEST_CASE("payload: the attachment is never compressed", "[call]") {
  simulation sim(1);
  auto net = watched_network::of(sim);
  server_node server(sim);
  braid::runtime rt(net->watch(sim.node_options()));
  braid::channel channel(rt);
  channel.init(address);
  started_call call;
  const std::string zeros(20'000, '\0');
  call.message.set_message(zeros);
  call.control.mutable_request_metadata().format.compression = compression::gzip;
  call.control.request_attachment() = braid::buffer(zeros);
  rt.core()->at(0).post([&] {
    channel.async_call(echo(), call.control, call.message, call.response, [&](error_code ec) {
      ++call.completions;
      call.ec = ec;
    });
  });
  REQUIRE(sim.run_until([&] { return call.done(); }));
  CHECK_FALSE(call.ec);
  std::size_t sent = 0;
  for (const auto& piece : net->written) sent += piece.size();
  CHECK(sent > zeros.size());
  CHECK(sent < zeros.size() + 1000);
}

TEST_CASE("attachment: its own bytes are written, and it lies where it was read, on both sides", "[call]") {
  simulation sim(1);
  auto near = watched_network::of(sim);
  auto far = watched_network::of(sim);
  const std::size_t size = 60'000;
  const std::string asked(size, 'a');
  const std::string answered(size, 'b');
  int asked_released = 0;
  int answered_released = 0;
  bool read_in_place = false;
  braid::runtime server_side(far->watch(sim.node_options()));
  braid::server server(server_side);
  server.handle(&golden::EchoService::Echo, [&](braid::server_call& call, const EchoRequest& wanted,
                                                EchoResponse& response) {
    const braid::buffer came = std::as_const(call).request_attachment();
    read_in_place = came.piece_count() == 1 && far->read(came.piece(0));
    response.set_message(wanted.message());
    call.response_attachment() = braid::buffer::wrap(answered.data(), size, [&] { ++answered_released; });
  });
  server.start(address);
  braid::runtime rt(near->watch(sim.node_options()));
  braid::channel channel(rt);
  channel.init(address);
  for (int round = 0; round < 20; ++round) {
    const bool warm = round > 10;  // the blocks that are read into have grown to the frames by then
    CAPTURE(round);
    near->forget();
    far->forget();
    asked_released = answered_released = 0;
    started_call call;
    call.control.request_attachment() = braid::buffer::wrap(asked.data(), size, [&] { ++asked_released; });
    rt.core()->at(0).post([&] {
      channel.async_call(echo(), call.control, call.message, call.response, [&](error_code ec) {
        ++call.completions;
        call.ec = ec;
      });
    });
    REQUIRE(sim.run_until([&] { return call.done(); }));
    REQUIRE_FALSE(call.ec);
    CHECK(near->wrote(asked));
    CHECK(far->wrote(answered));
    const braid::buffer back = std::as_const(call.control).response_attachment();
    CHECK(back.to_string() == answered);
    CHECK(back.piece_count() == 1);
    if (warm) {
      CHECK(near->read(back.piece(0)));
      CHECK(read_in_place);
    }
    CHECK(asked_released == 0);
    call.control.Reset();
    sim.run_for(1ms);
    CHECK(asked_released == 1);
    CHECK(answered_released == 1);
  }
}

TEST_CASE(
    "payload: a fan-out is serialised and compressed once, each sub call with a format of its own apart",
    "[parallel]") {
  simulation sim(1);
  auto codec = std::make_shared<counting_compressor>();
  braid::runtime_options options = sim.node_options();
  options.compressors = {codec};
  auto at_server = std::make_shared<counting_compressor>();
  std::vector<payload_format> came;
  braid::runtime_options server_side = sim.node_options();
  server_side.compressors = {at_server};
  braid::runtime server_rt(server_side);
  braid::server server(server_rt);
  server.handle(&golden::EchoService::Echo,
                [&](braid::server_call& call, const EchoRequest& q, EchoResponse& r, braid::yield_context) {
                  came.push_back(call.request_metadata().format);
                  r.set_message(q.message());
                });
  server.start(address);
  braid::runtime rt(options);
  auto one = std::make_shared<braid::channel>(rt);
  one->init(address);
  braid::parallel_channel all(rt);
  auto inner = std::make_shared<braid::parallel_channel>(rt);
  for (int i = 0; i < 3; ++i) all.add_channel(one), inner->add_channel(one);
  all.add_channel(inner);

  class plain_mapper final : public braid::call_mapper {
    braid::sub_call map(std::size_t, std::size_t, const google::protobuf::MethodDescriptor& method,
                        const google::protobuf::Message&, google::protobuf::Message&) override {
      braid::sub_call same{method, static_cast<const google::protobuf::Message*>(nullptr)};
      same.prepare([](braid::controller& own) {
        own.mutable_request_metadata().format = {.content = content_type::json};
      });
      return same;
    }
  };
  all.add_channel(one, std::make_shared<plain_mapper>());

  started_call call;
  const payload_format format{.compression = counting_compressor::counted,
                              .content = content_type::json,
                              .checksum = checksum::crc32c};
  call.control.mutable_request_metadata().format = format;
  rt.core()->at(0).post([&] {
    all.async_call(echo(), call.control, call.message, call.response, [&](error_code ec) {
      ++call.completions;
      call.ec = ec;
    });
  });
  REQUIRE(sim.run_until([&] { return call.done(); }));
  CHECK(call.control.ErrorText() == "");
  CHECK(codec->compressed == 1);
  CHECK(at_server->decompressed == 6);
  CHECK(std::count(came.begin(), came.end(), format) == 6);
  CHECK(std::count(came.begin(), came.end(), payload_format{.content = content_type::json}) == 1);
}

TEST_CASE("payload: what the server cannot read fails that call alone with 1003, and says why", "[call]") {
  simulation sim(1);
  server_node server(sim);
  auto codec = std::make_shared<counting_compressor>();
  braid::runtime_options options = sim.node_options();
  options.compressors = {codec};
  braid::runtime rt(options);
  braid::channel channel(rt);
  channel.init(address);
  started_call bad, good;
  bad.control.mutable_request_metadata().format.compression = counting_compressor::counted;
  rt.core()->at(0).post([&] {
    for (started_call* each : {&bad, &good})
      channel.async_call(echo(), each->control, each->message, each->response, [each](error_code ec) {
        ++each->completions;
        each->ec = ec;
      });
  });
  REQUIRE(sim.run_until([&] { return bad.done() && good.done(); }));
  CHECK(bad.ec == errc::bad_request);
  CHECK(bad.control.result().origin == outcome_origin::peer);
  CHECK(has(bad.control.ErrorText(), "compress_type 100 is not supported"));
  CHECK_FALSE(good.ec);
}

TEST_CASE("payload: a bomb is 1003 at the server and 2002 at the client", "[call]") {
  simulation sim(1);
  const compression number = GENERATE(compression::snappy, compression::gzip, compression::zlib);
  const std::string zeros(100'000, '\0');
  SECTION("a request") {
    braid::runtime process(sim.node_options());
    braid::server server(process, {.max_body_size = 50'000});
    int ran = 0;
    server.handle(&golden::EchoService::Echo,
                  [&](braid::server_call&, const EchoRequest& q, EchoResponse& r, braid::yield_context) {
                    ++ran;
                    r.set_message(q.message());
                  });
    server.start(address);
    client_node client(sim);
    started_call call;
    call.message.set_message(zeros);
    call.control.mutable_request_metadata().format.compression = number;
    client.start(call);
    client.finish(call);
    CHECK(call.ec == errc::bad_request);
    CHECK(call.control.result().origin == outcome_origin::peer);
    CHECK(has(call.control.ErrorText(), "over max_body_size 50000"));
    CHECK(ran == 0);
    CHECK_FALSE(client.round());
  }
  SECTION("a response") {
    server_node server(
        sim, [&](braid::server_call& call, const EchoRequest& q, EchoResponse& r, braid::yield_context) {
          if (q.message() != "bomb") return;
          r.set_message(zeros);
          call.mutable_response_metadata().format.compression = number;
        });
    client_node client(sim, {.max_body_size = 50'000});
    CHECK(client.round("bomb") == errc::bad_response);
    CHECK_FALSE(client.round());
  }
}

TEST_CASE("payload: what cannot be made is 1003 for a request and 2002 for a response, unsent", "[call]") {
  simulation sim(1);
  server_node server(
      sim, [&](braid::server_call& call, const EchoRequest& q, EchoResponse&, braid::yield_context) {
        if (q.message() == "lz4") call.mutable_response_metadata().format.compression = compression::lz4;
      });
  braid::runtime_options options = sim.node_options();
  options.compressors = {std::make_shared<counting_compressor>()};
  braid::runtime rt(options);
  braid::channel channel(rt);
  channel.init(address);
  const bool from_loop = GENERATE(true, false);
  const auto outcome_of = [&](started_call& call) {
    const auto start = [&] {
      channel.async_call(echo(), call.control, call.message, call.response, [&](error_code ec) {
        ++call.completions;
        call.ec = ec;
      });
    };
    from_loop ? static_cast<void>(rt.core()->at(0).post(start)) : start();
    REQUIRE(sim.run_until([&] { return call.done(); }));
    return call.control.result();
  };
  started_call lz4, heavy, answered, fine;
  lz4.control.mutable_request_metadata().format.compression = compression::lz4;
  heavy.control.mutable_request_metadata().format.compression = counting_compressor::counted;
  heavy.message.set_message(std::string(2000, 'x'));
  answered.message.set_message("lz4");
  for (started_call* each : {&lz4, &heavy}) {
    const auto result = outcome_of(*each);
    CHECK(result.code == errc::bad_request);
    CHECK(result.origin == outcome_origin::local);
    CHECK(each->control.attempts() <= 1);
  }
  CHECK(has(lz4.control.ErrorText(), "compress_type 4 (lz4) is not supported"));
  CHECK(has(heavy.control.ErrorText(), "counting failed: too much for it"));
  CHECK(outcome_of(answered).code == errc::bad_response);
  CHECK(answered.control.result().origin == outcome_origin::peer);
  CHECK(has(answered.control.ErrorText(), "compress_type 4 (lz4) is not supported"));
  CHECK_FALSE(outcome_of(fine).code);
}

TEST_CASE("payload: a damaged answer is 2002 by its checksum", "[call]") {
  simulation sim(1);
  scripted_server server(sim);
  client_node client(sim);
  started_call call;
  client.start(call);
  server.send(answer(server.requests().at(0).id, echoed(), [](braid::wire::rpc_meta& meta) {
    meta.checksum_type = 1;
    meta.checksum_value = "abcd";
  }));
  client.finish(call);
  CHECK(call.ec == errc::bad_response);
  CHECK(call.control.ErrorText() == "the response's checksum is wrong");
}

TEST_CASE(
    "metadata: log_id, request_id and user_fields reach the handler, and fields come back with a failure too",
    "[call]") {
  simulation sim(1);
  braid::metadata came;
  server_node server(sim,
                     [&](braid::server_call& call, const EchoRequest&, EchoResponse&, braid::yield_context) {
                       came = call.request_metadata();
                       call.mutable_response_metadata().set_user_field("answered", "yes");
                     });
  client_node client(sim);
  for (const int fail_code : {0, 12345}) {
    started_call call;
    call.message.set_fail_code(fail_code);
    if (fail_code == 0) call.message.clear_fail_code();
    auto& data = call.control.mutable_request_metadata();
    data.log_id = 42;
    data.request_id = "req-abc";
    data.set_user_field("k1", "v1");
    data.set_user_field("", std::string("\0\xff", 2));
    client.start(call);
    client.finish(call);
    CHECK(braid::to_wire(call.ec) == fail_code);
    CHECK(came.log_id == 42);
    CHECK(came.request_id == "req-abc");
    CHECK(came.user_field("k1") == "v1");
    CHECK(came.user_field("") == std::string_view("\0\xff", 2));
    CHECK(call.control.response_metadata().user_field("answered") == "yes");
  }
}

TEST_CASE("metadata: a failure whose fields have no room is told without them", "[call]") {
  simulation sim(1);
  server_node server(sim,
                     [&](braid::server_call& call, const EchoRequest&, EchoResponse&, braid::yield_context) {
                       call.mutable_response_metadata().set_user_field("huge", std::string(70'000, 'x'));
                     });
  client_node client(sim);
  started_call call;
  call.message.set_fail_code(12345);
  client.start(call);
  client.finish(call);
  CHECK(braid::to_wire(call.ec) == 12345);
  CHECK(call.control.ErrorText() == "as asked");
  CHECK(call.control.response_metadata().user_fields.empty());
}
