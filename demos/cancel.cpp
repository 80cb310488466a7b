// The ways in which a call ends before its answer, and how they are told apart: 1008 for a deadline, 125 for
// a cancellation, and a cause that says whose.

#include <braid/braid.hpp>

#include "answering_server.hpp"

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <chrono>
#include <exception>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>

namespace asio = boost::asio;
using namespace std::chrono_literals;
using braid::yield_context;
using service = echo::EchoService;

namespace {

void print_row(std::string_view who, std::string_view what, const braid::controller& control) {
  fmt::print("  {:<24} {:>4}  {:<14} {}\n", who, control.error().value(), to_string(control.result().cause),
             what);
}
void expect(const braid::controller& control, int code, braid::cancel_cause cause) {
  if (control.error().value() != code || control.result().cause != cause)
    throw std::runtime_error(fmt::format("expected {} and the cause {}", code, to_string(cause)));
}

// The server knows the deadline too, to the millisecond below. Where it is the first to say so, that is its
// answer, and nothing was cancelled here.
void expect_deadline(const braid::controller& control) {
  const bool told = control.result().cause == braid::cancel_cause::none;
  expect(control, 1008, told ? braid::cancel_cause::none : braid::cancel_cause::deadline);
}

class endings {
 public:
  endings(braid::runtime& rt, const answering_server& server, std::shared_ptr<braid::channel> channel)
      : rt_(rt), server_(server), channel_(std::move(channel)), echo_(channel_) {}

  void deadline() {
    braid::controller control;
    control.set_timeout(50ms);
    call(control, "slow");
    print_row("deadline", "no answer within 50 ms", control);
    expect_deadline(control);
    if (control.error() != boost::system::errc::timed_out) throw std::runtime_error("1008 is no timed_out");
  }

  void another_thread() {
    braid::controller control;
    const braid::call_id id = control.call_id();  // may outlive the controller
    const int next = server_.started() + 1;
    std::thread canceller([&, id] {
      server_.wait_for_call(next);
      id.cancel();
      id.cancel();  // again: no effect
    });
    call(control, "slow");
    canceller.join();
    id.cancel();  // too late: no effect
    print_row("another thread", "call_id::cancel()", control);
    expect(control, 125, braid::cancel_cause::user);
    if (control.error() != asio::error::operation_aborted)
      throw std::runtime_error("125 is no operation_aborted");
  }

  void before_the_start() {
    braid::controller control;
    control.call_id().cancel();
    const int before = server_.started();
    call(control, "slow");
    print_row("before the start", "nothing is sent", control);
    expect(control, 125, braid::cancel_cause::user);
    if (control.attempts() != 0 || server_.started() != before)
      throw std::runtime_error("something was sent");
  }

  void by_slot() {
    braid::controller control;
    asio::io_context mine;
    asio::cancellation_signal signal;
    const int next = server_.started() + 1;
    echo_.async_call(
        &service::Echo, control, ask("slow"),
        asio::bind_executor(mine, asio::bind_cancellation_slot(
                                      signal.slot(), [](braid::error_code, const echo::EchoResponse&) {})));
    asio::post(mine, [&] {  // a signal is emitted on the handler's executor only
      server_.wait_for_call(next);
      signal.emit(asio::cancellation_type::terminal);
    });
    mine.run();
    print_row("slot of the token", "signal.emit(terminal)", control);
    expect(control, 125, braid::cancel_cause::user);
  }

  void with_its_coroutine() {
    braid::controller control;
    asio::cancellation_signal signal;
    std::promise<void> ended;
    const int next = server_.started() + 1;
    braid::spawn(
        rt_, [&](yield_context yield) { echo_.async_call(&service::Echo, control, ask("slow"), yield); },
        asio::bind_cancellation_slot(signal.slot(), [&](braid::error_code) { ended.set_value(); }));
    server_.wait_for_call(next);
    asio::post(rt_.get_executor(), [&] { signal.emit(asio::cancellation_type::terminal); });
    ended.get_future().wait();
    print_row("its coroutine", "the coroutine was cancelled", control);
    expect(control, 125, braid::cancel_cause::user);
  }

