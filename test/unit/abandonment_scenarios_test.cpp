// What the demos show, torn down and cancelled after each of its steps. A scenario is a few lines in the
// table below.
#include <braid/channel.hpp>
#include <braid/parallel_channel.hpp>
#include <braid/server.hpp>
#include <braid/spawn.hpp>
#include <braid/testing/simulation.hpp>

#include "golden.pb.h"
#include "unit/simulated_step.hpp"

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/use_future.hpp>
#include <catch2/catch.hpp>

#include <deque>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace {

using namespace std::chrono_literals;
using braid::error_code;
using braid::testing::simulation;
using golden::EchoRequest;
using golden::EchoResponse;
using golden::EchoService;

const google::protobuf::MethodDescriptor& echo() { return braid::describe_method(&EchoService::Echo); }

// A call of a scenario, with all that must outlive it.
struct call {
  EchoRequest request;
  EchoResponse response;
  braid::controller control;
  boost::asio::cancellation_signal signal;
  std::function<void()> look;  // asks whether it has ended, where nobody is told
  int completions = 0;
  int code = 0;

  call() {
    request.set_message("hello");
    response.set_message("untouched");
  }
  void end(const error_code& ec) {
    ++completions;
    code = braid::to_wire(ec);
  }
  // A coroutine that was never begun.
  void end_unless_ended(const error_code& ec) {
    if (completions == 0) end(ec);
  }
  auto handler() {
    return [this](const error_code& ec) { end(ec); };
  }
};

// Two simulated processes, servers in one and clients in the other.
class scene {
 public:
  scene() : sim(1, braid::testing::loop_order::fixed) {
    // Frames arrive in pieces, so that a step may lie inside one.
    sim.network().set_default({.latency = 1ms, .max_delivery = 40});
    near.emplace(options());
    far.emplace(options());
  }
  ~scene() {
    near.reset();
    tear_down_servers();
  }

  template <typename Handler>
  void serve(Handler handler) {
    auto& made = servers.emplace_back(std::make_unique<braid::server>(*far));
    made->handle(&EchoService::Echo, handler);
    made->start("10.0.0.1:0");
  }
  std::shared_ptr<braid::channel> channel(std::size_t index) { return channel_of(*near, index); }
  std::shared_ptr<braid::channel> channel_at_server(std::size_t index) { return channel_of(*far, index); }
  call& new_call() { return calls.emplace_back(); }

  void step() { run_one_step(sim, {&*near, &*far}); }
  bool ended() {
    for (call& each : calls) {
      if (each.look) each.look();
      if (each.completions == 0) return false;
    }
    return true;
  }
  void tear_down_servers() {
    for (auto& each : servers) each.reset();
    kept.clear();
    far.reset();
  }

  simulation sim;
  std::optional<braid::runtime> near;
  std::optional<braid::runtime> far;
  std::vector<std::unique_ptr<braid::server>> servers;
  std::vector<std::shared_ptr<void>> kept;  // what handlers use
  std::deque<call> calls;

 private:
  braid::runtime_options options() {
    auto made = sim.node_options();
    made.log = [](braid::log_level, std::string_view, std::span<const braid::log_field>) {};
    return made;
  }
  std::shared_ptr<braid::channel> channel_of(braid::runtime& on, std::size_t index) {
    auto made = std::make_shared<braid::channel>(on);
    made->init("10.0.0.1:" + std::to_string(servers.at(index)->port()));
    return made;
  }
};

// Handlers.

void answer(braid::server_call&, const EchoRequest& q, EchoResponse& r, braid::yield_context yield) {
  braid::sleep_for(2ms, yield);
  r.set_message(q.message() + std::string(100, '.'));
}

// Calls the next server and passes its answer on.
auto ask(std::shared_ptr<braid::channel> downstream) {
  return [downstream](braid::server_call& call, const EchoRequest& q, EchoResponse& r,
                      braid::yield_context yield) {
    braid::controller control;
    error_code ec;
    downstream->async_call(echo(), control, q, r, yield[ec]);
    if (ec) call.set_failed(ec, control.ErrorText());
  };
}

