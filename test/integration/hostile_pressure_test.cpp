// Peers that send without end, hardly at all, or never read, over real sockets.
#include "integration/call_fixture.hpp"
#include "integration/hostile_fixture.hpp"
#include "integration/raw_peer.hpp"
#include "unit/call_fixture.hpp"
#include "unit/hostile_floods.hpp"
#include "unit/hostile_judge.hpp"
#include "unit/live_memory.hpp"

#include <catch2/catch.hpp>

#include <deque>
#include <future>
#include <list>
#include <memory>
#include <optional>
#include <vector>

namespace {

using namespace std::chrono_literals;
using namespace hostile;
using call_over_tcp::wait_until;
using server_test::echo;
using server_test::raw_listener;
using server_test::raw_peer;

constexpr std::size_t flood_frames = sanitized ? 20'000 : 100'000;

// A server, and a client of it that must not notice what the others do.
class served {
 public:
  served(const transport& over, braid::server_options options)
      : runtime_(quiet()), server_(runtime_, std::move(options)) {
    server_.handle(&golden::EchoService::Echo,
                   [](braid::server_call& call, const golden::EchoRequest& q, golden::EchoResponse& r,
                      braid::yield_context) { server_test::echo_service::answer(call, q, r); });
    server_.start(over.at.to_string());
    witness_.emplace(connect());
    check_witness();
  }

  // A client for whose answers the system keeps little room.
  raw_peer connect() const { return raw_peer::connect(server_.endpoints().front(), 4096); }
  void check_witness() {
    witness_->send(echo(++asked_, "witness"));
    const auto got = server_test::answers_in(witness_->next_frame());
    const bool served = got.size() == 1 && got[0].id == asked_ && got[0].code == 0;
    if (!served) FAIL("another connection came to harm");
  }
  void check_next_client() {
    witness_.emplace(connect());
    check_witness();
  }
  // Until the server takes no more, although it had so many turns, or `frames` are sent; returns the bytes.
  std::size_t flood(raw_peer& client, const hostile::flood& with, std::size_t frames, int turns = 20) {
    const std::string burst = with.times(500);
    std::size_t sent = 0;
    for (int refused = 0; refused < turns && sent < frames * with.frame.size();) {
      const std::size_t taken = client.send_now(std::string_view(burst).substr(sent % burst.size()));
      sent += taken;
      refused = taken == 0 ? refused + 1 : 0;
      if (refused != 0) check_witness();
    }
    return sent;
  }

