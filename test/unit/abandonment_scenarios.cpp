#include <braid/combo_channel.hpp>
#include <braid/method.hpp>
#include <braid/parallel_channel.hpp>
#include <braid/spawn.hpp>
#include <braid/stub.hpp>

#include "unit/abandonment_scene.hpp"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/deferred.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/spawn.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/use_future.hpp>

#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace abandonment {

namespace {

namespace asio = boost::asio;

// Handlers.

void answer(braid::server_call&, const EchoRequest& q, EchoResponse& r, braid::yield_context yield) {
  braid::sleep_for(2ms, yield);
  r.set_message(q.message() + std::string(100, '.'));
}

void never(braid::server_call&, const EchoRequest&, EchoResponse&, braid::yield_context yield) {
  braid::sleep_for(1h, yield);
}

void refuse(braid::server_call& call, const EchoRequest&, EchoResponse&, braid::yield_context) {
  call.set_failed(42, "the answer is no");
}

asio::awaitable<void> answer_from_awaitable(braid::server_call&, const EchoRequest& q, EchoResponse& r) {
  co_await asio::post(asio::use_awaitable);
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

std::shared_ptr<braid::parallel_channel> parallel(scene& in, const braid::parallel_channel_options& options) {
  auto made = std::make_shared<braid::parallel_channel>(*in.near, options);
  for (std::size_t i = 0; i < in.servers.size(); ++i) made->add_channel(in.channel(i));
  return made;
}

// The first answer of all, as in the demo.
std::shared_ptr<braid::combo_channel> race(scene& in) {
  std::vector<std::shared_ptr<braid::channel_base>> over;
  for (std::size_t i = 0; i < in.servers.size(); ++i) over.push_back(in.channel(i));
  return std::make_shared<braid::combo_channel>(
      *in.near, [over = std::move(over)](braid::combo_call& made, braid::yield_context yield) {
        braid::call_group asked(made, over.size());
        for (std::size_t i = 0; i < over.size(); ++i) asked.launch(i, *over[i]);
        while (const auto* done = asked.next(yield)) {
          made.finish_as(*done);
          if (done->result.succeeded()) break;
        }
        asked.cancel_rest(braid::cancel_cause::sibling_won, yield);
      });
}

void start(scene& in, braid::channel_base& on) {
  call& made = in.new_call();
  on.async_call(echo(), made.control, made.request, made.response, made.handler());
}

asio::awaitable<void> ask_from_awaitable(std::shared_ptr<braid::channel> on, call& made) {
  const auto [ec] = co_await on->async_call(echo(), made.control, made.request, made.response,
                                            asio::as_tuple(asio::use_awaitable));
  made.end(ec);
}

asio::awaitable<void> ask_both(std::shared_ptr<braid::channel> quick, std::shared_ptr<braid::channel> slow,
                               call& winner, call& loser) {
  using namespace asio::experimental::awaitable_operators;
  co_await (ask_from_awaitable(std::move(quick), winner) || ask_from_awaitable(std::move(slow), loser));
}

// What `function` does 20 ms from now, on the clients' loop.
void later(scene& in, std::function<void()> function) {
  braid::spawn(
      *in.near,
      [function = std::move(function)](braid::yield_context yield) {
        braid::sleep_for(20ms, yield);
        function();
      },
      [](const error_code&) {});
}

const scenario all[] = {
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
       start(in, *parallel(in, {.fail_limit = 1}));
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
       auto future = std::make_shared<std::future<void>>(
           in.channel(0)->async_call(echo(), made.control, made.request, made.response, asio::use_future));
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
    {"call style: a typed stub",
     [](scene& in) {
       in.serve(answer);
       call& made = in.new_call();
       braid::stub<EchoService>(in.channel(0))
           .async_call(&EchoService::Echo, made.control, made.request,
                       [&made](const error_code& ec, EchoResponse response) {
                         if (!ec) made.response = std::move(response);
                         made.end(ec);
                       });
     }},
    {"call style: a method by its name",
     [](scene& in) {
       in.serve(answer);
       call& made = in.new_call();
       const braid::method<EchoRequest, EchoResponse> by_name{"golden.EchoService", "Echo"};
       by_name.async_call(*in.channel(0), made.control, made.request, made.response, made.handler());
     }},
    {"call style: deferred",
     [](scene& in) {
       in.serve(answer);
       call& made = in.new_call();
       in.channel(0)->async_call(echo(), made.control, made.request, made.response,
                                 asio::deferred)(made.handler());
     }},
    {"call style: co_await",
     [](scene& in) {
       in.serve(answer);
       call& made = in.new_call();
       asio::co_spawn(in.near->get_executor(), ask_from_awaitable(in.channel(0), made),
                      [&made](std::exception_ptr) { made.end_unless_ended(made.control.error()); });
     }},
    {"call style: the first of two that are awaited",
     [](scene& in) {
       in.serve(answer);
       in.serve(never);
       call& winner = in.new_call();
       call& loser = in.new_call();
       asio::co_spawn(in.near->get_executor(), ask_both(in.channel(0), in.channel(1), winner, loser),
                      [&](std::exception_ptr) {
                        for (call* each : {&winner, &loser}) each->end_unless_ended(each->control.error());
                      });
     }},
    {"call style: a stackful coroutine of Asio's",
     [](scene& in) {
       in.serve(answer);
       call& made = in.new_call();
       asio::spawn(
           in.near->get_executor(),
           [&made, channel = in.channel(0)](asio::yield_context yield) {
             error_code ec;
             channel->async_call(echo(), made.control, made.request, made.response, yield[ec]);
             made.end(ec);
           },
           [&made](std::exception_ptr) { made.end_unless_ended(made.control.error()); });
     }},
    {"cancel: a call that would take an hour, cancelled by its deadline",
     [](scene& in) {
       in.serve(never);
       call& made = in.new_call();
       made.control.set_timeout(20ms);
       in.channel(0)->async_call(echo(), made.control, made.request, made.response, made.handler());
     }},
    {"cancel: by a slot, half-way, down a cascade",
     [](scene& in) {
       in.serve(never);
       in.serve(ask(in.channel_at_server(0)));
       call& made = in.new_call();
       in.channel(1)->async_call(echo(), made.control, made.request, made.response,
                                 asio::bind_cancellation_slot(made.signal.slot(), made.handler()));
       later(in, [&made] { made.signal.emit(asio::cancellation_type::terminal); });
     }},
    {"cancel: by its id",
     [](scene& in) {
       in.serve(never);
       start(in, *in.channel(0));
       later(in, [id = in.calls.back().control.call_id()] {
         id.cancel();
         id.cancel();
       });
     }},
    {"cancel: before the start, beside a call that goes on",
     [](scene& in) {
       in.serve(answer);
       const auto channel = in.channel(0);
       start(in, *channel);
       call& made = in.new_call();
       made.control.call_id().cancel();
       channel->async_call(echo(), made.control, made.request, made.response, made.handler());
     }},
    {"cancel: with its coroutine",
     [](scene& in) {
       in.serve(never);
       call& made = in.new_call();
       braid::spawn(
           *in.near,
           [&made, channel = in.channel(0)](braid::yield_context yield) {
             error_code ec;
             channel->async_call(echo(), made.control, made.request, made.response, yield[ec]);
             made.end(ec);
           },
           asio::bind_cancellation_slot(made.signal.slot(),
                                        [&made](const error_code& ec) { made.end_unless_ended(ec); }));
       later(in, [&made] { made.signal.emit(asio::cancellation_type::terminal); });
     }},
    {"cancel: by a sibling that failed",
     [](scene& in) {
       in.serve(never);
       in.serve(refuse);
       start(in, *parallel(in, {.fail_limit = 1}));
     }},
    {"cancel: by a sibling that succeeded",
     [](scene& in) {
       in.serve(never);
       in.serve(answer);
       start(in, *parallel(in, {.success_limit = 1}));
     }},
    {"cancel: by the deadline of a tree",
     [](scene& in) {
       for (int i = 0; i < 2; ++i) in.serve(never);
       start(in, *parallel(in, {.timeout = 20ms}));
     }},
    {"your_own_combo: a race",
     [](scene& in) {
       for (int i = 0; i < 2; ++i) in.serve(answer);
       in.serve(refuse);
       in.serve(never);
       start(in, *race(in));
     }},
    {"your_own_combo: shards that are races",
     [](scene& in) {
       in.serve(answer);
       in.serve(never);
       braid::parallel_channel shards(*in.near, {.fail_limit = 1});
       for (int i = 0; i < 2; ++i) shards.add_channel(race(in));
       start(in, shards);
     }},
    {"offload: a handler that runs elsewhere",
     [](scene& in) {
       in.serve([](braid::server_call&, const EchoRequest& q,
                   EchoResponse& r) { r.set_message(q.message() + std::string(100, '.')); },
                {.run_on = *in.elsewhere});
       in.serve(answer);  // on the loop, meanwhile
       for (std::size_t i = 0; i < 2; ++i) start(in, *in.channel(i));
     }},
    {"offload: an awaitable that runs elsewhere",
     [](scene& in) {
       in.serve(answer_from_awaitable, {.run_on = *in.elsewhere});
       start(in, *in.channel(0));
     }},
};

}  // namespace

std::span<const scenario> scenarios() { return all; }

}  // namespace abandonment
