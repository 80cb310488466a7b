// Every recorded answer, spoilt in every way of the table, given to clients over the memory network. What
// becomes of their calls is held against protobuf's parser and the contract.
#include "golden/frame_model.hpp"
#include "unit/call_fixture.hpp"
#include "unit/hostile_floods.hpp"
#include "unit/hostile_judge.hpp"
#include "unit/hostile_run.hpp"
#include "unit/live_memory.hpp"

#include <catch2/catch.hpp>
#include <google/protobuf/stubs/logging.h>

#include <array>
#include <deque>

namespace {

using namespace call_fixture;
using namespace hostile;
using golden::spoiling;
namespace net = braid::net;

// Of a call whose answer does not come.
int code_of(ending end) { return end == ending::reset ? 104 : end == ending::silence ? 1008 : 1014; }

std::string good_answer(std::int64_t id) { return answer(id, echoed("good")); }

// What is sent after a case: nothing where the point is that the rest never comes.
std::string follow_up(const golden::hostile_case& thrown, std::int64_t id) {
  return thrown.kind == 't' ? std::string() : good_answer(id);
}

// The server's end of a connection: finds the ids of the calls, and answers probes.
class far_end : public net::transport_events {
 public:
  explicit far_end(std::unique_ptr<net::transport> accepted) : stream_(std::move(accepted)) {
    stream_->start(*this);
  }
  void send(std::string_view bytes) {
    const iovec piece{const_cast<char*>(bytes.data()), bytes.size()};
    error_code ec;
    if (!bytes.empty()) stream_->write_some(std::span(&piece, 1), ec);
  }
  void end_sending() { stream_->shutdown_send(); }
  void close(bool reset) {
    left_ = true;
    stream_->close(reset);
  }
  bool closed_by_client() const { return closed_; }
  bool over() const { return closed_ || left_; }

  std::size_t lane = 0;
  std::array<std::int64_t, 2> ids{};
  std::function<void(far_end&)> on_first;

 private:
  std::span<char> read_space() override { return space_; }
  void on_read(std::size_t size) override {
    if (size == 0) closed_ = true;
    unread_.append(space_, size);
    std::string_view left = unread_;
    for (std::string_view each = golden::cut_frame(left); !each.empty(); each = golden::cut_frame(left))
      request(each);
    unread_.erase(0, unread_.size() - left.size());
  }
  void on_writable() override {}
  void on_broken(const error_code&) override { closed_ = true; }

  void request(std::string_view frame) {
    const golden::frame_model model(frame, frame.size(), frame.size());
    EchoRequest message;
    message.ParseFromString(std::string(model.events.at(0).payload));
    const std::int64_t id = model.events[0].meta.correlation_id();
    lane = static_cast<std::size_t>(message.sleep_ms());
    if (message.message() == "probe") return send(good_answer(id));
    ids.at(message.message() == "first" ? 0 : 1) = id;
    on_first(*this);
  }

  std::unique_ptr<net::transport> stream_;
  std::string unread_;
  bool closed_ = false;
  bool left_ = false;
  char space_[1024];
};

// Many clients, each with a connection of its own to a server that says what the table wants.
class range : net::accept_events {
 public:
  range(std::size_t lanes, std::chrono::nanoseconds timeout) : far_(quiet()), near_(quiet()) {
    far_home().post([this] {
      error_code ec;
      listening_ =
          far_.core()->outside().network->listen(far_home(), braid::endpoint::parse(address).value(), {}, ec);
      listening_->start(*this);
    });
    for (std::size_t i = 0; i <= lanes; ++i) {
      lanes_.emplace_back(near_).channel->init(
          address, {.timeout = timeout, .connection_group = "lane " + std::to_string(i)});
    }
  }
  ~range() {
    on_far([this] {
      ends_.clear();
      listening_.reset();
    });
  }

  std::size_t width() const { return lanes_.size() - 1; }  // the last one is the witness

  // Throws each case at a client while two calls wait: the case answers the first, and a good answer to the
  // second follows. Where something is still awaited then, the server ends as told.
  void fire(const hostile_part& part, std::size_t begin, std::size_t count, ending end,
            hostile_report& report) {
    start(0, count, 0, "first");
    start(0, count, 1, "second");
    std::vector<golden::hostile_case> cases;
    std::vector<golden::client_expectation> expected;
    for (std::size_t i = 0; i < count; ++i) {
      const auto ids = lanes_[i].far->ids;
      cases.push_back(part.make(
          begin + i, [&](const golden::chunk& sound) { return golden::with_id(sound.bytes, ids[0]); }));
      expected.push_back(expect_of_client(cases[i].bytes + follow_up(cases[i], ids[1]), {ids[0], ids[1]}));
    }
    send(cases);
    for (std::size_t i = 0; i < count; ++i) judge(lanes_[i], cases[i], expected[i], report);
    finish(expected, cases, end, report);
    probe(cases, report);
    on_far([this] { std::erase_if(ends_, [](const auto& each) { return each->over(); }); });
  }

