// What the far side of a call learns, over tcp: its cancellation, and who calls.

#include <braid/authenticator.hpp>
#include <braid/combo_channel.hpp>
#include <braid/parallel_channel.hpp>

#include "integration/call_fixture.hpp"
#include "integration/raw_peer.hpp"
#include "unit/server_fixture.hpp"

#include <boost/asio/bind_executor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>
#include <catch2/catch.hpp>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace call_over_tcp;
using braid::cancel_cause;
using braid::errc;
using braid::yield_context;

// Holds calls until they are cancelled, unless they say "quick" or fail, and keeps why they were.
class holding_server {
 public:
  holding_server() {
    server_.handle(&golden::EchoService::Echo, [this](braid::server_call& call, const EchoRequest& wanted,
                                                      EchoResponse& response, yield_context yield) {
      response.set_message(wanted.message());
      if (wanted.has_fail_code()) return call.set_failed(wanted.fail_code(), "as asked");
      if (wanted.message() == "quick") return;
      ++running;
      error_code ec;
      braid::sleep_for(1h, yield[ec]);
      const std::lock_guard lock(mutex_);
      causes_.push_back(call.cancelled());
    });
    server_.start("127.0.0.1:0");
  }
  std::string address() const { return server_.endpoints().front().to_string(); }
  std::vector<cancel_cause> causes() const {
    const std::lock_guard lock(mutex_);
    return causes_;
  }
  std::vector<cancel_cause> wait_for(std::size_t count) const {
    wait_until([&] { return causes().size() >= count; });
    return causes();
  }

  std::atomic<int> running{0};

 private:
  mutable std::mutex mutex_;
  std::vector<cancel_cause> causes_;
  braid::runtime process_{{.loops = 2}};
  braid::server server_{process_};
};

// Lets "token-" in, after a detour over another thread.
class token_authenticator final : public braid::authenticator {
 public:
  explicit token_authenticator(std::string token) : token_(std::move(token)) {}

  boost::system::result<std::string> generate_credential(const braid::endpoint&,
                                                         yield_context yield) override {
    ++generated;
    boost::asio::post(boost::asio::bind_executor(pool_, yield));
    return token_;
  }
  boost::system::result<braid::auth_context> verify_credential(std::string_view credential,
                                                               const braid::endpoint&,
                                                               yield_context yield) override {
    ++verified;
    boost::asio::post(boost::asio::bind_executor(pool_, yield));
    if (!credential.starts_with("token-")) return error_code(errc::auth_failed);
    braid::auth_context who;
    who.user = credential.substr(6);
    return who;
  }

  std::atomic<int> generated{0};
  std::atomic<int> verified{0};

 private:
  std::string token_;
  boost::asio::thread_pool pool_{1};
};

// Echoes who calls.
class guarded_server {
 public:
  explicit guarded_server(std::shared_ptr<braid::authenticator> auth)
      : server_(process_, [&] {
          braid::server_options options;
          options.auth = std::move(auth);
          return options;
        }()) {
    server_.handle(&golden::EchoService::Echo,
                   [](braid::server_call& call, const EchoRequest&, EchoResponse& response, yield_context) {
                     response.set_message(call.auth()->user);
                   });
    server_.start("127.0.0.1:0");
  }
  std::string address() const { return server_.endpoints().front().to_string(); }
  std::uint16_t port() const { return server_.port(); }

 private:
  braid::runtime process_{{.loops = 2}};
  braid::server server_;
};

}  // namespace

TEST_CASE("far side over tcp: a cancel from another thread reaches the handler, the first call's too") {
  holding_server server;
  braid::runtime rt({.loops = 1});
  braid::channel channel(rt);
  channel.init(server.address(), {.timeout = -1s, .connect_timeout = 100s});
  for (std::size_t i = 1; i <= 3; ++i) {
    controller control;
    const braid::call_id id = control.call_id();
    std::thread canceller([&] {
      wait_until([&] { return server.running == static_cast<int>(i); });
      id.cancel();
    });
    EchoResponse response;
    error_code ec;
    channel.call(echo(), control, request("slow"), response, ec);
    canceller.join();
    CHECK(ec == aborted);
    CHECK(server.wait_for(i).back() == cancel_cause::user);
  }
  EchoResponse response;
  channel.call(echo(), request("quick"), response);
  CHECK(response.message() == "quick");
}

