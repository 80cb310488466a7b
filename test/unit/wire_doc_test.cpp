// docs/wire.md says what goes over the wire; here it is held against what does.

#include "golden/golden_frames.hpp"
#include "golden/oracle.hpp"
#include "unit/auth_fixture.hpp"
#include "unit/call_fixture.hpp"
#include "unit/server_world.hpp"
#include "wire/control_frame.hpp"

#include <catch2/catch.hpp>
#include <google/protobuf/descriptor.h>

#include <cctype>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace {

std::vector<std::string> document() {
  std::ifstream in{WIRE_DOC_FILE};
  REQUIRE(in);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// The frames of the page, by their names.
std::map<std::string, std::string> documented_frames() {
  std::map<std::string, std::string> frames;
  std::string name;
  for (const std::string& line : document()) {
    if (line.starts_with("```frame ")) {
      name = line.substr(9);
      REQUIRE(frames.emplace(name, "").second);
    } else if (line == "```") {
      name.clear();
    } else if (!name.empty()) {
      std::string digits;
      for (const char c : line.substr(0, line.find('#')))
        if (!std::isspace(static_cast<unsigned char>(c))) digits += c;
      REQUIRE(digits.size() % 2 == 0);
      frames[name] += golden::from_hex(digits);
    }
  }
  return frames;
}
const std::string& documented(const std::string& name) {
  static const auto frames = documented_frames();
  REQUIRE(frames.count(name) == 1);
  return frames.at(name);
}

std::string hex(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) {
    constexpr std::string_view digits = "0123456789abcdef";
    text += digits[static_cast<unsigned char>(c) >> 4];
    text += digits[static_cast<unsigned char>(c) & 15];
  }
  return text;
}

// The cells of a row of a table.
std::vector<std::string> cells(const std::string& line) {
  std::vector<std::string> all;
  std::istringstream in(line.substr(1));
  for (std::string cell; std::getline(in, cell, '|');) {
    const auto from = cell.find_first_not_of(' ');
    all.push_back(from == std::string::npos ? "" : cell.substr(from, cell.find_last_not_of(' ') - from + 1));
  }
  return all;
}
// The rows of the `nth` table that begins with this head.
std::vector<std::vector<std::string>> table(const std::string& head, int nth = 0) {
  std::vector<std::vector<std::string>> rows;
  bool inside = false;
  for (const std::string& line : document()) {
    if (line.starts_with(head) && nth-- == 0) inside = true;
    if (inside && !line.starts_with("|")) break;
    if (inside) rows.push_back(cells(line));
  }
  REQUIRE(rows.size() > 2);
  rows.erase(rows.begin(), rows.begin() + 2);
  return rows;
}

std::string type_of(const google::protobuf::FieldDescriptor& field) {
  if (field.is_map()) return "map<string, string>";
  return field.message_type() ? field.message_type()->name() : field.type_name();
}

}  // namespace

TEST_CASE("wire.md: its fields are those of the codec's messages") {
  const auto* const meta = braid::wire::oracle::RpcMeta::descriptor();
  const google::protobuf::Descriptor* const messages[] = {meta,
                                                          meta->FindFieldByName("request")->message_type(),
                                                          meta->FindFieldByName("response")->message_type()};
  for (int i = 0; i < 3; ++i) {
    const auto rows = table("| field | name | type |", i);
    CAPTURE(messages[i]->name());
    REQUIRE(static_cast<int>(rows.size()) == messages[i]->field_count());
    for (const auto& row : rows) {
      CAPTURE(row.at(0));
      const auto* const field = messages[i]->FindFieldByNumber(std::stoi(row.at(0)));
      REQUIRE(field);
      CHECK(field->name() == row.at(1));
      CHECK(type_of(*field) == row.at(2));
    }
  }
}

TEST_CASE("wire.md: its causes are those of cancel frames") {
  const auto rows = table("| cause | name |");
  CHECK(rows.size() == 7);
  for (const auto& row : rows) {
    const auto number = static_cast<std::uint32_t>(std::stoul(row.at(0)));
    const auto cause = braid::wire::cause_from_wire(number);
    CHECK(braid::wire::cause_to_wire(cause) == number);
    CHECK(to_string(cause) == row.at(1));
  }
}

TEST_CASE("wire.md: its recorded frames are in the recording") {
  std::string request, answer;
  for (const auto& chunk : golden::load(GOLDEN_FRAMES_FILE))
    if (chunk.name == "plain") (chunk.to_server ? request : answer) = chunk.bytes;
  CHECK(hex(documented("recorded_request")) == hex(request));
  CHECK(hex(documented("recorded_answer")) == hex(answer));
}

TEST_CASE("wire.md: a client sends its frames") {
  using namespace call_fixture;
  simulation sim{1};
  scripted_server server(sim);
  {
    started_call call, another;
    client_node client(sim);
    client.start(call);
    CHECK(hex(server.received()) == hex(documented("first_request")));
    server.send(documented("announcement"));
    sim.run_for(0ms);
    call.control.StartCancel();
    sim.run_for(0ms);
    CHECK(hex(server.received()) == hex(documented("first_request") + documented("cancel")));
    client.start(another);
    std::string reply = documented("answer");
    reply[21] = static_cast<char>(0x20);  // the second use of the first slot: generation 2
    CHECK(server.requests().back().id == 0x200000000);
    server.send(reply);
    sim.run_for(0ms);
    CHECK(another.response.message() == "hello");
  }
  auto auth = std::make_shared<auth_fixture::scripted_authenticator>();
  started_call call;  // outlives its client, which ends it
  client_node client(sim, {.timeout = 1s, .auth = auth});
  client.start(call);
  CHECK(hex(server.received(1)) == hex(documented("request_with_credential")));
}

TEST_CASE("wire.md: a server sends its frames") {
  using namespace server_test;
  world w;
  w.start();
  auto client = w.connect();
  client.send(documented("first_request"));
  CHECK(hex(client.received) == hex(documented("announcement") + documented("answer")));
  auto theirs = w.connect();
  theirs.send(documented("recorded_request"));
  CHECK(golden::differences(documented("recorded_answer"), theirs.received) == std::vector<std::string>{});

  world held;
  bool cancelled = false;
  held.start([&](server_call& call, const EchoRequest&, EchoResponse&, yield_context yield) {
    error_code ec;
    braid::sleep_for(1h, yield[ec]);
    cancelled = call.cancelled() == cancel_cause::user;
  });
  auto cancels = held.connect();
  cancels.send(documented("first_request") + documented("cancel"));
  CHECK(cancelled);
  CHECK(hex(cancels.received) == hex(documented("announcement")));

  server_options options;
  options.auth = std::make_shared<auth_fixture::scripted_authenticator>();
  world guarded(options);
  guarded.start();
  auto refused = guarded.connect();
  refused.send(documented("recorded_request"));
  CHECK(hex(refused.received) == hex(documented("refusal")));
  CHECK(refused.ended);
  auto accepted = guarded.connect();
  accepted.send(documented("request_with_credential"));
  CHECK(hex(accepted.received) == hex(documented("announcement") + documented("answer")));
}