  void check_nothing_is_left(hostile_report& report) {
    for (const lane& each : lanes_)
      for (const auto& call : each.calls)
        if (call.started && !call.done()) report.wrong("a call hangs");
    for (lane& each : lanes_) each.channel.reset();
    sim_.run_for(1ms);
    const std::size_t left = sim_.network().connections(braid::endpoint::parse(address).value());
    if (left > ends_.size()) report.wrong("connections are left: " + std::to_string(left));
  }

 private:
  struct one_call : started_call {
    bool started = false;
  };
  struct lane {
    explicit lane(braid::runtime& on) : channel(std::in_place, on) {}
    std::optional<braid::channel> channel;
    std::array<one_call, 3> calls;
    far_end* far = nullptr;
  };

  braid::runtime_options quiet() {
    auto options = sim_.node_options();
    options.log = [](braid::log_level, std::string_view, std::span<const braid::log_field>) {};
    return options;
  }
  braid::core::loop& far_home() { return far_.core()->home(); }
  template <typename Function>
  void on_far(Function function) {
    far_home().post(function);
    sim_.run_for(0s);
  }

  braid::core::loop& next_loop() override { return far_home(); }
  void on_accepted(braid::core::loop&, std::unique_ptr<net::transport> accepted) override {
    auto& made = ends_.emplace_back(std::make_unique<far_end>(std::move(accepted)));
    made->on_first = [this](far_end& heard) { lanes_.at(heard.lane).far = &heard; };
  }
  void on_accept_failed(const error_code&) override {}

  void start(std::size_t begin, std::size_t end, std::size_t which, const char* text) {
    near_.core()->home().post([&, begin, end, which] {
      for (std::size_t i = begin; i < end; ++i) {
        one_call& call = lanes_[i].calls[which];
        call.control.Reset();
        call.started = true;
        call.completions = 0;
        call.message.set_message(text);
        call.message.set_sleep_ms(static_cast<int>(i));  // tells the far end which lane it is
        lanes_[i].channel->async_call(echo(), call.control, call.message, call.response,
                                      [&call](error_code ec) {
                                        ++call.completions;
                                        call.ec = ec;
                                      });
      }
    });
    sim_.run_for(0s);
  }

  void send(const std::vector<golden::hostile_case>& cases) {
    const auto behind = [&](std::size_t i) { return follow_up(cases[i], lanes_[i].far->ids[1]); };
    on_far([&] {
      // Together or one after the other.
      for (std::size_t i = 0; i < cases.size(); ++i)
        lanes_[i].far->send(i % 2 == 0 ? cases[i].bytes + behind(i) : cases[i].bytes);
    });
    on_far([&] {
      for (std::size_t i = 1; i < cases.size(); i += 2) lanes_[i].far->send(behind(i));
    });
  }

  static golden::reply outcome_of(const one_call& call) {
    return hostile::outcome_of(call.ec, call.control, call.response);
  }

  static void judge(const lane& at, const golden::hostile_case& thrown,
                    const golden::client_expectation& expected, hostile_report& report) {
    const auto wrong = [&](const std::string& what) { report.wrong(thrown.describe() + ": " + what); };
    for (std::size_t which = 0; which < 2; ++which) {
      const one_call& call = at.calls[which];
      const auto due = expected.ended.find(at.far->ids[which]);
      const std::string name = which == 0 ? "the call " : "the other call ";
      if (call.completions > 1) return wrong(name + "ended twice");
      if (call.done() != (due != expected.ended.end()))
        return wrong(name + (call.done() ? "ended: " + golden::to_string(outcome_of(call)) : "hangs"));
      if (call.done() && outcome_of(call) != due->second) {
        return wrong(name + "should end with " + golden::to_string(due->second) + ", not " +
                     golden::to_string(outcome_of(call)));
      }
    }
    if (at.far->closed_by_client() != expected.closes)
      return wrong(expected.closes ? "the connection should be closed" : "the connection should live");
    count(report, expected, at.far->ids[0]);
  }

  // Where something is still awaited, the server goes, or says nothing for longer than any limit.
  void finish(const std::vector<golden::client_expectation>& expected,
              const std::vector<golden::hostile_case>& cases, ending end, hostile_report& report) {
    const auto goes = [&](std::size_t i) {
      return !expected[i].closes && (expected[i].owes || expected[i].ended.size() < 2);
    };
    on_far([&] {
      for (std::size_t i = 0; i < expected.size(); ++i) {
        if (!goes(i) || end == ending::silence) continue;
        if (end == ending::half_close) lanes_[i].far->end_sending();
        if (end != ending::half_close) lanes_[i].far->close(end == ending::reset);
      }
    });
    if (end == ending::silence) sim_.run_for(11s);  // over the default of progress_timeout
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const auto wrong = [&](const std::string& what) { report.wrong(cases[i].describe() + ": " + what); };
      for (std::size_t which = 0; which < 2; ++which) {
        const one_call& call = lanes_[i].calls[which];
        if (expected[i].ended.contains(lanes_[i].far->ids[which])) continue;
        if (!call.done() || braid::to_wire(call.ec) != code_of(end))
          wrong("ended with " + golden::to_string(outcome_of(call)) + " when the server had ended");
      }
      const bool gives_up = expected[i].closes || (end == ending::half_close && goes(i)) ||
                            (end == ending::silence && expected[i].owes);
      const bool left = (end == ending::close || end == ending::reset) && goes(i);
      if (!left && lanes_[i].far->closed_by_client() != gives_up)
        wrong(gives_up ? "the client keeps the connection" : "the client gives the connection up");
    }
  }

