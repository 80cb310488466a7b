// The hostile tables over real sockets, given to clients as answers.
#include "core/loop.hpp"
#include "core/runtime_core.hpp"
#include "golden/frame_model.hpp"
#include "integration/call_fixture.hpp"
#include "integration/hostile_fixture.hpp"
#include "integration/raw_peer.hpp"
#include "unit/call_fixture.hpp"
#include "unit/hostile_judge.hpp"
#include "unit/hostile_run.hpp"

#include <catch2/catch.hpp>

#include <array>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <vector>

namespace {

using namespace std::chrono_literals;
using namespace hostile;
using golden::spoiling;
using server_test::raw_listener;
using server_test::raw_peer;

enum which : std::size_t { first, second, probe };
constexpr const char* texts[] = {"first", "second", "probe"};

std::string good_answer(std::int64_t id) { return call_fixture::answer(id, call_fixture::echoed("good")); }

// What is sent after a case: nothing where the point is that the rest never comes.
std::string follow_up(const golden::hostile_case& thrown, std::int64_t id) {
  return thrown.kind == 't' ? std::string() : good_answer(id);
}

int code_of(ending end) { return end == ending::reset ? 104 : 1014; }

// Waits for a number of things that another thread counts.
class tally {
 public:
  void add() {
    const std::lock_guard lock(mutex_);
    ++count_;
    changed_.notify_one();
  }
  /// Until `count` more have been added since the last wait().
  void wait(std::size_t count) {
    std::unique_lock lock(mutex_);
    server_test::require(changed_.wait_for(lock, 60s, [&] { return count_ >= count; }));
    count_ -= count;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t count_ = 0;
};

// Clients, each with a connection of its own to a server that says what the table wants; and one more, whose
// server is good to it.
class range {
 public:
  explicit range(const transport& over) : listener_(over.at), runtime_(quiet()) {
    for (std::size_t i = 0; i < lanes_.size(); ++i) {
      lanes_[i].channel.emplace(runtime_);
      lanes_[i].channel->init(
          listener_.address().to_string(),
          {.timeout = -1ms, .connect_timeout = -1ms, .connection_group = "lane " + std::to_string(i)});
    }
    const std::ptrdiff_t without = open_descriptors();
    start(0, lanes_.size(), probe);
    serve_probes(0, lanes_.size());
    // From now on each lane has a connection: two descriptors in this process.
    if (open_descriptors() != without + 2 * static_cast<std::ptrdiff_t>(lanes_.size()))
      throw std::logic_error("the test does not count descriptors well");
    descriptors_ = without;
  }

  std::size_t width() const { return lanes_.size() - 1; }  // the last one is the witness

  // Throws each case at a client while two calls wait: the case answers the first, and a good answer to the
  // second follows. Where something is still awaited then, the server goes as told. The next call works.
  void fire(const hostile_part& part, std::size_t begin, std::size_t count, ending end,
            hostile_report& report) {
    start(0, count, first);
    start(0, count, second);
    hear(count);
    std::vector<golden::hostile_case> cases;
    std::vector<golden::client_expectation> expected;
    std::size_t due = 0;
    for (std::size_t i = 0; i < count; ++i) {
      lane& to = lanes_[i];
      cases.push_back(part.make(begin + i, [&](const golden::chunk& sound) {
        return golden::with_id(sound.bytes, to.ids[first]);
      }));
      const std::string stream = cases[i].bytes + follow_up(cases[i], to.ids[second]);
      to.peer->send_what_is_taken(stream);
      expected.push_back(expect_of_client(stream, {to.ids[first], to.ids[second]}));
      due += expected[i].ended.size();
    }
    ended_.wait(due);
    for (std::size_t i = 0; i < count; ++i) go(lanes_[i], expected[i], end);
    ended_.wait(2 * count - due);
    for (std::size_t i = 0; i < count; ++i) {
      const bool let_go = lets_go(lanes_[i], expected[i]);
      const std::string wrong = let_go ? judge(lanes_[i], expected[i], end)
                                       : "the client says something on a connection that is to be closed";
      if (wrong.empty()) hostile::count(report, expected[i], lanes_[i].ids[first]);
      if (!wrong.empty()) report.wrong(cases[i].describe() + ": " + wrong);
    }
    start(0, count, probe);
    start(width(), lanes_.size(), probe);
    serve_probes(0, count);
    serve_probes(width(), lanes_.size());
    for (std::size_t i = 0; i < count; ++i)
      if (lanes_[i].calls[probe].ec) report.wrong(cases[i].describe() + ": the next call failed");
    if (lanes_[width()].calls[probe].ec) report.wrong("another connection came to harm");
  }

  // Ends all channels, and waits until their connections are gone.
  void check_nothing_is_left() {
    for (lane& each : lanes_) {
      each.channel.reset();
      server_test::require(!each.peer->receive());
      each.peer.reset();
    }
    call_over_tcp::wait_until([this] { return open_descriptors() <= descriptors_; });
  }

 private:
  struct one_call {
    braid::controller control;
    golden::EchoRequest message;
    golden::EchoResponse response;
    braid::error_code ec;
    int completions = 0;
  };
  struct lane {
    std::optional<braid::channel> channel;
    std::array<one_call, 3> calls;
    std::optional<raw_peer> peer;
    std::array<std::int64_t, 3> ids{};
  };

