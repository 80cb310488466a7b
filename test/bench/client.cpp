#include <braid/channel.hpp>
#include <braid/method.hpp>
#include <braid/parallel_channel.hpp>
#include <braid/runtime.hpp>
#include <braid/spawn.hpp>

#include "bench_echo.pb.h"
#include "bench_harness.hpp"

#include <boost/asio/post.hpp>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace {

using bench::arguments;
using bench::EchoRequest;
using bench::EchoResponse;
using bench::EchoService;
using bench::now_ns;

// Attachments come in pieces, so that payload_ok() does not fit.
bool attachment_ok(const braid::buffer& answer, std::string_view sent) {
  if (answer.size() != sent.size()) return false;
  return sent.empty() || (answer.piece(0).front() == sent.front() &&
                          answer.piece(answer.piece_count() - 1).back() == sent.back());
}

class client {
 public:
  explicit client(const arguments& args)
      : args_(args),
        payload_(bench::make_payload(args.payload)),
        attachment_(payload_),
        runtime_({.loops = args.threads}) {}

  [[noreturn]] void run() {
    if (args_.workload == "echo") echo();
    if (args_.workload == "fanout") fanout();
    if (args_.workload == "hold") hold();
    if (args_.workload == "idle") idle();
    bench::detail::refuse("--workload=" + args_.workload);
  }

 private:
  std::chrono::milliseconds timeout() const { return std::chrono::milliseconds(args_.timeout_ms); }

