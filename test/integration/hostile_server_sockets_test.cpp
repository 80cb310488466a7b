// The hostile tables over real sockets, thrown at a server.
#include "golden/frame_model.hpp"
#include "integration/call_fixture.hpp"
#include "integration/hostile_fixture.hpp"
#include "integration/raw_peer.hpp"
#include "unit/hostile_judge.hpp"
#include "unit/hostile_run.hpp"
#include "unit/server_fixture.hpp"

#include <catch2/catch.hpp>

#include <deque>
#include <optional>
#include <vector>

namespace {

using namespace std::chrono_literals;
using namespace hostile;
using golden::spoiling;
using server_test::raw_peer;

// A deadline that the case itself sets may come before the answer where the machine is slow.
void allow_late(const golden::hostile_case& thrown, std::string_view received,
                golden::server_expectation& expected) {
  const golden::frame_model sent(thrown.bytes, max_body, 64 * 1024);
  std::vector<std::int64_t> with_deadline;
  for (const auto& each : sent.events)
    if (each.meta.request().has_timeout_ms()) with_deadline.push_back(each.meta.correlation_id());
  for (auto& [expected_id, reply] : expected.replies) {
    std::int64_t id = 0;
    golden::reply got;
    if (golden::read_reply(golden::cut_frame(received), id, got) && id == expected_id && got.code == 1008 &&
        std::find(with_deadline.begin(), with_deadline.end(), id) != with_deadline.end())
      reply = got;
  }
}

// A server and many clients, all of them busy at once, and one more that must not notice.
class range {
 public:
  explicit range(const transport& over) : runtime_(quiet()), server_(runtime_, options()) {
    server_.handle(&golden::EchoService::Echo, [this](braid::server_call& call, const golden::EchoRequest& q,
                                                      golden::EchoResponse& r, braid::yield_context) {
      if (q.message() != "witness") ++handled_;
      server_test::echo_service::answer(call, q, r);
    });
    server_.start(over.at.to_string());
    witness_.emplace(raw_peer::connect(at()));
    ask_witness();
    hear_witness("before");
    descriptors_ = open_descriptors();
  }

  std::size_t width() const { return lanes_.size(); }
  /// Calls of the hostile clients that a handler saw.
  std::size_t handled() const { return handled_; }

  // Sends each case on a lane of its own, ends as told (`stay`: with a sound request), and judges.
  void fire(const hostile_part& part, std::size_t begin, std::size_t count, ending end,
            hostile_report& report) {
    std::vector<golden::hostile_case> cases;
    std::vector<golden::server_expectation> expected;
    for (std::size_t i = 0; i < count; ++i) {
      cases.push_back(part.make(begin + i));
      const std::string stream =
          cases[i].bytes + (end == ending::stay ? server_test::echo(probe_id, "next") : "");
      throw_at_server(lanes_[i], stream, end);
      expected.push_back(expect_of_server(stream, lanes_[i].past));
      lanes_[i].past = expected[i].past;
    }
    ask_witness();
    for (std::size_t i = 0; i < count; ++i) judge(lanes_[i], cases[i], expected[i], end, report);
    hear_witness(cases.back().describe());
  }

  // Lets all go, and waits until the server has done so too.
  void check_nothing_is_left(hostile_report& report) {
    for (lane& each : lanes_) each.peer.reset();
    call_over_tcp::wait_until([this] { return open_descriptors() <= descriptors_; });
    auto next = raw_peer::connect(at());
    next.send(server_test::echo(probe_id, "next"));
    if (server_test::answers_in(next.next_frame()).at(0).message() != "next")
      report.wrong("the next client is not served");
    if (!server_.stop().empty()) report.wrong("calls are left");
  }

 private:
  struct lane {
    std::optional<raw_peer> peer;
    golden::connection_past past;
  };

  static braid::server_options options() {
    return {.progress_timeout = 10min};  // no case waits for it
  }
  braid::endpoint at() const { return server_.endpoints().front(); }

