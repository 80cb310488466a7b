// Every recorded request, spoilt in every way of the table, thrown at a server over the memory network. What
// comes back is held against protobuf's parser and the contract.
#include <braid/authenticator.hpp>

#include "golden/frame_model.hpp"
#include "golden/hostile_cases.hpp"
#include "golden/hostile_oracle.hpp"
#include "unit/hostile_report.hpp"
#include "unit/live_memory.hpp"
#include "unit/server_world.hpp"

#include <google/protobuf/stubs/logging.h>

#include <deque>

using namespace server_test;

namespace {

constexpr std::size_t max_body = std::size_t{64} * 1024 * 1024;
constexpr std::int64_t probe_id = 424242;

// One client of the server, which sends one case at a time.
class lane : net::connect_events, net::transport_events {
 public:
  lane(braid::core::loop& home, const braid::endpoint& to) : home_(home), to_(to) {}

  // On the loop: makes a connection where there is none.
  void connect() {
    if (stream_ || attempt_) return;
    received.clear();
    ended = broken = false;
    attempt_ = net::network_of(home_).connect(home_, to_, {}, *this);
  }
  void send(std::string_view bytes) {
    const iovec piece{const_cast<char*>(bytes.data()), bytes.size()};
    error_code ec;
    if (stream_ && !bytes.empty()) stream_->write_some(std::span(&piece, 1), ec);
  }
  void end_sending() { stream_->shutdown_send(); }
  void close(bool reset) {
    if (stream_) stream_->close(reset);
    stream_.reset();
  }
  bool connected() const { return stream_ != nullptr; }
  bool closed() const { return ended || broken; }

  std::string received;
  bool ended = false;
  bool broken = false;
  golden::connection_past past;

 private:
  void on_connected(std::unique_ptr<net::transport> connected) override {
    attempt_.reset();
    stream_ = std::move(connected);
    stream_->start(*this);
  }
  void on_connect_failed(const error_code&) override { attempt_.reset(); }
  std::span<char> read_space() override { return space_; }
  void on_read(std::size_t size) override {
    received.append(space_, size);
    ended = ended || size == 0;
  }
  void on_writable() override {}
  void on_broken(const error_code&) override { broken = true; }

  braid::core::loop& home_;
  const braid::endpoint to_;
  std::unique_ptr<net::connecting> attempt_;
  std::unique_ptr<net::transport> stream_;
  char space_[2048];
};

enum class ending { stay, half_close, reset, silence };

// A server and many clients, all of them busy at once.
class range {
 public:
  /// \param token what the server's authenticator takes; empty: it has none.
  explicit range(std::size_t lanes, const std::string& token = {}) : w(options(token)), token_(token) {
    w.log.keep = false;
    w.srv->handle(&EchoService::Echo, [](server_call& call, const EchoRequest& q, EchoResponse& r,
                                         yield_context) { echo_service::answer(call, q, r); });
    w.srv->start("10.0.0.1:80");
    auto& home = w.client_side->core()->home();
    for (std::size_t i = 0; i < lanes; ++i) lanes_.emplace_back(home, w.at);
    witness_.emplace(home, w.at);
  }
  ~range() {
    on_loop([this] {
      for (lane& each : lanes_) each.close(true);
      witness_->close(true);
    });
  }

  std::size_t width() const { return lanes_.size(); }

  // Sends each case on a lane of its own, and after it a sound request, and judges.
  void fire(const std::vector<golden::hostile_case>& cases, ending end, hostile_report& report) {
    on_loop([&] {
      for (std::size_t i = 0; i < cases.size(); ++i) {
        if (!lanes_[i].connected()) lanes_[i].past = {.token = token_};
        lanes_[i].connect();
      }
      if (token_.empty()) witness_->connect();
    });
    for (lane& each : lanes_) each.received.clear();
    witness_->received.clear();
    const std::string probe = end == ending::stay ? echo(probe_id, "next") : std::string();
    on_loop([&] {
      for (std::size_t i = 0; i < cases.size(); ++i) {
        // Together or one after the other.
        lanes_[i].send(together(i) ? cases[i].bytes + probe : cases[i].bytes);
      }
      witness_->send(echo(++witnessed_, "witness"));
    });
    on_loop([&] {
      for (std::size_t i = 0; i < cases.size(); ++i)
        if (!together(i)) lanes_[i].send(probe);
    });
    std::vector<golden::server_expectation> expected;
    for (std::size_t i = 0; i < cases.size(); ++i) {
      expected.push_back(golden::expect_of_server(cases[i].bytes + probe, golden::decode_formats(max_body),
                                                  max_body, lanes_[i].past));
      lanes_[i].past = expected[i].past;
    }
    if (end != ending::stay) finish(cases.size(), end);
    for (std::size_t i = 0; i < cases.size(); ++i) judge(lanes_[i], cases[i], expected[i], end, report);
    judge_witness(report);
    on_loop([&] {
      for (std::size_t i = 0; i < cases.size(); ++i) {
        if (end != ending::stay || expected[i].owes || lanes_[i].closed()) lanes_[i].close(i % 2 == 0);
      }
    });
  }