  void start(std::size_t begin, std::size_t end, which of) {
    runtime_.core()->home().post([this, begin, end, of] {
      for (std::size_t i = begin; i < end; ++i) {
        one_call& call = lanes_[i].calls[of];
        call.control.Reset();
        call.completions = 0;
        call.message.set_message(texts[of]);
        call.message.set_sleep_ms(static_cast<int>(i));  // tells the far end which lane it is
        lanes_[i].channel->async_call(call_over_tcp::echo(), call.control, call.message, call.response,
                                      [this, &call](braid::error_code ec) {
                                        ++call.completions;
                                        call.ec = ec;
                                        ended_.add();
                                      });
      }
    });
  }

  // The next request of a connection; returns its lane.
  std::size_t read_request(raw_peer& from) {
    const std::string frame = from.next_frame();
    const golden::frame_model model(frame, frame.size(), frame.size());
    golden::EchoRequest message;
    message.ParseFromString(std::string(model.events.at(0).payload));
    const auto index = static_cast<std::size_t>(message.sleep_ms());
    const auto text = std::find(std::begin(texts), std::end(texts), message.message()) - std::begin(texts);
    lanes_.at(index).ids.at(static_cast<std::size_t>(text)) = model.events[0].meta.correlation_id();
    return index;
  }
  // Reads `requests` of each lane, on the connection that it has or a new one.
  void hear(std::size_t begin, std::size_t end, int requests) {
    for (std::size_t i = begin; i < end; ++i) {
      if (lanes_[i].peer) {
        for (int n = 0; n < requests; ++n) read_request(*lanes_[i].peer);
        continue;
      }
      raw_peer accepted = listener_.accept();  // not that of lane i, perhaps
      const std::size_t index = read_request(accepted);
      for (int n = 1; n < requests; ++n) read_request(accepted);
      newcomers_.emplace_back(index, std::move(accepted));
    }
    for (auto& [index, accepted] : newcomers_) lanes_[index].peer.emplace(std::move(accepted));
    newcomers_.clear();
  }
  void hear(std::size_t count) { hear(0, count, 2); }
  void serve_probes(std::size_t begin, std::size_t end) {
    hear(begin, end, 1);
    for (std::size_t i = begin; i < end; ++i) lanes_[i].peer->send(good_answer(lanes_[i].ids[probe]));
    ended_.wait(end - begin);
  }

  static void go(lane& from, const golden::client_expectation& expected, ending end) {
    const bool awaited = expected.ended.size() < 2;
    if (expected.closes || (!expected.owes && !awaited)) return;
    // Without a call that ends, the client's own end of file shows that it has noticed.
    if (end == ending::half_close || !awaited) return from.peer->end_sending();
    if (end == ending::reset) from.peer->reset();
    from.peer.reset();
  }

  // Whether the client has closed a connection that it can no longer use, if it is one.
  static bool lets_go(lane& at, const golden::client_expectation& expected) {
    if (!at.peer || (!expected.closes && !expected.owes && expected.ended.size() == 2)) return true;
    const bool closed = !at.peer->receive();
    at.peer.reset();
    return closed;
  }

  // What is wrong; empty: nothing.
  static std::string judge(const lane& at, const golden::client_expectation& expected, ending end) {
    for (const which of : {first, second}) {
      const one_call& call = at.calls[of];
      const auto due = expected.ended.find(at.ids[of]);
      const bool ended = due != expected.ended.end();
      const golden::reply got = outcome_of(call.ec, call.control, call.response);
      if (call.completions != 1) return std::string(texts[of]) + " ended twice";
      if (ended ? got != due->second : got.code != code_of(end)) {
        return std::string(texts[of]) + " should end with " +
               (ended ? golden::to_string(due->second) : std::to_string(code_of(end))) + ", not " +
               golden::to_string(got);
      }
    }
    return {};
  }

  const google::protobuf::LogSilencer no_complaints_;
  raw_listener listener_;
  std::deque<lane> lanes_{65};
  std::vector<std::pair<std::size_t, raw_peer>> newcomers_;
  tally ended_;
  std::ptrdiff_t descriptors_ = 0;
  braid::runtime runtime_;
};

void try_every_value(const transport& over, std::size_t stride) {
  const auto recording = golden::load(GOLDEN_FRAMES_FILE);
  const auto table = golden::hostile_table::of(recording, false);
  range on(over);
  hostile_report report(over.name + ", client, one in " + std::to_string(stride) + " of the values");
  const std::size_t cases = run_bounded(on, {{table, spoiling::values, stride}}, ending::half_close, report);
  on.check_nothing_is_left();
  CHECK(report.print() == cases);
}

void cut_and_lie(const transport& over) {
  const auto recording = golden::load(GOLDEN_FRAMES_FILE);
  const auto table = golden::hostile_table::of(recording, false);
  range on(over);
  std::size_t cases = 0;
  hostile_report report(over.name + ", client, truncations and lengths");
  for (const ending end : over.endings)
    cases += run_bounded(on, {{table, spoiling::truncations}, {table, spoiling::lengths}}, end, report);
  on.check_nothing_is_left();
  CHECK(report.print() == cases);
}

}  // namespace

TEST_CASE("hostile tcp: every value of every byte of every recorded answer to a client") {
  try_every_value(over_tcp(), value_stride);
}

TEST_CASE("hostile unix: a sample of the values of every byte of every recorded answer to a client") {
  try_every_value(over_unix(), 17 * value_stride);
}

TEST_CASE(
    "hostile tcp: every recorded answer cut before every byte, then half-closed, closed and reset, and with "
    "lengths that lie") {
  cut_and_lie(over_tcp());
}

TEST_CASE(
    "hostile unix: every recorded answer cut before every byte, then half-closed and closed, and with "
    "lengths that lie") {
  cut_and_lie(over_unix());
}
