#pragma once

// What the tests of combo channels share: a simulated process and scripted channels in virtual time.

#include <braid/combo_channel.hpp>
#include <braid/coroutine.hpp>
#include <braid/parallel_channel.hpp>
#include <braid/spawn.hpp>
#include <braid/testing/simulation.hpp>

#include "golden.pb.h"

#include <catch2/catch.hpp>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>

#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace parallel_fixture {

using namespace std::chrono_literals;
using braid::cancel_cause;
using braid::errc;
using braid::error_code;
using braid::from_wire;
using braid::outcome;

inline const google::protobuf::MethodDescriptor& echo_method() {
  return *golden::EchoService::descriptor()->FindMethodByName("Echo");
}

inline golden::EchoRequest request_of(std::string_view text) {
  golden::EchoRequest request;
  request.set_message(std::string(text));
  return request;
}

/// The echo service as read from a .proto file at run time: no generated code belongs to it.
class foreign_echo {
 public:
  foreign_echo() {
    google::protobuf::FileDescriptorProto file;
    golden::EchoService::descriptor()->file()->CopyTo(&file);
    service_ = pool_.BuildFile(file)->FindServiceByName("EchoService");
  }
  const google::protobuf::MethodDescriptor& method() const { return *service_->FindMethodByName("Echo"); }

 private:
  google::protobuf::DescriptorPool pool_;
  const google::protobuf::ServiceDescriptor* service_;
};

/// How a scripted channel answers: after some time, with a message or a code.
struct reply {
  std::chrono::milliseconds after{0};
  int code = 0;
  std::string message{};  ///< The text when there is a code.
  bool from_peer = true;
  bool partial = false;
};

/// A channel that answers as it is told and keeps what it was asked.
class leaf {
 public:
  struct question {
    std::string message;
    braid::metadata data;
    std::chrono::steady_clock::time_point deadline;
  };

  leaf(const braid::runtime& rt, reply answer) : state_(std::make_shared<state>()) {
    state_->answer = std::move(answer);
    channel_ = std::make_shared<braid::combo_channel>(
        rt,
        [state = state_](braid::combo_call& call, braid::yield_context yield) { state->run(call, yield); });
  }

  const std::shared_ptr<braid::combo_channel>& channel() const { return channel_; }
  const std::vector<question>& asked() const { return state_->asked; }
  std::size_t times() const { return state_->asked.size(); }
  void set(reply answer) { state_->answer = std::move(answer); }

 private:
  struct state {
    reply answer;
    std::vector<question> asked;

    void run(braid::combo_call& call, braid::yield_context yield) {
      const reply mine = answer;
      const auto* request = dynamic_cast<const golden::EchoRequest*>(&call.request());
      asked.push_back(
          {request ? request->message() : "", call.control().request_metadata(), call.deadline()});
      if (mine.after != 0ms) braid::sleep_for(mine.after, yield);
      if (mine.code != 0) {
        const error_code code = from_wire(mine.code);
        call.finish(mine.from_peer ? outcome::peer_failure(code) : outcome::local_failure(code),
                    mine.message);
        return;
      }
      if (auto* response = dynamic_cast<golden::EchoResponse*>(&call.response())) {
        response->set_message(mine.message.empty() && request ? request->message() : mine.message);
      }
      call.succeed(mine.partial);
    }
  };

  std::shared_ptr<state> state_;
  std::shared_ptr<braid::combo_channel> channel_;
};

/// A call that a test started, with all that must outlive it.
struct test_call {
  golden::EchoRequest request = request_of("question");
  golden::EchoResponse response;
  braid::controller control;
  error_code ec;
  int completions = 0;

  test_call() { response.set_message("untouched"); }
  bool ended() const { return completions != 0; }
  int code() const { return braid::to_wire(ec); }
  int sub_code(std::size_t i) const {
    const braid::controller* sub = control.sub(i);
    return sub ? braid::to_wire(sub->error()) : -1;
  }
  cancel_cause sub_cause(std::size_t i) const {
    const braid::controller* sub = control.sub(i);
    return sub ? sub->result().cause : cancel_cause::none;
  }
};

/// A simulated process.
class world {
 public:
  leaf make(reply answer) { return leaf(rt, std::move(answer)); }

  void start(braid::channel_base& on, test_call& call) {
    on.async_call(echo_method(), call.control, call.request, call.response, [&call](error_code ec) {
      ++call.completions;
      call.ec = ec;
    });
  }
  /// Calls and waits; returns the code.
  int call(braid::channel_base& on, test_call& call) {
    const auto from = sim.elapsed();
    start(on, call);
    REQUIRE(sim.run_until([&] { return call.ended(); }, 1h));
    took = std::chrono::duration_cast<std::chrono::milliseconds>(sim.elapsed() - from);
    sim.run_until_idle(1s);
    REQUIRE(call.completions == 1);
    return call.code();
  }
  /// A parallel channel over channels that answer like this.
  std::shared_ptr<braid::parallel_channel> parallel(braid::parallel_channel_options options,
                                                    const std::vector<reply>& answers) {
    auto made = std::make_shared<braid::parallel_channel>(rt, options);
    for (const reply& each : answers) made->add_channel(make(each).channel());
    return made;
  }

  std::vector<std::string> log;
  braid::testing::simulation sim{1};
  braid::runtime rt{[this] {
    auto options = sim.node_options();
    options.log = [this](braid::log_level, std::string_view text, std::span<const braid::log_field>) {
      log.emplace_back(text);
    };
    return options;
  }()};
  std::chrono::milliseconds took{0};
};

/// A mapper from a function.
class mapper final : public braid::call_mapper {
 public:
  using function = std::function<braid::sub_call(
      std::size_t index, std::size_t count, const google::protobuf::MethodDescriptor& method,
      const google::protobuf::Message& request, google::protobuf::Message& response)>;
  explicit mapper(function map) : map_(std::move(map)) {}
  braid::sub_call map(std::size_t index, std::size_t count, const google::protobuf::MethodDescriptor& method,
                      const google::protobuf::Message& request,
                      google::protobuf::Message& response) override {
    return map_(index, count, method, request, response);
  }

 private:
  function map_;
};
inline std::shared_ptr<mapper> map_with(mapper::function map) {
  return std::make_shared<mapper>(std::move(map));
}

/// Passes the request on as it is.
inline braid::sub_call same_call(const google::protobuf::MethodDescriptor& method) {
  return {method, static_cast<const google::protobuf::Message*>(nullptr)};
}

/// A merger from a function.
class merger final : public braid::response_merger {
 public:
  using function = std::function<braid::merge_result(golden::EchoResponse&, const golden::EchoResponse&)>;
  explicit merger(function merge) : merge_(std::move(merge)) {}
  braid::merge_result merge(google::protobuf::Message& response,
                            const google::protobuf::Message& sub_response) override {
    return merge_(static_cast<golden::EchoResponse&>(response),
                  static_cast<const golden::EchoResponse&>(sub_response));
  }

 private:
  function merge_;
};
inline std::shared_ptr<merger> merge_with(merger::function merge) {
  return std::make_shared<merger>(std::move(merge));
}
/// Puts the answers one after the other.
inline std::shared_ptr<merger> joining() {
  return merge_with([](golden::EchoResponse& all, const golden::EchoResponse& one) {
    all.set_message(all.message() + one.message());
    return braid::merge_result::merged;
  });
}

}  // namespace parallel_fixture
