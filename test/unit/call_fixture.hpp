#pragma once

// What the tests of calls share: processes on a simulated network, and a server that says what the test
// wants.

#include <braid/channel.hpp>
#include <braid/controller.hpp>
#include <braid/server.hpp>
#include <braid/spawn.hpp>
#include <braid/testing/simulation.hpp>

#include "client/connection_table.hpp"
#include "core/loop.hpp"
#include "core/runtime_core.hpp"
#include "net/transport.hpp"
#include "wire/frame.hpp"
#include "wire/meta.hpp"

#include <catch2/catch.hpp>

#include <golden.pb.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace call_fixture {

using namespace std::chrono_literals;
using braid::controller;
using braid::error_code;
using braid::testing::simulation;
using golden::EchoRequest;
using golden::EchoResponse;

inline const google::protobuf::MethodDescriptor& echo() {
  return *golden::EchoService::descriptor()->FindMethodByName("Echo");
}
inline EchoRequest request(const std::string& message = "hello") {
  EchoRequest made;
  made.set_message(message);
  return made;
}
inline constexpr const char* address = "10.0.0.1:80";

/// The bytes of an answer.
inline std::string answer(std::int64_t id, const std::string& payload,
                          const std::function<void(braid::wire::rpc_meta&)>& change = nullptr) {
  braid::wire::rpc_meta meta;
  meta.has_response = true;
  meta.response.error_code = 0;
  meta.correlation_id = id;
  if (change) change(meta);
  const std::size_t meta_size = braid::wire::meta_size(meta);
  std::string bytes(braid::wire::header_size + meta_size, '\0');
  char* at = braid::wire::encode_header({.body_size = static_cast<std::uint32_t>(meta_size + payload.size()),
                                         .meta_size = static_cast<std::uint32_t>(meta_size)},
                                        bytes.data());
  braid::wire::encode_meta(meta, at);
  return bytes + payload;
}
inline std::string echoed(const std::string& message = "echo") {
  EchoResponse response;
  response.set_message(message);
  return response.SerializeAsString();
}

/// What a scripted server saw of a request.
struct seen_request {
  std::int64_t id = 0;
  std::optional<std::int32_t> timeout_ms;
  std::string message;
  std::size_t connection = 0;  ///< The how manieth.
};

/// A process that reads requests and answers as the test says.
class scripted_server : braid::net::accept_events {
 public:
  using script = std::function<void(const seen_request&)>;

  explicit scripted_server(simulation& sim, script on_request = nullptr, const char* at = address)
      : sim_(sim), script_(std::move(on_request)), process_(sim.node_options()) {
    home().post([this, where = braid::endpoint::parse(at).value()] {
      error_code ec;
      listening_ = net().listen(home(), where, {}, ec);
      listening_->start(*this);
    });
    sim.run_for(0ms);
  }
  ~scripted_server() {
    home().post([this] {
      peers_.clear();
      listening_.reset();
    });
    sim_.run_for(0ms);
  }

  const std::vector<seen_request>& requests() const { return requests_; }
  std::size_t connections() const { return peers_.size(); }
  /// All bytes that came on a connection.
  const std::string& received(std::size_t connection = 0) const { return peers_.at(connection)->received; }
  bool ended(std::size_t connection = 0) const { return peers_.at(connection)->ended; }
  void send(std::string bytes, std::size_t connection = 0) {
    on(connection, [bytes = std::move(bytes)](braid::net::transport& stream) {
      const iovec piece{const_cast<char*>(bytes.data()), bytes.size()};
      error_code ec;
      stream.write_some(std::span(&piece, 1), ec);
    });
  }
  void close(bool reset, std::size_t connection = 0) {
    on(connection, [reset](braid::net::transport& stream) { stream.close(reset); });
  }

 private:
  struct peer : braid::net::transport_events {
    peer(scripted_server& owner, std::size_t index, std::unique_ptr<braid::net::transport> connected)
        : owner(owner), index(index), stream(std::move(connected)) {
      stream->start(*this);
    }
    std::span<char> read_space() override { return space = reader.prepare(); }
    void on_read(std::size_t size) override {
      received.append(space.data(), size);
      ended = ended || size == 0;
      reader.commit(size);
      braid::wire::inbound_frame frame;
      while (reader.next(frame) == braid::wire::frame_reader::status::frame) {
        EchoRequest message;
        message.ParsePartialFromArray(frame.payload.data(), static_cast<int>(frame.payload.size()));
        owner.requests_.push_back({.id = frame.meta.correlation_id.value_or(-1),
                                   .timeout_ms = frame.meta.request.timeout_ms,
                                   .message = message.message(),
                                   .connection = index});
        const seen_request copy = owner.requests_.back();
        if (owner.script_) owner.script_(copy);
      }
    }
    void on_writable() override {}
    void on_broken(const error_code&) override {}

    scripted_server& owner;
    std::size_t index;
    std::unique_ptr<braid::net::transport> stream;
    braid::wire::frame_reader reader;
    std::span<char> space;
    std::string received;
    bool ended = false;
  };

