#include "unit/handler_world.hpp"

namespace handler_test {

namespace {

using google::protobuf::Closure;

// The same in a coroutine, in a plain handler, and in a generated one.
void call_and_wait(world& w, server_call& call, const EchoRequest& q, EchoResponse& r) {
  auto& made = w.prepare(q);
  error_code ec;
  w.down.call(echo, made.control, made.request, made.response, ec);
  w.note_end(made);
  take_answer(call, made, r);
}

void call_and_yield(world& w, server_call& call, const EchoRequest& q, EchoResponse& r, yield_context yield) {
  auto& made = w.prepare(q);
  error_code ec;
  w.down.async_call(echo, made.control, made.request, made.response, yield[ec]);
  w.note_end(made);
  take_answer(call, made, r);
}

}  // namespace

void serve(world& w, style written, const placement& where, std::function<void(server_call&)> first) {
  const braid::method_options options{.run_on = where};
  auto& server = *w.server;
  switch (written) {
    case style::stackful:
      server.handle(
          &EchoService::Echo,
          [&w, first](server_call& call, const EchoRequest& q, EchoResponse& r, yield_context yield) {
            first(call);
            call_and_yield(w, call, q, r, yield);
          },
          options);
      break;
    case style::plain:
      server.handle(
          &EchoService::Echo,
          [&w, first](server_call& call, const EchoRequest& q, EchoResponse& r) {
            first(call);
            call_and_wait(w, call, q, r);
          },
          options);
      break;
    case style::awaitable:
      server.handle(
          &EchoService::Echo,
          [&w, first](server_call& call, const EchoRequest& q, EchoResponse& r) {
            first(call);
            return pass_on(w, call, q, r);
          },
          options);
      break;
    case style::callback:
      server.handle(
          &EchoService::Echo,
          [&w, first](server_call& call, const EchoRequest& q, EchoResponse& r, call_done done) {
            first(call);
            pass_on_later(w, call, q, r, done);
          },
          options);
      break;
    case style::generated:
      w.service.run = [&w, first](server_call& call, const EchoRequest& q, EchoResponse& r, Closure* done) {
        first(call);
        call_and_wait(w, call, q, r);
        done->Run();
      };
      server.add_service(w.service, options);
      break;
    case style::generated_later:
      w.service.run = [&w, first](server_call& call, const EchoRequest& q, EchoResponse& r, Closure* done) {
        first(call);
        pass_on_later(w, call, q, r, [done] { done->Run(); });
      };
      server.add_service(w.service, options);
      break;
  }
  w.start();
}

void serve_at_once(world& w, style written, const placement& where, handler_body body) {
  const braid::method_options options{.run_on = where};
  auto& server = *w.server;
  switch (written) {
    case style::stackful:
      server.handle(
          &EchoService::Echo,
          [body](server_call& call, const EchoRequest& q, EchoResponse& r, yield_context) {
            body(call, q, r);
          },
          options);
      break;
    case style::plain:
      server.handle(&EchoService::Echo, body, options);
      break;
    case style::awaitable:
      server.handle(
          &EchoService::Echo,
          [body](server_call& call, const EchoRequest& q, EchoResponse& r) -> asio::awaitable<void> {
            co_await asio::post(asio::use_awaitable);
            body(call, q, r);
          },
          options);
      break;
    case style::callback:
      server.handle(
          &EchoService::Echo,
          [body](server_call& call, const EchoRequest& q, EchoResponse& r, call_done done) {
            body(call, q, r);
            done();
          },
          options);
      break;
    case style::generated:
    case style::generated_later:
      w.service.run = [body](server_call& call, const EchoRequest& q, EchoResponse& r, Closure* done) {
        body(call, q, r);
        done->Run();
      };
      server.add_service(w.service, options);
      break;
  }
  w.start();
}

}  // namespace handler_test
