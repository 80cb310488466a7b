// A peer's reset that a client learns of by writing.
#include "call_fixture.hpp"

#include <boost/asio/post.hpp>
#include <catch2/catch.hpp>

using namespace call_fixture;

namespace {

const braid::endpoint server_at = braid::endpoint::parse(address).value();

}  // namespace

// From code that is in no turn of the loop, where it would else be the end of a turn of its own.
TEST_CASE(
    "call: a write that fails in the initiating function ends other calls only when that has returned") {
  simulation sim(1);
  scripted_server server(sim, [&](const seen_request& seen) {
    if (seen.connection == 1) server.send(answer(seen.id, echoed()), 1);
  });
  client_node client(sim, {.timeout = 1s});
  bool initiating = false;
  bool went_on_inside = false;
  error_code first;
  error_code second = braid::errc::internal;
  bool over = false;
  braid::spawn(*client.process, [&](braid::yield_context yield) {
    EchoResponse response;
    controller control;
    client.channel.async_call(echo(), control, request(), response, yield[first]);
    went_on_inside = initiating;
    client.channel.async_call(echo(), control, request(), response, yield[second]);
    over = true;
  });
  sim.run_for(1ms);
  REQUIRE(server.requests().size() == 1);
  started_call large;
  large.message.set_message(std::string(300 * 1024, 'x'));
  boost::asio::post(client.home().context(), [&] {
    sim.network().break_connections(server_at);
    initiating = true;
    client.start_here(large);
    initiating = false;
  });
  REQUIRE(sim.run_until([&] { return over && large.done(); }));
  CHECK_FALSE(went_on_inside);
  CHECK(first.value() == 104);
  CHECK(large.ec.value() == 104);
  CHECK_FALSE(second);  // on a new connection
}
