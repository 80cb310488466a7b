// A loop's ways to servers, and what takes them away.
#include "client/connection_table.hpp"

#include "call_fixture.hpp"
#include "client/connection_settings.hpp"

#include <boost/asio/post.hpp>
#include <catch2/catch.hpp>

using namespace call_fixture;
using braid::client::connection_settings;
using braid::client::connection_table;
using braid::client::route;

// The end of a channel outside a turn only schedules the end of its connection, whose connect may come to its
// end before that.
TEST_CASE("connection table: a way that is given up while it connects leaves its successor alone") {
  simulation sim(1);
  sim.network().set_default({.black_hole = true});
  client_node client(sim, {.timeout = 10ms});
  const connection_settings settings(braid::endpoint::parse(address).value(), {.timeout = 10ms});
  REQUIRE(client.round().value() == 1008);
  route* successor = nullptr;
  boost::asio::post(client.home().context(), [&] {  // no turn of the loop
    auto& table = client.home().service<connection_table>();
    route& given_up = table.find(settings);
    client.end_channel();
    successor = &table.find(settings);
    REQUIRE(successor != &given_up);
    successor->add_user();
    given_up.shut_down();  // its attempt to connect ends
    CHECK(&table.find(settings) == successor);
  });
  sim.run_for(1ms);
  client.on_loop([&] {
    CHECK(&client.home().service<connection_table>().find(settings) == successor);
    successor->remove_user();
  });
}