std::shared_ptr<braid::parallel_channel> parallel(scene& in) {
  auto made =
      std::make_shared<braid::parallel_channel>(*in.near, braid::parallel_channel_options{.fail_limit = 1});
  for (std::size_t i = 0; i < in.servers.size(); ++i) made->add_channel(in.channel(i));
  return made;
}

void start(scene& in, braid::channel_base& on) {
  call& made = in.new_call();
  on.async_call(echo(), made.control, made.request, made.response, made.handler());
}

// The table: what a scenario builds and starts. Every call of it answers with a message that ends in dots.
struct scenario {
  const char* name;
  void (*begin)(scene&);
};

const scenario scenarios[] = {
    {"echo",
     [](scene& in) {
       in.serve(answer);
       start(in, *in.channel(0));
     }},
    {"two at once on one connection",
     [](scene& in) {
       in.serve(answer);
       const auto channel = in.channel(0);
       start(in, *channel);
       start(in, *channel);
     }},
    {"parallel_echo",
     [](scene& in) {
       for (int i = 0; i < 3; ++i) in.serve(answer);
       start(in, *parallel(in));
     }},
    {"cascade_echo",
     [](scene& in) {
       in.serve(answer);
       in.serve(ask(in.channel_at_server(0)));
       in.serve(ask(in.channel_at_server(1)));
       start(in, *in.channel(2));
     }},
    {"a handler that answers later, from a callback",
     [](scene& in) {
       struct service : EchoService {
         explicit service(std::shared_ptr<braid::channel> to) : downstream(std::move(to)) {}
         void Echo(google::protobuf::RpcController*, const EchoRequest* q, EchoResponse* r,
                   google::protobuf::Closure* done) override {
           auto control = std::make_shared<braid::controller>();
           downstream->async_call(echo(), *control, *q, *r,
                                  [control, done](const error_code&) { done->Run(); });
         }
         std::shared_ptr<braid::channel> downstream;
       };
       in.serve(answer);
       auto& made = in.servers.emplace_back(std::make_unique<braid::server>(*in.far));
       made->add_service(std::make_unique<service>(in.channel_at_server(0)));
       made->start("10.0.0.1:0");
       start(in, *in.channel(1));
     }},
    {"call style: in a coroutine",
     [](scene& in) {
       in.serve(answer);
       call& made = in.new_call();
       braid::spawn(
           *in.near,
           [&made, channel = in.channel(0)](braid::yield_context yield) {
             error_code ec;
             channel->async_call(echo(), made.control, made.request, made.response, yield[ec]);
             made.end(ec);
           },
           [&made](const error_code& ec) { made.end_unless_ended(ec); });
     }},
    {"call style: synchronous in a coroutine, through the stub",
     [](scene& in) {
       in.serve(answer);
       call& made = in.new_call();
       braid::spawn(
           *in.near,
           [&made, channel = in.channel(0)](braid::yield_context) {
             EchoService::Stub(channel.get()).Echo(&made.control, &made.request, &made.response, nullptr);
             made.end(made.control.error());
           },
           [&made](const error_code& ec) { made.end_unless_ended(ec); });
     }},
    {"call style: the stub with done",
     [](scene& in) {
       in.serve(answer);
       call& made = in.new_call();
       const auto ended = [](call* of) { of->end(of->control.error()); };
       EchoService::Stub(in.channel(0).get())
           .Echo(&made.control, &made.request, &made.response,
                 google::protobuf::NewCallback<call*>(ended, &made));
     }},
    {"call style: a future",
     [](scene& in) {
       in.serve(answer);
       call& made = in.new_call();
       auto future = std::make_shared<std::future<void>>(in.channel(0)->async_call(
           echo(), made.control, made.request, made.response, boost::asio::use_future));
       made.look = [&made, future] {
         if (!future->valid() || future->wait_for(0s) != std::future_status::ready) return;
         try {
           future->get();
           made.end({});
         } catch (const boost::system::system_error& failed) {
           made.end(failed.code());
         }
       };
     }},
    {"cancel: a call that would take an hour, cancelled by its deadline",
     [](scene& in) {
       in.serve([](braid::server_call&, const EchoRequest&, EchoResponse&, braid::yield_context yield) {
         braid::sleep_for(1h, yield);
       });
       call& made = in.new_call();
       made.control.set_timeout(20ms);
       in.channel(0)->async_call(echo(), made.control, made.request, made.response, made.handler());
     }},
    {"cancel: by a slot, half-way, down a cascade",
     [](scene& in) {
       in.serve([](braid::server_call&, const EchoRequest&, EchoResponse&, braid::yield_context yield) {
         braid::sleep_for(1h, yield);
       });
       in.serve(ask(in.channel_at_server(0)));
       call& made = in.new_call();
       in.channel(1)->async_call(echo(), made.control, made.request, made.response,
                                 boost::asio::bind_cancellation_slot(made.signal.slot(), made.handler()));
       braid::spawn(
           *in.near,
           [&made](braid::yield_context yield) {
             braid::sleep_for(20ms, yield);
             made.signal.emit(boost::asio::cancellation_type::terminal);
           },
           [](const error_code&) {});
     }},
};