  void throw_at_server(lane& from, std::string_view stream, ending end) {
    if (!from.peer) {
      from.peer.emplace(raw_peer::connect(at()));
      from.past = {};
    }
    from.peer->send_what_is_taken(stream);
    if (end == ending::half_close) from.peer->end_sending();
    if (end == ending::reset) from.peer->reset();
    if (end == ending::close || end == ending::reset) from.peer.reset();
  }

  static void judge(lane& from, const golden::hostile_case& thrown, golden::server_expectation& expected,
                    ending end, hostile_report& report) {
    if (!from.peer) return count(report, expected);  // it hears nothing more
    const bool to_the_end = expected.closes || end == ending::half_close;
    std::string received;
    for (std::size_t n = 0; to_the_end || n < expected.replies.size(); ++n) {
      const std::string frame = from.peer->next_frame();
      received += frame;
      if (frame.empty()) break;
    }
    received += from.peer->unread();
    // A connection that is closed while bytes of ours are unread is reset, which overtakes answers.
    while (expected.closes && golden::whole_frames(received) < expected.replies.size())
      expected.replies.pop_back();
    allow_late(thrown, received, expected);
    const std::string wrong = judge_answers(received, expected);
    if (!wrong.empty()) report.wrong(thrown.describe() + ": " + wrong);
    if (wrong.empty()) count(report, expected);
    if (to_the_end || expected.owes) {
      from.peer->reset();  // leaves no port behind that waits
      from.peer.reset();
    }
  }

  void ask_witness() { witness_->send(server_test::echo(++witnessed_, "witness")); }
  void hear_witness(const std::string& after) {
    const auto got = server_test::answers_in(witness_->next_frame());
    INFO("after " << after);
    REQUIRE(got.size() == 1);
    REQUIRE(got[0].id == witnessed_);
    REQUIRE(got[0].message() == "witness");
  }

  const google::protobuf::LogSilencer no_complaints_;
  std::atomic<std::size_t> handled_{0};
  braid::runtime runtime_;
  braid::server server_;
  std::deque<lane> lanes_{128};
  std::optional<raw_peer> witness_;
  std::int64_t witnessed_ = 0;
  std::ptrdiff_t descriptors_ = 0;
};

void try_every_value(const transport& over, std::size_t stride) {
  const auto recording = golden::load(GOLDEN_FRAMES_FILE);
  const auto table = golden::hostile_table::of(recording, true);
  range on(over);
  hostile_report report(over.name + ", server, one in " + std::to_string(stride) + " of the values");
  const std::size_t cases = run_bounded(on, {{table, spoiling::values, stride}}, ending::stay, report);
  on.check_nothing_is_left(report);
  CHECK(report.print() == cases);
}

void cut_and_lie(const transport& over) {
  const auto recording = golden::load(GOLDEN_FRAMES_FILE);
  const auto table = golden::hostile_table::of(recording, true);
  range on(over);
  std::size_t cases = 0;
  hostile_report report(over.name + ", server, truncations and lengths");
  for (const ending end : over.endings)
    cases += run_bounded(on, {{table, spoiling::truncations}}, end, report);
  CHECK(on.handled() == 0);
  cases += run_bounded(on, {{table, spoiling::lengths}}, ending::stay, report);
  for (const ending end : over.endings) cases += run_bounded(on, {{table, spoiling::lengths}}, end, report);
  on.check_nothing_is_left(report);
  CHECK(report.print() == cases);
}

}  // namespace

TEST_CASE("hostile tcp: every value of every byte of every recorded request to a server") {
  try_every_value(over_tcp(), value_stride);
}

TEST_CASE("hostile unix: a sample of the values of every byte of every recorded request to a server") {
  try_every_value(over_unix(), 17 * value_stride);
}

TEST_CASE(
    "hostile tcp: every recorded request cut before every byte, then half-closed, closed and reset, and with "
    "lengths that lie") {
  cut_and_lie(over_tcp());
}

TEST_CASE(
    "hostile unix: every recorded request cut before every byte, then half-closed and closed, and with "
    "lengths that lie") {
  cut_and_lie(over_unix());
}
