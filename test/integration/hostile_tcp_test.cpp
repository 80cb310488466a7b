// A sample of the hostile tables over real sockets: what the memory network shows must hold on tcp too.
#include "golden/frame_model.hpp"
#include "golden/hostile_cases.hpp"
#include "golden/hostile_oracle.hpp"
#include "integration/call_fixture.hpp"
#include "integration/raw_peer.hpp"
#include "unit/hostile_report.hpp"
#include "unit/server_fixture.hpp"

#include <boost/asio/use_future.hpp>
#include <catch2/catch.hpp>
#include <google/protobuf/stubs/logging.h>

using namespace call_over_tcp;
using server_test::raw_listener;
using server_test::raw_peer;

namespace {

constexpr std::size_t max_body = std::size_t{64} * 1024 * 1024;
constexpr std::size_t stride = 199;  // a prime, so that the sample meets every byte and value sooner or later

braid::runtime_options quiet() {
  return {.loops = 2, .log = [](braid::log_level, std::string_view, std::span<const braid::log_field>) {}};
}

// The n-th of all cases of a table.
golden::hostile_case any_case(const golden::hostile_table& table, std::size_t n,
                              const golden::hostile_table::rewriter& rewrite = {}) {
  if (n < table.values()) return table.value(n, rewrite);
  n -= table.values();
  return n < table.lengths() ? table.length(n, rewrite) : table.truncation(n - table.lengths(), rewrite);
}
std::size_t all_cases(const golden::hostile_table& table) {
  return table.values() + table.lengths() + table.truncations();
}

void judge_server(raw_peer& peer, const golden::hostile_case& thrown,
                  const golden::server_expectation& expected, hostile_report& report) {
  for (const auto& [id, reply] : expected.replies) {
    const std::string frame = peer.next_frame();
    // What a reset overtook is lost.
    if (frame.empty() && expected.closes) break;
    std::int64_t got_id = 0;
    golden::reply got;
    if (!golden::read_reply(frame, got_id, got) || got_id != id || got != reply)
      return report.wrong(thrown.describe() + ": expected " + golden::to_string(reply) + ", got " +
                          golden::to_string(got));
  }
  if (!peer.next_frame().empty()) return report.wrong(thrown.describe() + ": an answer too many");
  report.count(expected.closes ? "closed" : expected.owes ? "rest dropped" : "answered or ignored");
}

}  // namespace

TEST_CASE("hostile tcp: a sample of spoilt requests to a server") {
  const google::protobuf::LogSilencer no_complaints;
  const auto recording = golden::load(GOLDEN_FRAMES_FILE);
  const auto table = golden::hostile_table::of(recording, true);
  braid::runtime rt(quiet());
  braid::server server(rt);
  server.handle(&golden::EchoService::Echo,
                [](braid::server_call& call, const EchoRequest& q, EchoResponse& r, braid::yield_context) {
                  server_test::echo_service::answer(call, q, r);
                });
  server.start("127.0.0.1:0");
  auto other = raw_peer::connect(server.port());
  hostile_report report("tcp, server");
  std::size_t count = 0;
  for (std::size_t n = 0; n < all_cases(table); n += stride, ++count) {
    const auto thrown = any_case(table, n);
    const std::string stream = thrown.bytes + server_test::echo(424242, "next");
    auto peer = raw_peer::connect(server.port());
    peer.send_what_is_taken(stream);
    peer.end_sending();
    judge_server(peer, thrown, golden::expect_of_server(stream, golden::decode_formats(max_body), max_body),
                 report);
    if (count % 16 == 0) {
      other.send(server_test::echo(1, "witness"));
      if (server_test::answers_in(other.next_frame()).at(0).message() != "witness")
        report.wrong("another connection came to harm");
    }
  }
  CHECK(report.print() == count);
  CHECK(server.stop().empty());
}

TEST_CASE("hostile tcp: a sample of spoilt answers to a client") {
  const google::protobuf::LogSilencer no_complaints;
  const auto recording = golden::load(GOLDEN_FRAMES_FILE);
  const auto table = golden::hostile_table::of(recording, false);
  braid::runtime rt(quiet());
  raw_listener listener;
  hostile_report report("tcp, client");
  std::size_t count = 0;
  const auto id_of = [](const std::string& frame) {
    return golden::frame_model(frame, frame.size(), frame.size()).events.at(0).meta.correlation_id();
  };
  for (std::size_t n = 0; n < all_cases(table); n += stride, ++count) {
    braid::channel channel(rt);
    channel.init("127.0.0.1:" + std::to_string(listener.port()),
                 {.timeout = -1ms, .connection_group = std::to_string(count)});
    controller control;
    EchoResponse response;
    const EchoRequest asked = request();
    auto ended = channel.async_call(echo(), control, asked, response, boost::asio::use_future);
    auto peer = listener.accept();
    const std::int64_t id = id_of(peer.next_frame());
    const auto thrown =
        any_case(table, n, [&](const golden::chunk& sound) { return golden::with_id(sound.bytes, id); });
    const auto expected =
        golden::expect_of_client(thrown.bytes, {id}, golden::decode_formats(max_body), max_body);
    peer.send_what_is_taken(thrown.bytes);
    peer.end_sending();
    int code = 0;
    try {
      get(std::move(ended));
    } catch (const boost::system::system_error& failed) {
      code = braid::to_wire(failed.code());
    }
    const auto due = expected.ended.find(id);
    const int expected_code = due == expected.ended.end() ? 1014 : due->second.code;
    if (code != expected_code || (code == 0 && response.message() != due->second.message)) {
      report.wrong(thrown.describe() + ": expected " + std::to_string(expected_code) + ", got " +
                   std::to_string(code));
    } else {
      report.count_code(code);
    }
  }
  CHECK(report.print() == count);
}