  void by_a_failed_sibling() {
    braid::controller control;
    call_both({.timeout = 60s, .fail_limit = 1}, "slow", "wrong", control);
    print_row("fail_limit 1", "the call: the code of the sub call that failed", control);
    print_row("  sub call 0", "cancelled, since one failure is enough", *control.sub(0));
    print_row("  sub call 1", "the server's own answer", *control.sub(1));
    expect(control, 42, braid::cancel_cause::none);
    expect(*control.sub(0), 125, braid::cancel_cause::fail_limit);
    expect(*control.sub(1), 42, braid::cancel_cause::none);
  }

  void by_a_successful_sibling() {
    braid::controller control;
    call_both({.timeout = 60s, .success_limit = 1}, "slow", "quick", control);
    print_row("success_limit 1", "the call: a success", control);
    print_row("  sub call 0", "cancelled, since one success is enough", *control.sub(0));
    print_row("  sub call 1", "the success", *control.sub(1));
    expect(control, 0, braid::cancel_cause::none);
    expect(*control.sub(0), 1006, braid::cancel_cause::success_limit);
    expect(*control.sub(1), 0, braid::cancel_cause::none);
  }

  void deadline_of_the_tree() {
    braid::controller control;
    call_both({.timeout = 50ms}, "slow", "slow", control);
    print_row("deadline of the whole", "one deadline for the tree", control);
    print_row("  sub call 0", "at every depth", *control.sub(0));
    expect_deadline(control);
    expect_deadline(*control.sub(0));
  }

 private:
  void call(braid::controller& control, const std::string& message) {
    braid::error_code ec;
    echo_.call(&service::Echo, control, ask(message), ec);
  }
  void call_both(const braid::parallel_channel_options& options, const std::string& one,
                 const std::string& two, braid::controller& control) {
    braid::parallel_channel both(rt_, options);
    both.add_channel(channel_, mapper(one));
    both.add_channel(channel_, mapper(two));
    braid::error_code ec;
    braid::stub<service>(both).call(&service::Echo, control, {}, ec);
  }

  /// Sends its own message instead of the call's.
  static std::shared_ptr<braid::call_mapper> mapper(const std::string& message) {
    struct replacing final : braid::call_mapper {
      explicit replacing(std::string m) : message(std::move(m)) {}
      braid::sub_call map(std::size_t, std::size_t, const google::protobuf::MethodDescriptor& method,
                          const google::protobuf::Message&, google::protobuf::Message&) override {
        return {method, std::make_unique<echo::EchoRequest>(ask(message))};
      }
      std::string message;
    };
    return std::make_shared<replacing>(message);
  }

  braid::runtime& rt_;
  const answering_server& server_;
  std::shared_ptr<braid::channel> channel_;
  braid::stub<service> echo_;
};

void run() {
  braid::runtime rt({.loops = 1});
  const answering_server server(rt);
  auto channel = std::make_shared<braid::channel>(rt);
  channel->init(server.address(), {.timeout = 60s, .connect_timeout = 10s});
  endings all(rt, server, channel);
  fmt::print("  {:<24} {:>4}  {:<14} {}\n", "ended by", "code", "cause", "");
  all.deadline();
  all.another_thread();
  all.before_the_start();
  all.by_slot();
  all.with_its_coroutine();
  all.by_a_failed_sibling();
  all.by_a_successful_sibling();
  all.deadline_of_the_tree();
  fmt::print("timed out is 1008, cancelled is 125, and the cause says by whom\n");
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Ends calls by a deadline, from another thread, by a slot, with their coroutine and by their siblings, "
      "and prints code and cause of each. Exits with 1 when any of it is not what it should be.");
  CLI11_PARSE(app, argc, argv);
  try {
    run();
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "cancel: {}\n", error.what());
    return 1;
  }
}
