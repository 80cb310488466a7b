// Where handlers run, and what a server says of one that does not end.

#include "unit/handler_world.hpp"
#include "unit/watched_network.hpp"

#include <boost/asio/io_context.hpp>
#include <catch2/catch.hpp>

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

using namespace handler_test;

TEST_CASE("handler: calls are spread over the loops, or run on the loop that is named") {
  world w;
  std::vector<std::size_t> ran;
  const bool spread = GENERATE(true, false);
  w.server->handle(&EchoService::Echo,
                   [&](server_call&, const EchoRequest&, EchoResponse& r) {
                     ran.push_back(braid::core::loop::current()->index());
                     r.set_message("x");
                   },
                   {.run_on = spread ? placement::spread() : placement::loop(1)});
  w.start();
  for (int i = 0; i < 4; ++i) {
    client_call made("x");
    w.call(made);
    w.finish(made);
  }
  if (spread) {
    CHECK((ran == std::vector<std::size_t>{0, 1, 0, 1} || ran == std::vector<std::size_t>{1, 0, 1, 0}));
  } else {
    CHECK(ran == std::vector<std::size_t>{1, 1, 1, 1});
  }
}

TEST_CASE("handler: by default one runs on the loop that has read its request") {
  const bool named = GENERATE(false, true);
  braid::testing::simulation sim{11};
  const auto net = call_fixture::watched_network::of(sim);
  auto three_loops = net->watch(sim.node_options());
  three_loops.loops = 3;
  braid::runtime process(three_loops);
  braid::server server(process);
  std::map<std::string, std::vector<std::size_t>> ran;  // on which loops, for each client
  const auto handler = [&](server_call& call, const EchoRequest& q, EchoResponse& r) {
    ran[call.remote_side().to_string()].push_back(braid::core::loop::current()->index());
    r.set_message(q.message());
  };
  if (named) {
    server.handle(&EchoService::Echo, handler, {.run_on = placement::reading_loop()});
  } else {
    server.handle(&EchoService::Echo, handler);
  }
  server.start("10.0.0.1:80");
  braid::runtime client(sim.node_options());
  std::vector<std::unique_ptr<braid::channel>> channels;
  for (int i = 0; i < 6; ++i) {
    channels.push_back(std::make_unique<braid::channel>(client));
    channels.back()->init("10.0.0.1:80", {.connection_group = std::to_string(i)});
  }
  for (int round = 0; round < 5; ++round) {
    for (const auto& each : channels) {
      client_call made("x");
      each->async_call(echo, made.control, made.request, made.response, [&](error_code ec) {
        made.ended = true;
        made.ec = ec;
      });
      REQUIRE(sim.run_until([&] { return made.ended; }));
      CHECK_FALSE(made.ec);
    }
  }
  CHECK(ran.size() == 6);
  std::set<std::size_t> used;
  for (const auto& [peer, loops] : ran) {
    CHECK(loops == std::vector<std::size_t>(5, loops.front()));
    CHECK(net->read_on.at(peer) == std::set<std::size_t>{loops.front()});
    used.insert(loops.front());
  }
  CHECK(used.size() == 3);
}

TEST_CASE("handler: options are set for one method of a service") {
  world w;
  std::size_t ran = 7;
  w.service.run = [&](server_call& call, const EchoRequest& q, EchoResponse& r,
                      google::protobuf::Closure* done) {
    ran = braid::core::loop::current()->index();
    echo_service::answer_at_once(call, q, r, done);
  };
  w.server->add_service(w.service, {.run_on = placement::loop(0)});
  w.server->set_options(&EchoService::Echo, {.run_on = placement::loop(1)});
  w.start();
  client_call made("x");
  w.call(made);
  w.finish(made);
  CHECK(made.response.message() == "x");
  CHECK(ran == 1);
}

TEST_CASE("handler: a placement that does not fit is refused when the handler is added") {
  world w;
  asio::io_context other;
  const auto stackful = [](server_call&, const EchoRequest&, EchoResponse&, yield_context) {};
  const auto says = [](const auto& function, const std::string& part) {
    try {
      function();
    } catch (const boost::system::system_error& e) {
      CHECK(e.code() == boost::system::errc::invalid_argument);
      return std::string(e.what()).find(part) != std::string::npos;
    }
    return false;
  };
  CHECK(says([&] { w.server->handle(&EchoService::Echo, stackful, {.run_on = other}); },
             "a yield_context needs a loop"));
  CHECK(says([&] { w.server->handle(&EchoService::Echo, stackful, {.run_on = placement::loop(2)}); },
             "placed on loop 2, and the runtime has 2"));
  CHECK(says([&] { w.server->add_service(w.service, {.run_on = placement::on({})}); },
             "executor that is empty"));
  CHECK(says([&] { w.server->set_options(&EchoService::Echo, {}); }, "was not added"));
  w.server->handle(&EchoService::Echo, stackful);
  CHECK(says([&] { w.server->set_options(&EchoService::Echo, {.run_on = other}); },
             "a yield_context needs a loop"));
  w.start();
  CHECK(says([&] { w.server->set_options(&EchoService::Echo, {}); }, "after the start"));
}

TEST_CASE("handler: one that ignores its cancellation is named when the server stops") {
  const style written = GENERATE(style::stackful, style::callback);
  const placement where = on_a_loop();
  world w;
  std::optional<call_done> kept;
  if (written == style::stackful) {
    w.server->handle(&EchoService::Echo,
                     [](server_call&, const EchoRequest&, EchoResponse&, yield_context yield) {
                       braid::shield stubborn{yield, 10s};
                       braid::sleep_for(5s, yield);
                     },
                     {.run_on = where});
  } else {
    w.server->handle(&EchoService::Echo,
                     [&](server_call&, const EchoRequest&, EchoResponse&, call_done done) { kept = done; },
                     {.run_on = where});
  }
  w.start();
  client_call made("x");
  w.call(made);
  w.sim.run_for(1ms);
  const auto names = w.server->stop({.grace = 10ms, .kill = 20ms});
  REQUIRE(names.size() == 1);
  CHECK(names.front().find("golden.EchoService.Echo") != std::string::npos);
  w.finish(made);
  CHECK(made.ec == errc::logoff);
  if (kept) (*kept)();
  w.sim.run_for(10s);
}
