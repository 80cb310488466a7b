// Every recorded request, spoilt in every way of the table, thrown at a server over the memory network. What
// comes back is held against protobuf's parser and the contract.
#include <braid/authenticator.hpp>

#include "unit/hostile_floods.hpp"
#include "unit/hostile_judge.hpp"
#include "unit/hostile_run.hpp"
#include "unit/live_memory.hpp"
#include "unit/server_world.hpp"

#include <google/protobuf/stubs/logging.h>

#include <deque>

using namespace server_test;
using namespace hostile;
using golden::spoiling;

namespace {

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

// A server and many clients, all of them busy at once.
class range {
 public:
  /// \param token what the server's authenticator takes; empty: it has none.
  explicit range(std::size_t lanes, const std::string& token = {}) : w(options(token)), token_(token) {
    w.log.keep = false;
    w.srv->handle(&EchoService::Echo,
                  [this](server_call& call, const EchoRequest& q, EchoResponse& r, yield_context) {
                    if (q.message() != "witness") ++handled_;
                    echo_service::answer(call, q, r);
                  });
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

  // Calls of the lanes that the handler saw.
  std::size_t handled() const { return handled_; }

  // Sends each case on a lane of its own, and after it a sound request, and judges.
  void fire(const hostile_part& part, std::size_t begin, std::size_t count, ending end,
            hostile_report& report) {
    connect(count);
    std::vector<golden::hostile_case> cases;
    for (std::size_t i = 0; i < count; ++i) cases.push_back(part.make(begin + i));
    const std::string probe = end == ending::stay ? echo(probe_id, "next") : std::string();
    send(cases, probe);
    std::vector<golden::server_expectation> expected;
    for (std::size_t i = 0; i < count; ++i) {
      expected.push_back(expect_of_server(cases[i].bytes + probe, lanes_[i].past));
      lanes_[i].past = expected[i].past;
    }
    if (end != ending::stay) finish(count, end);
    for (std::size_t i = 0; i < count; ++i) judge(lanes_[i], cases[i], expected[i], end, report);
    judge_witness(report);
    on_loop([&] {
      for (std::size_t i = 0; i < count; ++i) {
        if (end != ending::stay || expected[i].owes || lanes_[i].closed()) lanes_[i].close(i % 2 == 0);
      }
    });
    if (end != ending::stay && w.connections() != witnesses())
      report.wrong("the server keeps connections that have ended, the last " + cases.back().describe());
  }

  void check_nothing_is_left(hostile_report& report) {
    on_loop([this] {
      for (lane& each : lanes_) each.close(true);
    });
    if (w.connections() != witnesses())
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
  // None beside the lanes where an authenticator would refuse it.
  std::size_t witnesses() const { return token_.empty() ? 1 : 0; }

  void connect(std::size_t count) {
    on_loop([&] {
      for (std::size_t i = 0; i < count; ++i) {
        if (!lanes_[i].connected()) lanes_[i].past = {.token = token_};
        lanes_[i].connect();
      }
      if (witnesses() != 0) witness_->connect();
    });
    for (lane& each : lanes_) each.received.clear();
    witness_->received.clear();
  }

  void send(const std::vector<golden::hostile_case>& cases, const std::string& probe) {
    on_loop([&] {
      for (std::size_t i = 0; i < cases.size(); ++i)
        lanes_[i].send(together(i) ? cases[i].bytes + probe : cases[i].bytes);
      witness_->send(echo(++witnessed_, "witness"));
    });
    on_loop([&] {
      for (std::size_t i = 0; i < cases.size(); ++i)
        if (!together(i)) lanes_[i].send(probe);
    });
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
        if (end == ending::half_close) {
          lanes_[i].end_sending();
        } else {
          lanes_[i].close(end == ending::reset);
        }
      }
    });
  }

  static void judge(const lane& from, const golden::hostile_case& thrown,
                    const golden::server_expectation& expected, ending end, hostile_report& report) {
    const auto wrong = [&](const std::string& what) { report.wrong(thrown.describe() + ": " + what); };
    if (const std::string found = judge_answers(from.received, expected); !found.empty()) return wrong(found);
    const bool left = end == ending::close || end == ending::reset;  // it sees no end then
    const bool closes =
        expected.closes || end == ending::half_close || (end == ending::silence && expected.owes);
    if (!left && from.closed() != closes)
      return wrong(closes ? "the connection should be closed" : "the connection should live");
    count(report, expected);
  }

