#pragma once

/// \file
/// The server: services, their calls, starting and stopping.

#include <braid/authenticator.hpp>
#include <braid/call_parent.hpp>
#include <braid/cancellation.hpp>
#include <braid/completion.hpp>
#include <braid/config.hpp>
#include <braid/controller.hpp>
#include <braid/coroutine.hpp>
#include <braid/endpoint.hpp>
#include <braid/error.hpp>
#include <braid/handler.hpp>
#include <braid/interceptor.hpp>
#include <braid/method.hpp>
#include <braid/placement.hpp>
#include <braid/runtime.hpp>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/async_result.hpp>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <google/protobuf/service.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace braid {

namespace server_side {
class server_core;
}

/// One call at the server, and its controller: what a generated service gets as `RpcController*`.
///
/// What it does: tells the handler about the call, and takes the error, the metadata and the attachment of
/// its answer. Calls that a handler makes on channels inherit the deadline and the cancellation; those of the
/// callbacks that it leaves behind do so by controller::set_parent(), or on get_executor().
///
/// Object lifetimes: lives until the handler has returned and `done` was run.
///
/// Thread safety: belongs to the handler. cancelled(), IsCanceled(), NotifyOnCancel(), get_executor() and
/// controller::set_parent() may be used from any thread.
class server_call : public controller_base, public call_parent {
 public:
  /// The full method, such as "echo.EchoService.Echo".
  virtual const google::protobuf::MethodDescriptor& method() const noexcept = 0;
  /// Who calls. Clients of a unix socket have no names of their own: theirs is the server's path.
  virtual const endpoint& remote_side() const noexcept = 0;
  /// When the caller stops waiting, on the loop's clock; time_point::max(): never.
  virtual std::chrono::steady_clock::time_point deadline() const noexcept = 0;
  /// Who the client is, as the server's authenticator found when it checked the connection's credential; null
  /// when the server has none. Valid as long as this object.
  virtual const auth_context* auth() const noexcept = 0;
  /// Why this call was cancelled: its deadline, its client is gone, the server stops; or the client's own
  /// cause, where the client could tell it. None while nobody did.
  virtual cancel_cause cancelled() const noexcept = 0;
  /// An executor, where the handler runs, whose functions are part of this call: what they call downstream
  /// inherits its deadline and its cancellation. So do coroutines of Asio that are spawned on it.
  virtual boost::asio::any_io_executor get_executor() = 0;

  // google::protobuf::RpcController

  /// Whether cancelled() names a cause.
  bool IsCanceled() const override { return cancelled() != cancel_cause::none; }
  /// Runs `callback` once, on the loop that read the request: when the call is cancelled, at once when it
  /// was, or when it has ended. Where the runtime has gone first, on the thread that ends the call.
  void NotifyOnCancel(google::protobuf::Closure* callback) override = 0;
  /// For clients; the server's side ignores them.
  void StartCancel() override {}
  /// For clients; the server's side ignores it.
  void Reset() override {}

 protected:
  server_call() = default;
  ~server_call() override = default;
};

/// The settings of a server.
struct server_options {
  /// The deadline of calls whose client sent none, counted from the read of the request. Zero or negative:
  /// none.
  std::chrono::milliseconds default_timeout{0};

  /// A request whose body is larger fails with errc::bad_request; its bytes are discarded as they come, and
  /// the other calls of its connection live on. Bytes, from 1 to 2 GiB - 1.
  std::size_t max_body_size = std::size_t{64} * 1024 * 1024;

  /// Bytes of answers that may wait to be sent on one connection. Above it the connection is not read from
  /// until half of them have gone, and an answer that would take what waits above twice this fails with
  /// errc::overcrowded instead; a connection on which nothing waits takes one of any size. 0: no limit.
  std::size_t max_unsent_bytes = std::size_t{64} * 1024 * 1024;

  /// Bytes that one connection may make the server hold: requests whose handlers have not ended,
  /// decompressed, and answers that wait. A request that would take it above this fails with errc::limit, and
  /// its bytes are not stored; one that is alone is always taken. 0: no limit.
  std::size_t max_bytes_in_flight_per_connection = std::size_t{256} * 1024 * 1024;
  /// The same for all connections together, and requests that have arrived in part count too. Above it an
  /// answer behind others that wait fails with errc::overcrowded. Known to about 64 KiB for each busy
  /// connection. 0: no limit.
  std::size_t max_bytes_in_flight = std::size_t{1024} * 1024 * 1024;

  /// How many calls of the server may run at once, counted until their handlers have ended. One more fails
  /// with errc::limit. 0: no limit. For one method see server::limit_concurrency().
  std::size_t max_concurrency = 0;
  /// The same for the calls of one connection.
  std::size_t max_concurrency_per_connection = 16 * 1024;