  void check_nothing_is_left(hostile_report& report) {
    on_loop([this] {
      for (lane& each : lanes_) each.close(true);
    });
    if (w.connections() != (token_.empty() ? 1U : 0U))
      report.wrong("connections are left: " + std::to_string(w.connections()));
    if (!w.srv->stop(within(0ms, 0ms)).empty()) report.wrong("calls are left");
  }

  world w;

 private:
  static server_options options(const std::string& token) {
    struct gate : braid::authenticator {
      explicit gate(std::string takes) : token(std::move(takes)) {}
      boost::system::result<braid::auth_context> verify_credential(std::string_view shown,
                                                                   const braid::endpoint&,
                                                                   yield_context) override {
        if (shown == token) return braid::auth_context{};
        return error_code(errc::auth_failed);
      }
      const std::string token;
    };
    server_options made;
    if (!token.empty()) made.auth = std::make_shared<gate>(token);
    return made;
  }
  // Every other case and the request after it are sent one by one; not where the first may close.
  bool together(std::size_t lane) const { return lane % 2 == 0 || !token_.empty(); }

  template <typename Function>
  void on_loop(Function function) {
    w.client_side->core()->home().post(function);
    w.sim.run_for(0s);
  }

  void finish(std::size_t count, ending end) {
    if (end == ending::silence) {
      w.sim.run_for(11s);
      return;
    }
    on_loop([&] {
      for (std::size_t i = 0; i < count; ++i) {
        if (lanes_[i].closed()) continue;
        if (end == ending::half_close) lanes_[i].end_sending();
        if (end == ending::reset) lanes_[i].close(true);
      }
    });
  }

  // The answer to the case, and not the announcement before it or the probe's.
  static int code_of_case(const golden::server_expectation& expected) {
    for (const auto& [id, reply] : expected.replies)
      if (id != probe_id && reply.code != golden::reply::announcement) return reply.code;
    return -1;
  }

  static void judge(const lane& from, const golden::hostile_case& thrown,
                    const golden::server_expectation& expected, ending end, hostile_report& report) {
    const auto wrong = [&](const std::string& what) { report.wrong(thrown.describe() + ": " + what); };
    std::string_view stream = from.received;
    std::size_t matched = 0;
    for (std::string_view each = golden::cut_frame(stream); !each.empty(); each = golden::cut_frame(stream)) {
      std::int64_t id = 0;
      golden::reply got;
      if (!golden::read_reply(each, id, got)) return wrong("the answer cannot be read");
      if (matched == expected.replies.size()) return wrong("an answer too many: " + golden::to_string(got));
      const auto& [expected_id, reply] = expected.replies[matched++];
      if (id != expected_id) return wrong("an answer to " + std::to_string(id));
      if (got != reply)
        return wrong("expected " + golden::to_string(reply) + ", got " + golden::to_string(got));
    }
    if (!stream.empty()) return wrong("half an answer");
    if (matched != expected.replies.size()) return wrong("an answer is missing");
    const bool closes =
        expected.closes || end == ending::half_close || (end == ending::silence && expected.owes);
    if (end != ending::reset && from.closed() != closes)
      return wrong(closes ? "the connection should be closed" : "the connection should live");
    if (expected.closes) return report.count("closed");
    if (expected.owes) return report.count("rest of a frame awaited");
    report.count_code(code_of_case(expected));
  }

  void judge_witness(hostile_report& report) {
    if (!token_.empty()) return;
    std::string_view stream = witness_->received;
    std::int64_t id = 0;
    golden::reply got;
    if (!golden::read_reply(golden::cut_frame(stream), id, got) || id != witnessed_ || got.code != 0)
      report.wrong("another connection came to harm");
  }

  const std::string token_;
  const google::protobuf::LogSilencer no_complaints_;
  std::deque<lane> lanes_;
  std::optional<lane> witness_;
  std::int64_t witnessed_ = 0;
};

// Runs cases [0, count) on all lanes.
template <typename Make>
void run_table(range& on, std::size_t count, ending end, hostile_report& report, Make make) {
  std::vector<golden::hostile_case> cases;
  for (std::size_t n = 0; n < count;) {
    cases.clear();
    for (; n < count && cases.size() < on.width(); ++n) cases.push_back(make(n));
    on.fire(cases, end, report);
  }
}

}  // namespace