  // The n-th channel has a connection of its own.
  void open_channels(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      auto& channel = channels_.emplace_back(std::make_shared<braid::channel>(runtime_));
      channel->init(fmt::format("{}:{}", args_.host, args_.port),
                    {.timeout = timeout(), .connection_group = fmt::format("c{}", channels_.size() - 1)});
    }
  }

  template <typename Function>
  void on_loop(std::size_t index, Function function) {
    boost::asio::post(runtime_.loop_executor(index % runtime_.loop_count()), std::move(function));
  }

  template <typename Function>
  void spawn_on_loop(std::size_t index, Function function) {
    on_loop(index, [this, function = std::move(function)]() mutable {
      braid::spawn(runtime_, std::move(function));  // on the current loop
    });
  }

  // Each connection has one loop, so that there are no more connections than asked for.
  [[noreturn]] void echo() {
    open_channels(args_.conns);
    for (std::size_t slot = 0; slot < args_.inflight; ++slot) {
      const std::size_t connection = slot % args_.conns;
      spawn_on_loop(connection, [this, connection](braid::yield_context yield) {
        if (args_.attach) {
          echo_attachments(*channels_[connection], yield);
        } else {
          echo_payloads(*channels_[connection], yield);
        }
      });
    }
    bench::measure_and_exit(args_);
  }

  void echo_payloads(braid::channel& channel, braid::yield_context yield) {
    EchoRequest request;
    EchoResponse response;
    while (!bench::stopping()) {
      request.set_payload(payload_);
      braid::error_code error;
      const auto start = now_ns();
      channel.async_call(echo_method_, request, response, yield[error]);
      bench::record(start, !error && bench::payload_ok(response.payload(), payload_));
    }
  }

  void echo_attachments(braid::channel& channel, braid::yield_context yield) {
    const EchoRequest request;
    EchoResponse response;
    braid::controller control;
    while (!bench::stopping()) {
      control.Reset();
      control.request_attachment() = attachment_;
      braid::error_code error;
      const auto start = now_ns();
      channel.async_call(echo_method_, control, request, response, yield[error]);
      bench::record(start, !error && attachment_ok(std::as_const(control).response_attachment(), payload_));
    }
  }

  // Looks at every answer; a wrong one fails the parent call.
  class checking_merger : public braid::response_merger {
   public:
    explicit checking_merger(const std::string& sent) : sent_(sent) {}

    braid::merge_result merge(google::protobuf::Message&,
                              const google::protobuf::Message& sub_response) override {
      const auto& answer = static_cast<const EchoResponse&>(sub_response);
      return bench::payload_ok(answer.payload(), sent_) ? braid::merge_result::merged
                                                        : braid::merge_result::fail_all;
    }

   private:
    const std::string& sent_;
  };

  // The parent calls are spread over the loops, and each loop has a set of connections of its own.
  [[noreturn]] void fanout() {
    open_channels(args_.conns);
    braid::parallel_channel all(runtime_, {.timeout = timeout(), .fail_limit = 1});
    const auto merger = std::make_shared<checking_merger>(payload_);
    for (std::size_t i = 0; i < args_.fanout; ++i)
      all.add_channel(channels_[i % args_.conns], nullptr, merger);
    for (std::size_t parent = 0; parent < args_.inflight; ++parent) {
      spawn_on_loop(parent, [this, &all](braid::yield_context yield) { fan_out(all, yield); });
    }
    bench::measure_and_exit(args_);
  }

  void fan_out(braid::parallel_channel& all, braid::yield_context yield) {
    EchoRequest request;
    EchoResponse response;
    while (!bench::stopping()) {
      request.set_payload(payload_);
      braid::error_code error;
      const auto start = now_ns();
      all.async_call(echo_method_, request, response, yield[error]);
      bench::record(start, !error);
    }
  }

  [[noreturn]] void hold() {
    open_channels(1);
    call_each(0, 1);
    bench::hold_begin(args_);
    on_loop(0, [this] {
      EchoRequest request;
      request.set_payload(payload_);
      request.set_hold_ms(args_.hold_ms);
      for (std::size_t i = 0; i < args_.total; ++i) hold_one(request);
      bench::hold_issued();
    });
    bench::hold_wait_and_exit(args_);
  }

  void hold_one(const EchoRequest& request) {
    auto owned = std::make_unique<EchoResponse>();
    auto& response = *owned;
    const auto start = now_ns();
    channels_[0]->async_call(
        hold_method_, request, response, [this, start, owned = std::move(owned)](braid::error_code error) {
          bench::hold_done(start, !error && bench::payload_ok(owned->payload(), payload_));
        });
  }

  [[noreturn]] void idle() {
    constexpr std::size_t before = 8;
    open_channels(before);
    call_each(0, before);
    bench::idle_begin(args_);
    open_channels(args_.conns);
    call_each(before, args_.conns);
    bench::idle_end_and_exit(args_);
  }

  // A call on each of `count` channels, on each loop one after the other: what stays is then the connections'
  // memory and not that of a thousand coroutines. Waits for all.
  void call_each(std::size_t first, std::size_t count) {
    std::atomic<std::size_t> left{count};
    for (std::size_t loop = 0; loop < runtime_.loop_count(); ++loop) {
      spawn_on_loop(loop, [this, loop, first, count, &left](braid::yield_context yield) {
        EchoRequest request;
        EchoResponse response;
        request.set_payload(payload_);
        for (std::size_t i = first; i < first + count; ++i) {
          if (i % runtime_.loop_count() != loop) continue;
          braid::error_code error;
          channels_[i]->async_call(echo_method_, request, response, yield[error]);
          if (error || !bench::payload_ok(response.payload(), payload_)) bench::record(0, false);
          --left;
        }
      });
    }
    while (left > 0) bench::nap(0.001);
  }

  const google::protobuf::MethodDescriptor& echo_method_ = braid::describe_method(&EchoService::Echo);
  const google::protobuf::MethodDescriptor& hold_method_ = braid::describe_method(&EchoService::Hold);
  const arguments args_;
  const std::string payload_;
  const braid::buffer attachment_;
  braid::runtime runtime_;
  std::vector<std::shared_ptr<braid::channel>> channels_;
};

}  // namespace

int main(int argc, char** argv) { client(bench::parse_arguments(argc, argv)).run(); }