  void judge_witness(hostile_report& report) {
    if (witnesses() == 0) return;
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
  std::size_t handled_ = 0;
};

void try_all(range& on, const std::vector<hostile_part>& parts, const std::vector<ending>& endings,
             hostile_report& report) {
  std::size_t cases = 0;
  for (const ending end : endings) cases += run_bounded(on, parts, end, report);
  on.check_nothing_is_left(report);
  CHECK(report.print() == cases);
}

}  // namespace

TEST_CASE("hostile server: every value of every byte of every recorded request") {
  const auto recording = golden::load(GOLDEN_FRAMES_FILE);
  const auto table = golden::hostile_table::of(recording, true);
  range on(256);
  hostile_report report("server, values");
  try_all(on, {{table, spoiling::values, memory_stride}}, {ending::stay}, report);
  CHECK(table.size(spoiling::values) > 300'000);
}

TEST_CASE("hostile server: every value of every byte of frames of the cancel extension") {
  const auto frames = golden::extension_frames();
  const auto table = golden::hostile_table::of(frames, true);
  range on(256);
  hostile_report report("server, cancel extension, values");
  try_all(on, {{table, spoiling::values, memory_stride}}, {ending::stay}, report);
}

TEST_CASE("hostile server: frames of the cancel extension cut before every byte, and with lengths that lie") {
  const auto frames = golden::extension_frames();
  const auto table = golden::hostile_table::of(frames, true);
  range on(256);
  hostile_report report("server, cancel extension, truncations and lengths");
  try_all(on, {{table, spoiling::truncations}, {table, spoiling::lengths}},
          {ending::stay, ending::half_close, ending::close, ending::reset, ending::silence}, report);
}

TEST_CASE(
    "hostile server: every recorded request cut before every byte, then half-closed, closed, reset or "
    "silent") {
  const auto recording = golden::load(GOLDEN_FRAMES_FILE);
  const auto table = golden::hostile_table::of(recording, true);
  range on(256);
  hostile_report report("server, truncations");
  try_all(on, {{table, spoiling::truncations}},
          {ending::half_close, ending::close, ending::reset, ending::silence}, report);
  CHECK(on.handled() == 0);
}

TEST_CASE("hostile server: every recorded request cut before every byte, and another behind it") {
  const auto recording = golden::load(GOLDEN_FRAMES_FILE);
  const auto table = golden::hostile_table::of(recording, true);
  range on(256);
  hostile_report report("server, truncations, then a request");
  try_all(on, {{table, spoiling::truncations}}, {ending::stay}, report);
}

TEST_CASE("hostile server: every recorded request with lengths that lie") {
  const auto recording = golden::load(GOLDEN_FRAMES_FILE);
  const auto table = golden::hostile_table::of(recording, true);
  range on(256);
  hostile_report report("server, lengths");
  try_all(on, {{table, spoiling::lengths}},
          {ending::stay, ending::half_close, ending::close, ending::reset, ending::silence}, report);
}

TEST_CASE("hostile server: with an authenticator, requests with every value of every byte") {
  auto recording = golden::load(GOLDEN_FRAMES_FILE);
  std::erase_if(recording,
                [](const golden::chunk& each) { return each.name != "auth" && each.name != "noauth"; });
  const auto table = golden::hostile_table::of(recording, true);
  range on(256, "token-123");
  hostile_report report("server, authenticator");
  try_all(
      on,
      {{table, spoiling::values, memory_stride}, {table, spoiling::truncations}, {table, spoiling::lengths}},
      {ending::stay}, report);
}

TEST_CASE("hostile server: floods of small frames by a client that reads nothing stay within their bounds") {
  constexpr std::size_t frames = 200'000;
  for (const flood& each : floods_of_server()) {
    CAPTURE(each.name);
    world w({.max_body_size = flooded_max_body, .max_unsent_bytes = 100'000, .progress_timeout = 10s});
    w.log.keep = false;
    w.sim.network().set_default({.window = 64'000});
    w.start();
    auto other = w.connect();
    auto client = w.connect();
    client.stop_reading();
    const std::string burst = each.times(500);
    other.send(echo(1, "warm"));
    const test_memory::watch memory;
    std::size_t sent = 0;
    for (; sent < frames && client.unsent.empty(); sent += 500) client.send(burst);
    CHECK(memory.most() < 1'000'000 + 4 * burst.size());
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
