// The same call in each style that there is, against a server in this process: choose the one that suits the
// code around it.

#include <braid/braid.hpp>

#include "answering_server.hpp"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/deferred.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/spawn.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/use_future.hpp>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

namespace asio = boost::asio;
using namespace std::chrono_literals;
using braid::yield_context;
using service = echo::EchoService;

namespace {

void check(std::string_view style, std::string_view said, std::string_view wanted) {
  fmt::print("  {:<52} {}\n", style, said);
  if (said != wanted) throw std::runtime_error(fmt::format("{}: expected '{}'", style, wanted));
}

std::string describe(const braid::call_error& e) {
  return fmt::format("{} '{}' after {} attempt", e.code().value(), e.text(), e.attempts());
}
const std::string no = "42 'the answer is no' after 1 attempt";

class styles {
 public:
  styles(braid::runtime& rt, std::shared_ptr<braid::channel> channel)
      : rt_(rt), channel_(std::move(channel)), echo_(channel_) {}

  void synchronous() {
    fmt::print("On any thread that is no loop of braid's: it blocks\n");
    check("call(...)", echo_.call(&service::Echo, ask("hello")).message(), "hello");
    braid::error_code ec;
    braid::controller control;
    echo_.call(&service::Echo, control, ask("wrong"), ec);
    check("call(..., ec), and a controller that knows more",
          fmt::format("{} '{}'", ec.value(), control.ErrorText()), "42 'the answer is no'");
    check("call(...) that throws call_error", thrown_by([&] { echo_.call(&service::Echo, ask("wrong")); }),
          no);
    echo::EchoResponse response;
    const auto request = ask("unchanged");
    service::Stub(channel_.get()).Echo(nullptr, &request, &response, nullptr);
    check("the stub that protobuf generates", response.message(), "unchanged");
    const braid::method<echo::EchoRequest, echo::EchoResponse> by_name{"echo.EchoService", "Echo"};
    check("a method by its name", by_name.call(*channel_, ask("named")).message(), "named");
  }

  void with_handlers() {
    fmt::print("From anywhere, answered elsewhere\n");
    std::promise<std::string> said;
    echo_.async_call(&service::Echo, ask("called back"),
                     [&](braid::error_code, const echo::EchoResponse& r) { said.set_value(r.message()); });
    check("a callback, on the loop", said.get_future().get(), "called back");
    echo_.async_call(&service::Echo, ask("on my context"),
                     asio::bind_executor(mine_, [&](braid::error_code, const echo::EchoResponse& r) {
                       check("a callback on an executor of one's own", r.message(), "on my context");
                     }));
    mine_.run();
    mine_.restart();
    check("use_future", echo_.async_call(&service::Echo, ask("future"), asio::use_future).get().message(),
          "future");
    check("use_future that throws call_error",
          thrown_by([&] { echo_.async_call(&service::Echo, ask("wrong"), asio::use_future).get(); }), no);
    auto later = echo_.async_call(&service::Echo, ask("deferred"), asio::deferred);
    check("deferred: starts when it is told to", std::move(later)(asio::use_future).get().message(),
          "deferred");
  }

  void in_coroutines_of_braid() {
    fmt::print("In a coroutine of braid, such as a handler: it suspends\n");
    braid::spawn(
        rt_, [&](yield_context yield) { stackful(yield); }, asio::use_future)
        .get();
  }
  void in_coroutines_of_asio() {
    fmt::print("In a stackful coroutine of Asio, on a context of one's own\n");
    run_here([&](auto token) {
      asio::spawn(
          mine_, [&](asio::yield_context yield) { stackful(yield); }, token);
    });
  }
  void in_awaitables() {
    fmt::print("In a C++20 coroutine of Asio\n");
    run_here([&](auto token) { asio::co_spawn(mine_, stackless(), token); });
  }

 private:
  static std::string thrown_by(const std::function<void()>& call) {
    try {
      call();
    } catch (const braid::call_error& e) {
      return describe(e);
    }
    return "nothing was thrown";
  }

  template <typename Start>
  void run_here(Start start) {
    std::exception_ptr thrown;
    start([&](std::exception_ptr e) noexcept { thrown = e; });
    mine_.run();
    mine_.restart();
    if (thrown) std::rethrow_exception(thrown);
  }

  template <typename Yield>
  void stackful(Yield yield) {
    check("async_call(..., yield)", echo_.async_call(&service::Echo, ask("hello"), yield).message(), "hello");
    braid::error_code ec;
    echo_.async_call(&service::Echo, ask("wrong"), yield[ec]);
    check("async_call(..., yield[ec])", std::to_string(ec.value()), "42");
    check("async_call(..., yield) that throws call_error",
          thrown_by([&] { echo_.async_call(&service::Echo, ask("wrong"), yield); }), no);
    const auto [code, response] = echo_.async_call(&service::Echo, ask("tuple"), asio::as_tuple(yield));
    check("as_tuple(yield)", fmt::format("{} {}", code.value(), response.message()), "0 tuple");
    if constexpr (std::is_same_v<Yield, yield_context>)
      check("call(...), which suspends here", echo_.call(&service::Echo, ask("suspended")).message(),
            "suspended");
  }

  asio::awaitable<void> stackless() {
    using namespace asio::experimental::awaitable_operators;
    const auto one = co_await echo_.async_call(&service::Echo, ask("hello"), asio::use_awaitable);
    check("use_awaitable", one.message(), "hello");
    std::string said;
    try {
      co_await echo_.async_call(&service::Echo, ask("wrong"), asio::use_awaitable);
    } catch (const braid::call_error& e) {
      said = describe(e);
    }
    check("use_awaitable that throws call_error", said, no);
    const auto [ec, none] =
        co_await echo_.async_call(&service::Echo, ask("wrong"), asio::as_tuple(asio::use_awaitable));
    check("as_tuple(use_awaitable)", std::to_string(ec.value()), "42");
    const auto by_default = asio::use_awaitable_t<>::as_default_on(echo_);
    const auto two = co_await by_default.async_call(&service::Echo, ask("no token"));
    check("a stub whose token is use_awaitable by default", two.message(), "no token");
    braid::controller loser;
    const auto first = co_await (by_default.async_call(&service::Echo, loser, ask("slow")) ||
                                 by_default.async_call(&service::Echo, ask("quick")));
    check("of two, the first; the other is cancelled",
          fmt::format("{}, {}", std::get<1>(first).message(), loser.error().value()), "quick, 125");
  }

  braid::runtime& rt_;
  std::shared_ptr<braid::channel> channel_;
  braid::stub<service> echo_;
  asio::io_context mine_;
};

void run() {
  braid::runtime rt({.loops = 1});
  const answering_server server(rt);
  auto channel = std::make_shared<braid::channel>(rt);
  channel->init(server.address(), {.timeout = 60s, .connect_timeout = 10s});
  styles all(rt, channel);
  all.synchronous();
  all.with_handlers();
  all.in_coroutines_of_braid();
  all.in_coroutines_of_asio();
  all.in_awaitables();
  fmt::print("each answered as it should\n");
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Makes the same call in each style that there is, against a server in this process, and prints what it "
      "returned. Exits with 1 when any of it is not what it should be.");
  CLI11_PARSE(app, argc, argv);
  try {
    run();
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "call_styles: {}\n", error.what());
    return 1;
  }
}