  /// How long each KiB of an incomplete frame may take to arrive, and each KiB of unsent answers to leave,
  /// before the connection is closed; the rest of a frame counts like a KiB. Zero or negative: no limit.
  std::chrono::milliseconds progress_timeout{10'000};
  /// How long a connection may be without use before it is closed: no byte arrives, no call runs, no answer
  /// waits. After a call it may take up to twice this. Zero or negative: no limit.
  std::chrono::milliseconds idle_timeout = std::chrono::minutes(10);

  /// How many connections may be open; more are reset as they are accepted. 0: no limit.
  std::size_t max_connections = 100'000;

  /// Idle time before TCP keepalive probes; zero: off.
  std::chrono::seconds keepalive{30};
  /// How long sent bytes may stay unacknowledged before the connection is given up; zero: the system's
  /// default.
  std::chrono::milliseconds tcp_user_timeout{30'000};

  /// Checks the credential of each connection, before its first request runs; see authenticator. Null:
  /// everybody may call, and credentials are ignored.
  std::shared_ptr<authenticator> auth{};
  /// How long checking one may take, before it counts as refused. Zero or negative: no limit.
  std::chrono::milliseconds auth_timeout{10'000};
  /// Functions around the calls of every method, the first outermost. Empty: none.
  std::vector<server_interceptor> interceptors{};
};

/// How a server is stopped.
struct stop_options {
  /// How long running calls may go on before they are cancelled.
  std::chrono::milliseconds grace{1000};
  /// How long cancelled calls may take to end before stop() returns without them.
  std::chrono::milliseconds kill{1000};
};

/// A server: listens, reads requests, runs their handlers in coroutines.
///
/// What it does: connections are spread over the runtime's loops. A handler runs on the loop that read the
/// request, unless its method_options name another place. There a generated service, a plain and a stackful
/// function run in a coroutine, which their synchronous calls suspend; an awaitable and a callback handler
/// run without.
///
/// Errors told to clients: unknown service 1001, unknown method 1002, unreadable request 1003, missing or
/// refused credentials 1004, past the deadline 1008, an answer that finds no room 1011, a handler that threw
/// 2001, a response that cannot be serialised 2002, stopping 2003, over a limit 2004. Limits are in
/// server_options.
///
/// Object lifetimes: the destructor stops without grace. Services are kept until their last call has ended.
///
/// Thread safety: services are added and the server started from one thread; stop() and the rest from any.
class server {
 public:
  /// A server on the loops of `rt`, without services; it listens from start() on.
  explicit server(const runtime& rt, server_options options = {});
  server(const server&) = delete;
  server& operator=(const server&) = delete;
  ~server();

  /// Adds a generated service. Its methods may run `done` later, from any thread, once; a method that throws
  /// must not have handed it to anybody. Throws 22 when `service` is null, a service of that name exists or
  /// the server was started.
  /// `options` are those of each method.
  void add_service(std::unique_ptr<google::protobuf::Service> service, const method_options& options = {});
  /// The same for a service that outlives the server.
  void add_service(google::protobuf::Service& service, const method_options& options = {});

  /// Adds a function as the handler of one method. Its signature chooses its style:
  ///
  ///     void(server_call&, const Request&, Response&)                   plain: answers by returning
  ///     void(server_call&, const Request&, Response&, yield_context)    stackful: so too, and may suspend
  ///     asio::awaitable<void>(server_call&, const Request&, Response&)  awaitable: answers by its end
  ///     void(server_call&, const Request&, Response&, call_done)        callback: answers by calling
  ///     call_done
  ///
  /// `handler` must be copyable. All but the last fail by server_call::set_failed() or by throwing. Calls
  /// that they make downstream inherit the deadline and the cancellation of the server call.
  ///
  /// Executor: `options.run_on`. On a loop, plain and stackful handlers run in a coroutine, awaitable and
  /// callback ones on the loop's base stack, where synchronous calls are refused. On another executor a
  /// handler runs on its threads, where synchronous calls block; awaitables run on a strand of it.
  ///
  /// Cancellation: a coroutine's waits end early (stackful, plain on a loop), an awaitable gets `terminal`;
  /// others ask server_call::cancelled() or use NotifyOnCancel().
  ///
  /// Errors: throws 22 when the method has a handler, its messages are not of generated code, the server was
  /// started, or `options` do not fit.
  ///
  /// Thread safety: `handler` is called for several calls at once, on all loops.
  template <typename Handler>
  void handle(const google::protobuf::MethodDescriptor& method, Handler handler,
              const method_options& options = {}) {
    add_handler(
        method,
        detail::erase_handler<google::protobuf::Message, google::protobuf::Message>(std::move(handler)),
        options);
  }

  /// The same for a generated method: `srv.handle(&EchoService::Echo, [](server_call&, const EchoRequest&,
  /// EchoResponse&, yield_context) {...})`.
  template <typename Service, typename Request, typename Response, typename Handler>
  void handle(generated_method<Service, Request, Response> method, Handler handler,
              const method_options& options = {}) {
    add_handler(describe_method(method), detail::erase_handler<Request, Response>(std::move(handler)),
                options);
  }

  /// The same for a method that is named rather than generated.
  template <typename Request, typename Response, typename Handler>
  void handle(const method<Request, Response>& method, Handler handler, const method_options& options = {}) {
    add_handler(method.descriptor(), detail::erase_handler<Request, Response>(std::move(handler)), options);
  }

  /// Replaces the options of one method that was added, such as one of a generated service. Throws 22 when it
  /// was not, or the server was started, or they do not fit.
  void set_options(const google::protobuf::MethodDescriptor& method, const method_options& options);
  /// The same for a generated method.
  template <typename Service, typename Request, typename Response>
  void set_options(generated_method<Service, Request, Response> method, const method_options& options) {
    set_options(describe_method(method), options);
  }

  /// How many calls of one method, which was added before, may run at once, counted until their handlers have
  /// ended; one more fails with errc::limit. 0: no limit. Throws 1002 when the server has no such method, 22
  /// when it was started.
  void limit_concurrency(const google::protobuf::MethodDescriptor& method, std::size_t most);
  /// The same for a generated method: `srv.limit_concurrency(&EchoService::Echo, 10)`.
  template <typename Service, typename Request, typename Response>
  void limit_concurrency(generated_method<Service, Request, Response> method, std::size_t most) {
    limit_concurrency(describe_method(method), most);
  }

  /// Listens on "host:port" with a literal address; port 0: one that the system chooses, see port(). Or on a
  /// unix socket, "unix:path" or "unix:@name": a socket file on which nobody listens any more is replaced, a
  /// living one and a file that is no socket are left alone (98, 88); the file is removed when the server
  /// stops. Its permissions are those that the process's umask leaves. May be called for several addresses.
  /// Throws a system_error that names what is wrong.
  void start(std::string_view address);
  /// The same; what is wrong goes to `ec`.
  void start(std::string_view address, error_code& ec);

  /// The port of the first address; 0 before start(), and for a unix socket.
  std::uint16_t port() const noexcept;
  /// All addresses that are listened on.
  std::vector<endpoint> endpoints() const;

  /// Stops: accepts no more, answers new requests with 2003, lets running calls go on for `grace`, then
  /// cancels them (they are answered with 2003) and waits for `kill`. Returns the names of the handlers that
  /// had not ended by then; what they use is kept alive. A loop that one of them holds up, so that it cannot
  /// say so, is named instead, a moment later; on a lent context such a handler holds up the begin of the
  /// stop too. Refused with a system_error (EDEADLK) on the server's own loops. Idempotent.
  std::vector<std::string> stop(stop_options options = {});

  /// The same without waiting; allowed on the server's own loops too.
  ///
  /// Completion signature: `void(error_code, std::vector<std::string>)`, the names that stop() returns.
  ///
  /// Executor: the handler is called on its associated executor, by default the loop on which the stop came
  /// to its end, never inside the initiating function. When the runtime is gone it is posted to its own
  /// executor, else to the system's.
  ///
  /// Cancellation: none. `terminal`, `partial` and `total` are ignored, since a stop cannot be undone;
  /// another stop with shorter times ends it earlier.
  ///
  /// Errors: none; the code is always that of success.
  ///
  /// Object lifetimes: the server may be destroyed after the start, which ends the grace; the handler is
  /// called all the same.
  ///
  /// Thread safety: may be called from any thread.
  template <typename CompletionToken>
  auto async_stop(stop_options options, CompletionToken&& token) {
    return boost::asio::async_initiate<CompletionToken, void(error_code, std::vector<std::string>)>(
        [this, options](auto handler) {
          start_stop(
              options,
              detail::handler_completion<decltype(handler), error_code, std::vector<std::string>>::create(
                  std::move(handler)));
        },
        token);
  }

 private:
  void add_shared(std::shared_ptr<google::protobuf::Service> service, const method_options& options);
  void add_handler(const google::protobuf::MethodDescriptor& method, detail::any_handler handler,
                   const method_options& options);
  void start_stop(stop_options options,
                  detail::erased_completion<error_code, std::vector<std::string>>* completion);

  std::shared_ptr<server_side::server_core> core_;
};

}  // namespace braid