  void on(std::size_t connection, std::function<void(braid::net::transport&)> action) {
    home().post([this, connection, action = std::move(action)] { action(*peers_.at(connection)->stream); });
  }
  braid::core::loop& home() { return process_.core()->at(0); }
  braid::net::network& net() { return *process_.core()->outside().network; }
  braid::core::loop& next_loop() override { return home(); }
  void on_accepted(braid::core::loop&, std::unique_ptr<braid::net::transport> accepted) override {
    peers_.push_back(std::make_unique<peer>(*this, peers_.size(), std::move(accepted)));
  }
  void on_accept_failed(const error_code&) override {}

  simulation& sim_;
  script script_;
  std::vector<seen_request> requests_;
  std::vector<std::unique_ptr<peer>> peers_;
  std::unique_ptr<braid::net::listener> listening_;
  braid::runtime process_;  // first to go, with what runs on it
};

/// A call with a callback, and what became of it.
struct started_call {
  controller control;
  EchoRequest message = request();
  EchoResponse response;
  int completions = 0;
  error_code ec;
  std::chrono::nanoseconds ended_at{-1};

  bool done() const { return completions != 0; }
};

/// A client's process with a channel, in a simulation.
struct client_node {
  explicit client_node(simulation& sim, braid::channel_options options = {}, const char* to = address)
      : sim(sim), process(std::make_unique<braid::runtime>(sim.node_options())), channel(*process) {
    channel.init(to, std::move(options));
  }

  /// Runs on the client's loop, now.
  void on_loop(std::function<void()> function) {
    home().post(std::move(function));
    sim.run_for(0ms);
  }
  /// Starts a call on the client's loop; runs what is due at this instant.
  void start(started_call& call) {
    on_loop([this, &call] { start_here(call); });
  }
  void start_here(started_call& call) {
    call.completions = 0;
    channel.async_call(echo(), call.control, call.message, call.response, completion(call));
  }
  /// The handler of a call.
  std::function<void(error_code)> completion(started_call& call) {
    return [this, &call](error_code ec) {
      ++call.completions;
      call.ec = ec;
      call.ended_at = sim.elapsed();
    };
  }
  /// Ends the channel, and with it its part in connections; there is a new one, not initialised, in its
  /// place.
  void end_channel() {
    std::destroy_at(&channel);
    std::construct_at(&channel, *process);
  }
  bool finish(started_call& call) {
    return sim.run_until([&] { return call.done(); });
  }
  /// A whole call; returns its error.
  error_code round(const std::string& message = "hello") {
    started_call call;
    call.message.set_message(message);
    start(call);
    finish(call);
    return call.ec;
  }
  std::uint64_t late_answers() {
    std::uint64_t found = 0;
    on_loop([&] { found = home().service<braid::client::connection_table>().late_answers(); });
    return found;
  }
  braid::core::loop& home() { return process->core()->at(0); }

  simulation& sim;
  std::unique_ptr<braid::runtime> process;
  braid::channel channel;
};

/// A real server in a simulation.
struct server_node {
  using handler =
      std::function<void(braid::server_call&, const EchoRequest&, EchoResponse&, braid::yield_context)>;

  explicit server_node(simulation& sim, handler on_call = nullptr, const char* at = address)
      : process(sim.node_options()), server(process) {
    server.handle(&golden::EchoService::Echo,
                  [on_call = std::move(on_call)](braid::server_call& call, const EchoRequest& wanted,
                                                 EchoResponse& response, braid::yield_context yield) {
                    response.set_message(wanted.message());
                    if (wanted.has_sleep_ms())
                      braid::sleep_for(std::chrono::milliseconds(wanted.sleep_ms()), yield);
                    if (wanted.has_fail_code()) call.set_failed(wanted.fail_code(), "as asked");
                    if (on_call) on_call(call, wanted, response, yield);
                  });
    server.start(at);
  }

  braid::runtime process;
  braid::server server;
};

inline bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}
inline const error_code aborted{125, boost::system::system_category()};
inline error_code errno_code(int value) { return {value, boost::system::system_category()}; }

inline void black_hole(simulation& sim) {
  sim.network().set(braid::endpoint::parse(address).value(), {.black_hole = true});
}
inline std::size_t attempts(simulation& sim) {
  return sim.network().attempts(braid::endpoint::parse(address).value());
}

// The deadline came on time: not before, and within the tolerance of the timers.
inline void check_deadline(const started_call& call, std::chrono::nanoseconds at) {
  CHECK(call.completions == 1);
  CHECK(call.ec == braid::errc::timed_out);
  CHECK(call.control.result().cause == braid::cancel_cause::deadline);
  CHECK(call.control.result().origin == braid::outcome_origin::local);
  CHECK(call.ended_at >= at);
  CHECK(call.ended_at <= at + 2ms);
}

inline void check_cancelled(const started_call& call) {
  CHECK(call.completions == 1);
  CHECK(call.ec == boost::asio::error::operation_aborted);
  CHECK(call.control.result().cause == braid::cancel_cause::user);
  CHECK(call.control.error() == call.ec);
}

}  // namespace call_fixture