  // The next call, on a connection that lives or a new one; and that of a client to which nothing was sent.
  void probe(const std::vector<golden::hostile_case>& cases, hostile_report& report) {
    const auto works = [this](std::size_t i) {
      const one_call& call = lanes_[i].calls[2];
      return call.done() && !call.control.Failed();
    };
    start(0, cases.size(), 2, "probe");
    start(width(), lanes_.size(), 2, "probe");
    for (std::size_t i = 0; i < cases.size(); ++i)
      if (!works(i))
        report.wrong(cases[i].describe() + ": the next call ended with " +
                     golden::to_string(outcome_of(lanes_[i].calls[2])));
    if (!works(width())) report.wrong("another connection came to harm");
  }

  const google::protobuf::LogSilencer no_complaints_;
  simulation sim_{11, braid::testing::loop_order::fixed};
  std::deque<lane> lanes_;
  std::vector<std::unique_ptr<far_end>> ends_;
  std::unique_ptr<net::listener> listening_;
  braid::runtime far_;
  braid::runtime near_;  // goes first
};

void try_all(const std::vector<hostile_part>& parts, const std::vector<ending>& endings,
             hostile_report& report) {
  std::size_t cases = 0;
  for (const ending end : endings) {
    range on(256, end == ending::silence ? 100ms : -1ms);
    cases += run_bounded(on, parts, end, report);
    on.check_nothing_is_left(report);
  }
  CHECK(report.print() == cases);
}

}  // namespace

TEST_CASE("hostile client: every value of every byte of every recorded answer") {
  const auto recording = golden::load(GOLDEN_FRAMES_FILE);
  const auto table = golden::hostile_table::of(recording, false);
  hostile_report report("client, values");
  try_all({{table, spoiling::values, memory_stride}}, {ending::close}, report);
  CHECK(table.size(spoiling::values) > 200'000);
}

TEST_CASE(
    "hostile client: every recorded answer cut before every byte, then half-closed, closed, reset or "
    "silent") {
  const auto recording = golden::load(GOLDEN_FRAMES_FILE);
  const auto table = golden::hostile_table::of(recording, false);
  hostile_report report("client, truncations");
  try_all({{table, spoiling::truncations}},
          {ending::half_close, ending::close, ending::reset, ending::silence}, report);
}

TEST_CASE("hostile client: every recorded answer with lengths that lie") {
  const auto recording = golden::load(GOLDEN_FRAMES_FILE);
  const auto table = golden::hostile_table::of(recording, false);
  hostile_report report("client, lengths");
  try_all({{table, spoiling::lengths}}, {ending::half_close, ending::close, ending::reset, ending::silence},
          report);
}

TEST_CASE("hostile client: every value of every byte of frames of the cancel extension") {
  const auto frames = golden::extension_frames();
  const auto table = golden::hostile_table::of(frames, false);
  hostile_report report("client, cancel extension, values");
  try_all({{table, spoiling::values, memory_stride}}, {ending::close}, report);
}

TEST_CASE("hostile client: frames of the cancel extension cut before every byte, and with lengths that lie") {
  const auto frames = golden::extension_frames();
  const auto table = golden::hostile_table::of(frames, false);
  hostile_report report("client, cancel extension, truncations and lengths");
  try_all({{table, spoiling::truncations}, {table, spoiling::lengths}},
          {ending::half_close, ending::close, ending::reset, ending::silence}, report);
}

TEST_CASE(
    "hostile client: floods of frames that nobody waits for are dropped, and the call behind them works") {
  for (const flood& each : floods_of_client()) {
    CAPTURE(each.name);
    simulation sim(3);
    std::int64_t id = 0;
    sim.network().set_default({.window = 4'000'000});  // for a burst at once
    scripted_server server(sim, [&](const seen_request& seen) { id = seen.id; });
    client_node client(sim, {.timeout = -1ms, .max_body_size = flooded_max_body});
    started_call call;
    client.start(call);
    const std::string burst = each.times(1000);
    server.send(burst);
    sim.run_for(1ms);
    const test_memory::watch memory;
    for (int i = 0; i < 99; ++i) {
      server.send(burst);
      sim.run_for(1ms);
    }
    CHECK(memory.most() < 1'000'000 + 4 * burst.size());
    CHECK(client.late_answers() == (each.answered ? 100'000 : 0));
    CHECK_FALSE(call.done());
    server.send(answer(id, echoed()));
    CHECK(client.finish(call));
    CHECK_FALSE(call.ec);
  }
}