TEST_CASE("hostile server: every value of every byte of every recorded request") {
  const auto recording = golden::load(GOLDEN_FRAMES_FILE);
  const auto table = golden::hostile_table::of(recording, true);
  range on(256);
  const auto make = [&](std::size_t n) { return table.value(n); };
  hostile_report warm("");
  run_table(on, 20'000, ending::stay, warm, make);
  const std::size_t before = test_memory::live();
  hostile_report report("server, values");
  run_table(on, table.values(), ending::stay, report, make);
  CHECK(test_memory::live() < before + 500'000);
  on.check_nothing_is_left(report);
  CHECK(report.print() == table.values());
  CHECK(table.values() > 300'000);
}

TEST_CASE(
    "hostile server: frames of the cancel extension, with every value of every byte, cut and with lies") {
  const auto frames = golden::extension_frames();
  const auto table = golden::hostile_table::of(frames, true);
  range on(256);
  hostile_report report("server, cancel extension");
  run_table(on, table.values(), ending::stay, report, [&](std::size_t n) { return table.value(n); });
  for (const ending end : {ending::stay, ending::half_close}) {
    run_table(on, table.truncations(), end, report, [&](std::size_t n) { return table.truncation(n); });
    run_table(on, table.lengths(), end, report, [&](std::size_t n) { return table.length(n); });
  }
  on.check_nothing_is_left(report);
  CHECK(report.print() == table.values() + 2 * (table.truncations() + table.lengths()));
}

TEST_CASE("hostile server: every recorded request cut before every byte, then closed, reset or silent") {
  const auto recording = golden::load(GOLDEN_FRAMES_FILE);
  const auto table = golden::hostile_table::of(recording, true);
  range on(256);
  hostile_report report("server, truncations");
  for (const ending end : {ending::half_close, ending::reset, ending::silence, ending::stay})
    run_table(on, table.truncations(), end, report, [&](std::size_t n) { return table.truncation(n); });
  on.check_nothing_is_left(report);
  CHECK(report.print() == 4 * table.truncations());
}

TEST_CASE("hostile server: every recorded request with lengths that lie") {
  const auto recording = golden::load(GOLDEN_FRAMES_FILE);
  const auto table = golden::hostile_table::of(recording, true);
  range on(256);
  hostile_report report("server, lengths");
  for (const ending end : {ending::stay, ending::half_close})
    run_table(on, table.lengths(), end, report, [&](std::size_t n) { return table.length(n); });
  on.check_nothing_is_left(report);
  CHECK(report.print() == 2 * table.lengths());
}

TEST_CASE("hostile server: with an authenticator, requests with every value of every byte") {
  auto recording = golden::load(GOLDEN_FRAMES_FILE);
  std::erase_if(recording,
                [](const golden::chunk& each) { return each.name != "auth" && each.name != "noauth"; });
  const auto table = golden::hostile_table::of(recording, true);
  range on(256, "token-123");
  hostile_report report("server, authenticator");
  run_table(on, table.values(), ending::stay, report, [&](std::size_t n) { return table.value(n); });
  run_table(on, table.lengths(), ending::stay, report, [&](std::size_t n) { return table.length(n); });
  on.check_nothing_is_left(report);
  CHECK(report.print() == table.values() + table.lengths());
}

// Floods

namespace {

struct flood {
  const char* name;
  std::string frame;
  bool answered;
};

std::vector<flood> floods() {
  auto nobody = echo_meta(1);
  nobody.request.service_name = "golden.Nobody";
  braid::wire::rpc_meta answer;
  answer.has_response = true;
  return {{"requests", echo(1, "x"), true},
          {"requests for no service", frame(nobody, ""), true},
          {"requests that cannot be read", frame(echo_meta(1), "\xff"), true},
          {"answers", frame(answer, ""), false},
          {"empty frames", golden::make_frame("", ""), false}};
}

}  // namespace

TEST_CASE("hostile server: floods of small frames by a client that reads nothing stay within their bounds") {
  constexpr std::size_t frames = 200'000;
  for (const flood& each : floods()) {
    CAPTURE(each.name);
    world w({.max_unsent_bytes = 100'000, .progress_timeout = 10s});
    w.log.keep = false;
    w.sim.network().set_default({.window = 64'000});
    w.start();
    auto other = w.connect();
    auto client = w.connect();
    client.stop_reading();
    std::string burst;
    for (int i = 0; i < 500; ++i) burst += each.frame;
    other.send(echo(1, "warm"));
    const std::size_t before = test_memory::live();
    test_memory::restart_peak();
    std::size_t sent = 0;
    for (; sent < frames && client.unsent.empty(); sent += 500) client.send(burst);
    CHECK(test_memory::peak() < before + 1'000'000);
    CHECK((sent < 10'000) == each.answered);
    other.send(echo(2, "other"));
    CHECK(other.answers().size() == 2);
    w.sim.run_for(11s);
    CHECK(w.connections() == 2);
    client.read_on();
    w.sim.run_for(1s);
    CHECK(client.closed() == each.answered);
    other.send(echo(3, "other"));
    CHECK(other.answers().size() == 3);
  }
}