 private:
  const google::protobuf::LogSilencer no_complaints_;
  braid::runtime runtime_;
  braid::server server_;
  std::optional<raw_peer> witness_;
  std::int64_t asked_ = 0;
};

// Ends a flood's last frame, asks once more, and reads all; returns the answers before the last one.
std::size_t drain(raw_peer& client, const std::string& frame, std::size_t sent) {
  const std::string rest =
      (sent % frame.size() == 0 ? "" : frame.substr(sent % frame.size())) + echo(probe_id, "next");
  std::string_view unsent = rest;
  for (std::size_t answers = 0;; ++answers) {
    unsent.remove_prefix(client.send_now(unsent));
    const auto got = server_test::answers_in(client.next_frame());
    if (got.size() != 1) FAIL("the server closed the connection");
    if (got[0].id != probe_id) continue;
    CHECK(got[0].message() == "next");
    return answers;
  }
}

void flood_a_server(const transport& over) {
  for (const flood& each : floods_of_server()) {
    CAPTURE(each.name);
    // No time ends a client here, also where the machine is slow.
    served s(over, {.max_body_size = flooded_max_body,
                    .max_unsent_bytes = 100'000,
                    .progress_timeout = 10min,
                    .tcp_user_timeout = 10min});
    raw_peer client = s.connect();
    const test_memory::watch memory;
    // Those that are answered fill the system's buffers, and then the server's; the others are read on. To
    // fill those of tcp takes too many small frames for a sanitizer.
    const bool fills = each.answered && !(sanitized && over.name == "tcp");
    const std::size_t frames = fills ? 1'000'000 : flood_frames;
    const std::size_t sent = s.flood(client, each, frames, fills ? 20 : 10'000);
    CHECK(memory.most() < 2'000'000);
    CHECK((sent < frames * each.frame.size()) == fills);
    s.check_witness();
    const std::size_t answers = drain(client, each.frame, sent);
    if (each.answered) CHECK(answers == (sent + each.frame.size() - 1) / each.frame.size());
    CHECK(memory.most() < 2'000'000);
  }
}

void never_read(const transport& over) {
  served s(over, {.max_unsent_bytes = 100'000, .progress_timeout = 300ms});
  const std::ptrdiff_t before = open_descriptors();
  const test_memory::watch memory;
  const flood requests{"requests", echo(1, std::string(1000, 'x')), true};
  std::deque<raw_peer> clients;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(s.connect());
    CHECK(s.flood(clients.back(), requests, flood_frames) < flood_frames * requests.frame.size());
  }
  CHECK(memory.most() < 2'000'000);
  wait_until([&] {
    s.check_witness();
    return open_descriptors() == before + 3;  // the server's ends are closed
  });
  CHECK(memory.kept() < 1'000'000);
  s.check_next_client();
}

void starve_a_server(const transport& over) {
  served s(over, {.progress_timeout = 300ms});
  const std::string request = echo(1, std::string(200'000, 'x'));
  struct slow {
    raw_peer peer;
    std::size_t sent;
  };
  const test_memory::watch memory;
  std::list<slow> clients;
  for (const std::size_t cut : {1, 4, 11, 12, 13, 40, 1000, 100'000}) {
    clients.push_back({s.connect(), cut});
    clients.back().peer.send_what_is_taken(request.substr(0, cut));
  }
  for (int i = 0; !clients.empty() && i < 6000; ++i) {
    for (slow& each : clients)
      each.sent += each.peer.send_now(std::string_view(request).substr(each.sent, 1));
    s.check_witness();
    std::erase_if(clients, [](const slow& each) { return each.peer.gone(5ms); });
  }
  CHECK(clients.empty());
  CHECK(memory.most() < 2'000'000);
  s.check_next_client();
}

}  // namespace

TEST_CASE(
    "hostile tcp: floods of small frames by clients that read nothing stay within the server's bounds") {
  flood_a_server(over_tcp());
}

TEST_CASE(
    "hostile unix: floods of small frames by clients that read nothing stay within the server's bounds") {
  flood_a_server(over_unix());
}

TEST_CASE("hostile tcp: clients that never read their answers are closed, the others are served") {
  never_read(over_tcp());
}

TEST_CASE("hostile unix: clients that never read their answers are closed, the others are served") {
  never_read(over_unix());
}

TEST_CASE("hostile tcp: clients that send a byte now and then are closed, the others are served") {
  starve_a_server(over_tcp());
}

TEST_CASE("hostile unix: clients that send a byte now and then are closed, the others are served") {
  starve_a_server(over_unix());
}

namespace {

// A client's channel, and its server's end, which the test writes.
class calling {
 public:
  calling(const transport& over, braid::channel_options options) : listener_(over.at), runtime_(quiet()) {
    options.timeout = options.connect_timeout = -1ms;
    channel_.emplace(runtime_);
    channel_->init(listener_.address().to_string(), std::move(options));
  }

  // Starts a call, on a new connection or the one that there is, and reads its request.
  void start(bool anew) {
    auto ended = std::make_shared<std::promise<braid::error_code>>();
    ended_ = ended->get_future();
    channel_->async_call(call_over_tcp::echo(), control_, asked_, response_,
                         [ended](braid::error_code ec) { ended->set_value(ec); });
    if (anew) peer.emplace(listener_.accept());
    const auto seen = server_test::answers_in(peer->next_frame());
    REQUIRE(seen.size() == 1);
    id = seen[0].id;
  }
  braid::error_code end() { return call_over_tcp::get(std::move(ended_)); }
  bool done() { return ended_.wait_for(0s) == std::future_status::ready; }
  std::string good_answer(std::size_t size = 10) const {
    return call_fixture::answer(id, call_fixture::echoed(std::string(size, 'x')));
  }

  std::optional<raw_peer> peer;
  std::int64_t id = 0;

 private:
  const google::protobuf::LogSilencer no_complaints_;
  raw_listener listener_;
  braid::controller control_;
  const golden::EchoRequest asked_ = call_over_tcp::request();
  golden::EchoResponse response_;
  std::future<braid::error_code> ended_;
  braid::runtime runtime_;
  std::optional<braid::channel> channel_;
};

void flood_a_client(const transport& over) {
  for (const flood& each : floods_of_client()) {
    CAPTURE(each.name);
    calling c(over, {.max_body_size = flooded_max_body});
    c.start(true);
    const std::string burst = each.times(500);
    c.peer->send(burst);
    const test_memory::watch memory;
    for (std::size_t sent = 500; sent < flood_frames; sent += 500) c.peer->send(burst);
    CHECK_FALSE(c.done());
    c.peer->send(c.good_answer());
    CHECK_FALSE(c.end());
    CHECK(memory.most() < 1'000'000);
    c.start(false);
    c.peer->send(c.good_answer());
    CHECK_FALSE(c.end());
  }
}

void starve_a_client(const transport& over) {
  calling c(over, {.progress_timeout = 300ms});
  for (const std::size_t cut : {1, 11, 12, 40, 100'000}) {
    CAPTURE(cut);
    c.start(true);
    const std::string whole = c.good_answer(200'000);
    c.peer->send(whole.substr(0, cut));
    std::size_t sent = cut;
    bool gone = false;
    for (int i = 0; !gone && i < 3000; ++i) {  // a minute, where it takes a third of a second
      sent += c.peer->send_now(std::string_view(whole).substr(sent, 1));
      gone = c.peer->gone(20ms);
    }
    REQUIRE(gone);
    CHECK(c.end().value() == ETIMEDOUT);
  }
  c.start(true);
  c.peer->send(c.good_answer());
  CHECK_FALSE(c.end());
}

}  // namespace

TEST_CASE("hostile tcp: floods of frames that a client does not wait for are dropped, and its calls work") {
  flood_a_client(over_tcp());
}

TEST_CASE("hostile unix: floods of frames that a client does not wait for are dropped, and its calls work") {
  flood_a_client(over_unix());
}

TEST_CASE(
    "hostile tcp: an answer that comes a byte now and then ends its call with 110, and the next works") {
  starve_a_client(over_tcp());
}

TEST_CASE(
    "hostile unix: an answer that comes a byte now and then ends its call with 110, and the next works") {
  starve_a_client(over_unix());
}