TEST_CASE("far side over tcp: at fail_limit the other servers' handlers are cancelled") {
  holding_server slow[2];
  echo_server failing;
  braid::runtime rt({.loops = 1});
  braid::parallel_channel all(rt, {.timeout = -1s, .fail_limit = 1});
  // Asks the first two to wait, and the third to fail when they do.
  class different_questions : public braid::call_mapper {
    braid::sub_call map(std::size_t index, std::size_t, const google::protobuf::MethodDescriptor& method,
                        const google::protobuf::Message&, google::protobuf::Message&) override {
      return {method, std::make_unique<EchoRequest>(index < 2 ? request("slow") : request("x", 0, 12345))};
    }
  };
  const auto mapper = std::make_shared<different_questions>();
  for (const std::string& at : {slow[0].address(), slow[1].address()}) {
    auto one = std::make_shared<braid::channel>(rt);
    one->init(at, {.connect_timeout = 100s});
    all.add_channel(one, mapper);
  }
  // The third is reached by way of a combo that lets the others begin.
  auto last = std::make_shared<braid::channel>(rt);
  last->init(failing.address(), {.connect_timeout = 100s});
  all.add_channel(std::make_shared<braid::combo_channel>(rt,
                                                         [&](braid::combo_call& call, yield_context yield) {
                                                           while (slow[0].running + slow[1].running < 2)
                                                             braid::sleep_for(1ms, yield);
                                                           braid::call_group group{call, 1};
                                                           group.launch(0, *last);
                                                           while (const auto* done = group.next(yield))
                                                             call.finish_as(*done);
                                                         }),
                  mapper);
  controller control;
  EchoResponse response;
  error_code ec;
  all.call(echo(), control, request("whole"), response, ec);
  CHECK(braid::to_wire(ec) == 12345);
  CHECK(slow[0].wait_for(1) == std::vector{cancel_cause::fail_limit});
  CHECK(slow[1].wait_for(1) == std::vector{cancel_cause::fail_limit});
}

TEST_CASE("far side over tcp: a client that is gone cancels its calls") {
  holding_server server;
  {
    controller control;  // outlives the call, which the runtime ends
    EchoResponse response;
    braid::runtime rt({.loops = 1});
    braid::channel channel(rt);
    channel.init(server.address(), {.timeout = -1s, .connect_timeout = 100s});
    channel.async_call(echo(), control, request("slow"), response, [](error_code) {});
    wait_until([&] { return server.running == 1; });
  }
  const auto cause = server.wait_for(1).front();
  CHECK((cause == cancel_cause::peer_gone || cause == cancel_cause::shutdown));
}

TEST_CASE("far side over tcp: each connection authenticates once, whichever thread it is for") {
  auto auth = std::make_shared<token_authenticator>("token-ada");
  guarded_server server(auth);
  braid::runtime rt({.loops = 2});
  braid::channel channel(rt);
  channel.init(server.address(), {.timeout = 100s, .connect_timeout = 100s, .auth = auth});
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i) {
        EchoResponse response;
        channel.call(echo(), request(), response);
        if (response.message() == "ada") ++right;
      }
    });
  }
  for (auto& each : threads) each.join();
  CHECK(right == 80);
  CHECK(auth->generated <= 2);
  CHECK(auth->generated == auth->verified);
}

TEST_CASE("far side over tcp: a refused credential is 1004 for every call in flight") {
  guarded_server server(std::make_shared<token_authenticator>("token-unused"));
  braid::runtime rt({.loops = 1});
  braid::channel channel(rt);
  channel.init(
      server.address(),
      {.timeout = 100s, .connect_timeout = 100s, .auth = std::make_shared<token_authenticator>("guess")});
  for (int round = 0; round < 3; ++round) {
    std::vector<std::future<error_code>> all;
    std::vector<EchoResponse> responses(50);
    for (auto& response : responses) {
      auto done = std::make_shared<std::promise<error_code>>();
      all.push_back(done->get_future());
      channel.async_call(echo(), request(), response, [done](error_code ec) { done->set_value(ec); });
    }
    for (auto& each : all) CHECK(get(std::move(each)) == errc::auth_failed);
  }
}

TEST_CASE("far side over tcp: the refusal arrives although the client goes on sending") {
  guarded_server server(std::make_shared<token_authenticator>("token-unused"));
  auto client = server_test::raw_peer::connect(server.port());
  auto meta = server_test::echo_meta(1);
  meta.authentication_data = "guess";
  std::string stream = server_test::frame(meta, server_test::payload("x"));
  for (int id = 2; id < 2000; ++id) stream += server_test::echo(id, std::string(100, 'x'));
  std::thread sender([&] {
    try {
      client.send(stream);
    } catch (const std::exception&) {  // the server may have gone by then
    }
  });
  const auto first = server_test::answers_in(client.next_frame());
  sender.join();
  REQUIRE(first.size() == 1);
  CHECK(first[0].id == 1);
  CHECK(first[0].code == 1004);
  int more = 0;
  for (std::string next = client.next_frame(); !next.empty(); next = client.next_frame()) {
    ++more;
    CHECK(server_test::answers_in(next).at(0).code == 1004);
  }
  CHECK(more < 2000);
}
