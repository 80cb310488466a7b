// A combo channel of one's own, in a screenful: `race` asks all its channels and takes the first success. It
// is a channel like any other, so it nests: here a parallel channel over two shards, each a race of two
// replicas, one of which is slow or dead.

#include <braid/braid.hpp>

#include "echo.pb.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

using namespace std::chrono_literals;

using channels = std::vector<std::shared_ptr<braid::channel_base>>;

std::shared_ptr<braid::channel_base> race(const braid::runtime& rt, channels over) {
  return std::make_shared<braid::combo_channel>(
      rt, [over = std::move(over)](braid::combo_call& call, braid::yield_context yield) {
        braid::call_group asked(call, over.size());
        for (std::size_t i = 0; i < over.size(); ++i) asked.launch(i, *over[i]);
        while (const auto* done = asked.next(yield)) {
          call.finish_as(*done);
          if (done->result.succeeded()) break;
        }
        asked.cancel_rest(braid::cancel_cause::sibling_won, yield);
      });
}

namespace {

// A replica, which answers with its name after some time.
class replica {
 public:
  replica(const braid::runtime& rt, std::string name, std::chrono::milliseconds delay) : server_(rt) {
    server_.handle(&echo::EchoService::Echo,
                   [name, delay](braid::server_call&, const echo::EchoRequest&, echo::EchoResponse& response,
                                 braid::yield_context yield) {
                     braid::sleep_for(delay, yield);
                     response.set_message(name + " ");
                   });
    server_.start("127.0.0.1:0");
    address_ = "127.0.0.1:" + std::to_string(server_.port());
  }
  void die() { server_.stop({.grace = 0ms}); }
  std::shared_ptr<braid::channel_base> channel(const braid::runtime& rt) const {
    auto made = std::make_shared<braid::channel>(rt);
    made->init(address_, {.connect_timeout = 10s});  // a busy machine is not a dead server
    return made;
  }

 private:
  braid::server server_;
  std::string address_;
};

// Puts the answers of the shards one after the other.
class join : public braid::response_merger {
  braid::merge_result merge(google::protobuf::Message& whole,
                            const google::protobuf::Message& part) override {
    static_cast<echo::EchoResponse&>(whole).mutable_message()->append(
        static_cast<const echo::EchoResponse&>(part).message());
    return braid::merge_result::merged;
  }
};

// The tree of calls, with how each ended.
void print(const braid::controller& call, const std::string& name, int depth) {
  fmt::print("{:{}}{}: {}\n", "", 2 * depth, name,
             call.Failed() ? fmt::format("{} {}, cause {}", call.error().value(), call.error().message(),
                                         braid::to_string(call.result().cause))
                           : "ok");
  for (std::size_t i = 0; i < call.sub_count(); ++i) {
    const std::string sub = fmt::format("{} {}", depth == 0 ? "shard" : "replica", i);
    if (call.sub(i)) print(*call.sub(i), sub, depth + 1);
  }
}

int run() {
  braid::runtime rt;
  replica quick(rt, "quick", 0ms), slow(rt, "slow", 1h), dead(rt, "dead", 0ms), steady(rt, "steady", 20ms);
  dead.die();

  braid::parallel_channel shards(rt, {.timeout = 10s, .fail_limit = 1});
  const auto joined = std::make_shared<join>();
  shards.add_channel(race(rt, {quick.channel(rt), slow.channel(rt)}), nullptr, joined);
  shards.add_channel(race(rt, {dead.channel(rt), steady.channel(rt)}), nullptr, joined);

  echo::EchoRequest request;
  echo::EchoResponse response;
  braid::controller control;
  echo::EchoService_Stub(&shards).Echo(&control, &request, &response, nullptr);
  print(control, "call", 0);
  if (control.Failed()) return std::fprintf(stderr, "%s\n", control.ErrorText().c_str()), 1;
  fmt::print("answers: {}\n", response.message());
  return response.message() == "quick steady " ? 0 : 1;
}

}  // namespace

int main() {
  try {
    return run();
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "error: %s\n", failure.what());
    return 1;
  }
}
