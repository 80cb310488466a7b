// Every recorded answer, spoilt in every way of the table, given to clients over the memory network. What
// becomes of their calls is held against protobuf's parser and the contract.
#include "golden/frame_model.hpp"
#include "golden/hostile_cases.hpp"
#include "golden/hostile_oracle.hpp"
#include "unit/call_fixture.hpp"
#include "unit/hostile_report.hpp"
#include "unit/live_memory.hpp"

#include <catch2/catch.hpp>
#include <google/protobuf/stubs/logging.h>

#include <array>
#include <deque>

namespace {

using namespace call_fixture;
namespace net = braid::net;

constexpr std::size_t max_body = std::size_t{64} * 1024 * 1024;

enum class ending { end_of_file, reset, silence };

int code_of(ending end) { return end == ending::end_of_file ? 1014 : end == ending::reset ? 104 : 1008; }

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
  void close(bool reset) { stream_->close(reset); }
  bool closed_by_client() const { return closed_; }

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

  using make_case =
      std::function<golden::hostile_case(std::size_t n, const golden::hostile_table::rewriter&)>;

  // Throws the cases [begin, begin + count) at a client each, while two calls wait: the case answers the
  // first, and a good answer to the second follows.
  void fire(std::size_t begin, std::size_t count, const make_case& make, ending end, hostile_report& report) {
    start(count, 0, "first");
    start(count, 1, "second");
    std::vector<golden::hostile_case> cases;
    std::vector<golden::client_expectation> expected;
    for (std::size_t i = 0; i < count; ++i) {
      const auto ids = lanes_[i].far->ids;
      cases.push_back(
          make(begin + i, [&](const golden::chunk& sound) { return golden::with_id(sound.bytes, ids[0]); }));
      const std::string follows = follow_up(cases[i], ids[1]);
      expected.push_back(golden::expect_of_client(cases[i].bytes + follows, {ids[0], ids[1]},
                                                  golden::decode_formats(max_body), max_body));
    }
    on_far([&] {
      for (std::size_t i = 0; i < count; ++i) {
        // Together or one after the other.
        lanes_[i].far->send(i % 2 == 0 ? cases[i].bytes + follow_up(cases[i], lanes_[i].far->ids[1])
                                       : cases[i].bytes);
      }
    });
    on_far([&] {
      for (std::size_t i = 1; i < count; i += 2)
        lanes_[i].far->send(follow_up(cases[i], lanes_[i].far->ids[1]));
    });
    for (std::size_t i = 0; i < count; ++i) judge(lanes_[i], cases[i], expected[i], report);
    finish(expected, cases, end, report);
    probe(cases, report);
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

  void start(std::size_t count, std::size_t which, const char* text) {
    near_.core()->home().post([&, which, count] {
      for (std::size_t i = 0; i < count; ++i) {
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

  static golden::reply outcome_of(const one_call& call) {
    golden::reply got;
    got.code = braid::to_wire(call.ec);
    if (got.code != 0) return got;
    got.message = call.response.message();
    got.attachment = call.control.response_attachment().to_string();
    for (const auto& [key, value] : call.control.response_metadata().user_fields)
      got.user_fields.emplace(key, value);
    return got;
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
    if (expected.closes) return report.count("connection closed, all 2002");
    const auto due = expected.ended.find(at.far->ids[0]);
    if (due == expected.ended.end()) return report.count(expected.owes ? "rest awaited" : "ignored");
    report.count_code(due->second.code);
  }

  // Where something is still awaited, the server goes.
  void finish(const std::vector<golden::client_expectation>& expected,
              const std::vector<golden::hostile_case>& cases, ending end, hostile_report& report) {
    const auto goes = [&](std::size_t i) {
      return !expected[i].closes && (expected[i].owes || expected[i].ended.size() < 2);
    };
    if (end == ending::silence) sim_.run_for(200ms);
    on_far([&] {
      for (std::size_t i = 0; i < expected.size(); ++i)
        if (goes(i)) lanes_[i].far->close(end == ending::reset);
    });
    for (std::size_t i = 0; i < expected.size(); ++i) {
      for (std::size_t which = 0; which < 2; ++which) {
        const one_call& call = lanes_[i].calls[which];
        if (expected[i].ended.contains(lanes_[i].far->ids[which])) continue;
        if (!call.done() || braid::to_wire(call.ec) != code_of(end))
          report.wrong(cases[i].describe() + ": ended with " + golden::to_string(outcome_of(call)) +
                       " when the server was gone");
      }
    }
    on_far([&] {
      std::erase_if(ends_, [&](const auto& each) {
        return each->closed_by_client() || (each->lane < expected.size() && goes(each->lane));
      });
    });
  }

  // The next call, on a connection that lives or a new one; and that of a client to which nothing was sent.
  void probe(const std::vector<golden::hostile_case>& cases, hostile_report& report) {
    start(cases.size(), 2, "probe");
    one_call& witness = lanes_.back().calls[2];
    near_.core()->home().post([&] {
      witness.completions = 0;
      witness.started = true;
      witness.message.set_message("probe");
      witness.message.set_sleep_ms(static_cast<int>(width()));
      lanes_.back().channel->async_call(echo(), witness.control, witness.message, witness.response,
                                        [&](error_code) { ++witness.completions; });
    });
    sim_.run_for(0s);
    for (std::size_t i = 0; i < cases.size(); ++i) {
      const one_call& call = lanes_[i].calls[2];
      if (!call.done() || call.control.Failed())
        report.wrong(cases[i].describe() + ": the next call ended with " +
                     golden::to_string(outcome_of(call)));
    }
    if (!witness.done() || witness.control.Failed()) report.wrong("another connection came to harm");
  }

  const google::protobuf::LogSilencer no_complaints_;
  simulation sim_{11, braid::testing::loop_order::fixed};
  std::deque<lane> lanes_;
  std::vector<std::unique_ptr<far_end>> ends_;
  std::unique_ptr<net::listener> listening_;
  braid::runtime far_;
  braid::runtime near_;  // goes first
};

void run_table(range& on, std::size_t count, ending end, hostile_report& report,
               const range::make_case& make) {
  for (std::size_t n = 0; n < count; n += on.width())
    on.fire(n, std::min(on.width(), count - n), make, end, report);
}

}  // namespace

TEST_CASE("hostile client: every value of every byte of every recorded answer") {
  const auto recording = golden::load(GOLDEN_FRAMES_FILE);
  const auto table = golden::hostile_table::of(recording, false);
  range on(256, -1ms);
  const range::make_case make = [&](std::size_t n, const auto& with_id) { return table.value(n, with_id); };
  hostile_report warm("");
  run_table(on, 20'000, ending::end_of_file, warm, make);
  const std::size_t before = test_memory::live();
  hostile_report report("client, values");
  run_table(on, table.values(), ending::end_of_file, report, make);
  CHECK(test_memory::live() < before + 500'000);
  on.check_nothing_is_left(report);
  CHECK(report.print() == table.values());
  CHECK(table.values() > 200'000);
}

TEST_CASE("hostile client: every recorded answer cut before every byte, then closed, reset or silent") {
  const auto recording = golden::load(GOLDEN_FRAMES_FILE);
  const auto table = golden::hostile_table::of(recording, false);
  hostile_report report("client, truncations");
  for (const ending end : {ending::end_of_file, ending::reset, ending::silence}) {
    range on(256, end == ending::silence ? 100ms : -1ms);
    run_table(on, table.truncations(), end, report,
              [&](std::size_t n, const auto& with_id) { return table.truncation(n, with_id); });
    on.check_nothing_is_left(report);
  }
  CHECK(report.print() == 3 * table.truncations());
}

TEST_CASE("hostile client: every recorded answer with lengths that lie") {
  const auto recording = golden::load(GOLDEN_FRAMES_FILE);
  const auto table = golden::hostile_table::of(recording, false);
  range on(256, -1ms);
  hostile_report report("client, lengths");
  for (const ending end : {ending::end_of_file, ending::reset})
    run_table(on, table.lengths(), end, report,
              [&](std::size_t n, const auto& with_id) { return table.length(n, with_id); });
  on.check_nothing_is_left(report);
  CHECK(report.print() == 2 * table.lengths());
}

TEST_CASE(
    "hostile client: frames of the cancel extension, with every value of every byte, cut and with lies") {
  const auto frames = golden::extension_frames();
  const auto table = golden::hostile_table::of(frames, false);
  range on(256, -1ms);
  hostile_report report("client, cancel extension");
  const ending end = ending::end_of_file;
  run_table(on, table.values(), end, report,
            [&](std::size_t n, const auto& with_id) { return table.value(n, with_id); });
  run_table(on, table.truncations(), end, report,
            [&](std::size_t n, const auto& with_id) { return table.truncation(n, with_id); });
  run_table(on, table.lengths(), end, report,
            [&](std::size_t n, const auto& with_id) { return table.length(n, with_id); });
  on.check_nothing_is_left(report);
  CHECK(report.print() == table.values() + table.truncations() + table.lengths());
}

TEST_CASE("hostile client: a flood of answers that nobody waits for is dropped and counted") {
  simulation sim(3);
  std::int64_t id = 0;
  scripted_server server(sim, [&](const seen_request& seen) { id = seen.id; });
  client_node client(sim, {.timeout = -1ms});
  started_call call;
  client.start(call);
  std::string burst;
  for (int i = 0; i < 1000; ++i) burst += answer(i + (std::int64_t{5} << 32), echoed());
  server.send(burst);
  sim.run_for(1ms);
  const std::size_t before = test_memory::live();
  test_memory::restart_peak();
  for (int i = 0; i < 99; ++i) {
    server.send(burst);
    sim.run_for(1ms);
  }
  CHECK(test_memory::peak() < before + 1'000'000);
  CHECK(client.late_answers() == 100'000);
  CHECK_FALSE(call.done());
  server.send(answer(id, echoed()));
  CHECK(client.finish(call));
  CHECK_FALSE(call.ec);
}
