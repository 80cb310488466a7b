// What becomes of a client's calls where there is no memory.

#include "unit/call_fixture.hpp"
#include "unit/live_memory.hpp"

#include <catch2/catch.hpp>

#include <cstddef>
#include <string>

using namespace call_fixture;

namespace {

void check_that_next_call_connects_anew(simulation& sim, scripted_server& server, client_node& client) {
  started_call next;
  client.start(next);
  REQUIRE(server.connections() == 2);
  server.send(answer(server.requests().back().id, echoed("next")), 1);
  sim.run_for(0ms);
  CHECK(next.response.message() == "next");
}

}  // namespace

TEST_CASE("client memory: an answer for which there is no memory is 12, and its connection goes on") {
  static constexpr std::size_t message = 1'000'000;
  static constexpr std::size_t field = 50'000;
  const std::size_t refused = GENERATE(as<std::size_t>(), message, field);
  const auto type = GENERATE(braid::connection_type::per_loop, braid::connection_type::single);
  CAPTURE(refused);
  simulation sim(1);
  sim.network().set_default({.window = 8'000'000});
  scripted_server server(sim);
  client_node client(sim, {.timeout = -1ms, .connection_type = type});
  started_call large, small, again;
  for (auto* each : {&large, &small, &again}) client.start(*each);
  REQUIRE(server.requests().size() == 3);
  const std::string value(field, 'v');
  const auto large_answer = [&](std::size_t request) {
    return answer(server.requests()[request].id, echoed(std::string(message, 'x')), [&](auto& meta) {
      meta.user_fields.push_back({"key", value});
    });
  };
  // All but its last byte before, so that nobody but the client needs that much then.
  const std::string bytes = large_answer(0);
  server.send(bytes.substr(0, bytes.size() - 1));
  sim.run_for(0ms);
  CHECK_FALSE(large.done());
  {
    const test_memory::shortage none(refused, refused + 100);
    server.send(bytes.substr(bytes.size() - 1));
    sim.run_for(0ms);
  }
  CHECK(large.done());
  CHECK(large.ec.value() == 12);
  CHECK(large.control.ErrorText() == "no memory for the response");
  CHECK(large.response.ByteSizeLong() == 0);
  server.send(answer(server.requests()[1].id, echoed("small")) + large_answer(2));
  sim.run_for(0ms);
  CHECK(small.done());
  CHECK_FALSE(small.ec);
  CHECK(small.response.message() == "small");
  CHECK_FALSE(again.ec);
  CHECK(again.response.message().size() == message);
  CHECK(server.connections() == 1);
}

TEST_CASE("client memory: where there is none for an error's long text, the call ends without one") {
  static constexpr std::size_t size = 50'000;
  simulation sim(1);
  scripted_server server(sim);
  client_node client(sim, {.timeout = -1ms});
  started_call call;
  client.start(call);
  const std::string text(size, 't');
  const std::string bytes = answer(server.requests().at(0).id, "", [&](auto& meta) {
    meta.response.error_code = 4711;
    meta.response.error_text = text;
  });
  server.send(bytes.substr(0, bytes.size() - 1));
  sim.run_for(0ms);
  {
    const test_memory::shortage none(size, size + 100);
    server.send(bytes.substr(bytes.size() - 1));
    sim.run_for(0ms);
  }
  CHECK(call.ec.value() == 4711);
  CHECK(call.control.ErrorText() == call.ec.message());
  started_call next;
  client.start(next);
  server.send(answer(server.requests().at(1).id, echoed("next")));
  sim.run_for(0ms);
  CHECK(next.response.message() == "next");
}

TEST_CASE(
    "client memory: without memory for an answer's metadata the connection ends, and its calls with 12") {
  simulation sim(1);
  scripted_server server(sim);
  client_node client(sim, {.timeout = -1ms});
  started_call calls[2];
  for (auto& each : calls) client.start(each);
  const std::string bytes =
      answer(server.requests().at(0).id, "", [&](auto& meta) { meta.user_fields.resize(10'000); });
  server.send(bytes.substr(0, bytes.size() - 1));
  sim.run_for(0ms);
  {
    const test_memory::shortage none(400'000, 2'000'000);
    server.send(bytes.substr(bytes.size() - 1));
    sim.run_for(0ms);
  }
  for (const auto& each : calls) {
    CHECK(each.done());
    CHECK(each.ec.value() == 12);
    CHECK(each.control.ErrorText() == "there is no memory for the metadata that the server sent");
  }
  check_that_next_call_connects_anew(sim, server, client);
}

TEST_CASE("client memory: without memory to read into the connection ends, and its calls with 12") {
  simulation sim(1);
  sim.network().set_default({.window = 8'000'000});
  scripted_server server(sim);
  client_node client(sim, {.timeout = -1ms});
  started_call large, other;
  client.start(large);
  client.start(other);
  const std::string bytes = answer(server.requests().at(0).id, echoed(std::string(300'003, 'x')));
  {
    const test_memory::shortage none(300'000, 310'000);  // the block that holds just this answer
    server.send(bytes.substr(0, 150'000));
    sim.run_for(0ms);
  }
  for (const auto* each : {&large, &other}) {
    CHECK(each->done());
    CHECK(each->ec.value() == 12);
    CHECK(each->control.ErrorText() == "the connection to 10.0.0.1:80 broke: Cannot allocate memory");
  }
  check_that_next_call_connects_anew(sim, server, client);
}