// Runs a scenario to its end; how many steps that took, and the codes of its calls.
struct whole_run {
  std::size_t steps = 0;
  std::vector<int> codes;
};

whole_run run_whole(const scenario& what) {
  scene in;
  what.begin(in);
  whole_run found;
  for (; !in.ended() && found.steps < 10'000; ++found.steps) in.step();
  for (const call& each : in.calls) found.codes.push_back(each.code);
  return found;
}

// A call has ended once, and its response is whole or untouched.
void check_calls(scene& in, const std::string& when) {
  INFO(when);
  CHECK(in.ended());
  for (const call& each : in.calls) {
    CHECK(each.completions == 1);
    const std::string& message = each.response.message();
    if (each.code == 0) {
      CHECK(message == "hello" + std::string(100, '.'));
    } else {
      CHECK(message == "untouched");
    }
  }
}

// Builds the scenario, lets it run for `steps`, does something to it, and says what codes its calls had.
template <typename Function>
std::map<int, int> after_each_step(const scenario& what, Function function) {
  std::map<int, int> codes;
  const whole_run whole = run_whole(what);
  CHECK(whole.steps > 10);
  CHECK(whole.steps < 10'000);
  for (std::size_t until = 0; until <= whole.steps; ++until) {
    scene in;
    what.begin(in);
    for (std::size_t i = 0; i < until; ++i) in.step();
    function(in);
    check_calls(in, what.name + (" after " + std::to_string(until)) + " steps");
    for (const call& each : in.calls) ++codes[each.code];
  }
  CHECK(codes.contains(whole.codes.front()));
  return codes;
}

}  // namespace

TEST_CASE("abandonment: every scenario, its clients torn down after each step", "[abandonment]") {
  for (const scenario& each : scenarios) {
    DYNAMIC_SECTION(each.name) {
      const auto codes = after_each_step(each, [](scene& in) { in.near.reset(); });
      CHECK(codes.contains(125));
    }
  }
}

TEST_CASE("abandonment: every scenario, its servers torn down after each step", "[abandonment]") {
  for (const scenario& each : scenarios) {
    DYNAMIC_SECTION(each.name) {
      const auto codes = after_each_step(each, [](scene& in) {
        in.tear_down_servers();
        in.sim.run_until([&] { return in.ended(); });
      });
      CHECK(codes.size() >= 2);
    }
  }
}

TEST_CASE("abandonment: every scenario, its calls cancelled after each step", "[abandonment]") {
  for (const scenario& each : scenarios) {
    DYNAMIC_SECTION(each.name) {
      const auto codes = after_each_step(each, [](scene& in) {
        for (call& started : in.calls) started.control.StartCancel();
        in.sim.run_until([&] { return in.ended(); });
        in.sim.run_for(100ms);  // late answers come and are dropped
        for (auto& server : in.servers) {
          // Nothing of it runs on.
          std::optional<std::vector<std::string>> left;
          server->async_stop(
              {.grace = 0ms, .kill = 50ms},
              [&](const error_code&, std::vector<std::string> names) { left = std::move(names); });
          in.sim.run_until([&] { return left.has_value(); });
          REQUIRE(left);
          CHECK(left->empty());
        }
      });
      CHECK(codes.contains(125));
    }
  }
}
