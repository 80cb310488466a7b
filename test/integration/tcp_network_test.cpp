#include "core/loop.hpp"
#include "core/runtime_core.hpp"
#include "net/transport.hpp"

#include <boost/asio/error.hpp>
#include <catch2/catch.hpp>

#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace {

using namespace std::chrono_literals;
using namespace braid::net;
using braid::endpoint;
using braid::error_code;
using braid::core::loop;
namespace error = boost::asio::error;

// What a test waits for comes within moments; the limit only turns a hang into a failure.
constexpr auto long_enough = 60s;

template <typename Function>
auto on(loop& where, Function function) {
  std::packaged_task<decltype(function())()> task(std::move(function));
  auto result = task.get_future();
  // Catch2 is not for two threads at once, so nothing is asserted here while the function may assert.
  const bool posted = where.post([task = std::move(task)]() mutable { task(); });
  const bool ran = posted && result.wait_for(long_enough) == std::future_status::ready;
  REQUIRE(ran);
  return result.get();
}

template <typename Condition>
bool eventually(loop& where, Condition condition) {
  const auto limit = std::chrono::steady_clock::now() + long_enough;
  while (std::chrono::steady_clock::now() < limit) {
    if (on(where, condition)) return true;
    std::this_thread::sleep_for(1ms);
  }
  return false;
}

std::size_t write(transport& to, std::string_view text, error_code& ec) {
  const iovec piece{const_cast<char*>(text.data()), text.size()};
  return to.write_some(std::span(&piece, 1), ec);
}

// One end of a connection, with all that it was told.
struct end : transport_events {
  explicit end(std::unique_ptr<transport> stream) : stream(std::move(stream)) {}

  std::span<char> read_space() override { return space; }
  void on_read(std::size_t size) override {
    in_turn = in_turn && loop::current() == home;
    if (size == 0) {
      ended = true;
    } else {
      received.append(space.data(), size);
    }
    if (const auto told = when_read) told();  // a copy: it may destroy this
  }
  void on_writable() override {
    ++writable;
    if (const auto told = when_writable) told();  // a copy: it may destroy this
  }
  void on_broken(const error_code& why) override {
    broken = why;
    if (const auto told = when_broken) told();  // a copy: it may destroy this
  }

  void start() {
    home = loop::current();
    stream->start(*this);
  }

  std::unique_ptr<transport> stream;
  loop* home = nullptr;
  std::vector<char> space = std::vector<char>(64 * 1024);
  std::string received;
  bool ended = false;
  bool in_turn = true;
  int writable = 0;
  error_code broken;
  std::function<void()> when_read;
  std::function<void()> when_writable;
  std::function<void()> when_broken;
};

// A listener on one loop that puts every connection on another.
struct host : accept_events {
  host(loop& at, loop& homes) : at(at), homes(homes) {}
  ~host() {
    on(at, [&] { listening.reset(); });  // first: what it has accepted is then on its way to the other loop
    on(homes, [&] { ends.clear(); });
  }

  loop& next_loop() override { return homes; }
  void on_accepted(loop& home, std::unique_ptr<transport> accepted) override {
    home.post([this, accepted = std::make_shared<std::unique_ptr<transport>>(std::move(accepted))] {
      ends.push_back(std::make_unique<end>(std::move(*accepted)));
      ends.back()->start();
      if (when_accepted) when_accepted(*ends.back());
    });
  }
  void on_accept_failed(const error_code& why) override { failed.push_back(why); }

  endpoint listen(const char* address = "127.0.0.1:0", transport_options options = {}) {
    return on(at, [&] {
      error_code ec;
      listening = system_network().listen(at, endpoint::parse(address).value(), options, ec);
      REQUIRE_FALSE(ec);
      listening->start(*this);
      return listening->local();
    });
  }

  loop& at;
  loop& homes;
  std::unique_ptr<listener> listening;
  std::vector<std::unique_ptr<end>> ends;
  std::vector<error_code> failed;
  std::function<void(end&)> when_accepted;
};

// An attempt to connect.
struct caller : connect_events {
  void on_connected(std::unique_ptr<transport> connected) override {
    called_inside = called_inside || inside;
    stream = std::make_unique<end>(std::move(connected));
    stream->start();
  }
  void on_connect_failed(const error_code& why) override {
    called_inside = called_inside || inside;
    failed = why;
  }

  void connect(const endpoint& to, transport_options options = {}) {
    inside = true;
    attempt = system_network().connect(*loop::current(), to, options, *this);
    inside = false;
  }

  std::unique_ptr<connecting> attempt;
  std::unique_ptr<end> stream;
  error_code failed;
  bool inside = false;
  bool called_inside = false;
};

struct two_loops {
  braid::runtime runtime{{.loops = 2}};
  loop& first = runtime.core()->at(0);
  loop& second = runtime.core()->at(1);
};

// A connection from the first loop to the second.
struct connected_pair : two_loops {
  explicit connected_pair(const char* address = "127.0.0.1:0", transport_options options = {}) {
    at = server.listen(address, options);
    on(first, [&] { client.connect(at, options); });
    REQUIRE(eventually(first, [&] { return client.stream != nullptr; }));
    REQUIRE(eventually(second, [&] { return server.ends.size() == 1; }));
  }
  ~connected_pair() {
    on(first, [&] { client.stream.reset(); });
  }

  end& near() { return *client.stream; }
  end& far() { return *server.ends.front(); }

  host server{second, second};
  caller client;
  endpoint at;
};

// The descriptor of the socket that is bound to one address and connected to another.
int descriptor_of(const transport& stream) {
  for (int i = 3; i < 1024; ++i) {
    boost::asio::ip::tcp::endpoint local, remote;
    auto size = static_cast<socklen_t>(local.capacity());
    if (::getsockname(i, local.data(), &size) != 0) continue;
    size = static_cast<socklen_t>(remote.capacity());
    if (::getpeername(i, remote.data(), &size) != 0) continue;
    if (endpoint(local) == stream.local() && endpoint(remote) == stream.remote()) return i;
  }
  return -1;
}

int option(int descriptor, int level, int name) {
  int value = -1;
  socklen_t size = sizeof value;
  ::getsockopt(descriptor, level, name, &value, &size);
  return value;
}

}  // namespace

TEST_CASE("tcp: bytes go both ways, over either version of IP", "[tcp_network]") {
  const char* const address = GENERATE("127.0.0.1:0", "[::1]:0");
  connected_pair pair(address);
  REQUIRE(pair.at.port() != 0);

  error_code ec;
  CHECK(on(pair.first, [&] { return write(*pair.near().stream, "ping", ec); }) == 4);
  CHECK(eventually(pair.second, [&] { return pair.far().received == "ping"; }));
  CHECK(on(pair.second, [&] { return write(*pair.far().stream, "pong!", ec); }) == 5);
  CHECK(eventually(pair.first, [&] { return pair.near().received == "pong!"; }));
  CHECK_FALSE(ec);

  CHECK(pair.near().stream->remote() == pair.at);
  CHECK(pair.far().stream->local() == pair.at);
  CHECK(pair.far().stream->remote() == pair.near().stream->local());
  CHECK(on(pair.first, [&] { return pair.near().in_turn && !pair.client.called_inside; }));
  CHECK(on(pair.second, [&] { return pair.far().in_turn; }));
}

TEST_CASE("tcp: many pieces leave in order, more than one system call takes", "[tcp_network]") {
  connected_pair pair;
  std::string text;
  for (int i = 0; i < 5000; ++i) text += static_cast<char>('a' + i % 26);
  const std::size_t taken = on(pair.first, [&] {
    std::vector<iovec> pieces;
    for (char& c : text) pieces.push_back({&c, 1});
    error_code ec;
    return pair.near().stream->write_some(pieces, ec);
  });
  CHECK(taken == text.size());
  CHECK(eventually(pair.second, [&] { return pair.far().received.size() == text.size(); }));
  CHECK(pair.far().received == text);
}

TEST_CASE("tcp: options are set on both sides", "[tcp_network]") {
  const bool connecting_side = GENERATE(true, false);
  connected_pair pair("127.0.0.1:0", {.keepalive = 30s, .user_timeout = 7s});
  const transport& stream = connecting_side ? *pair.near().stream : *pair.far().stream;
  const int fd = descriptor_of(stream);
  REQUIRE(fd >= 0);
  CHECK(option(fd, IPPROTO_TCP, TCP_NODELAY) == 1);
  CHECK(option(fd, SOL_SOCKET, SO_KEEPALIVE) == 1);
  CHECK(option(fd, IPPROTO_TCP, TCP_KEEPIDLE) == 30);
  CHECK(option(fd, IPPROTO_TCP, TCP_KEEPINTVL) == 10);
  CHECK(option(fd, IPPROTO_TCP, TCP_KEEPCNT) == 3);
  CHECK(option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT) == 7000);
}

TEST_CASE("tcp: options that are off stay off", "[tcp_network]") {
  connected_pair pair("127.0.0.1:0", {.no_delay = false, .keepalive = 0s, .user_timeout = 0ms});
  const int fd = descriptor_of(*pair.near().stream);
  REQUIRE(fd >= 0);
  CHECK(option(fd, IPPROTO_TCP, TCP_NODELAY) == 0);
  CHECK(option(fd, SOL_SOCKET, SO_KEEPALIVE) == 0);
  CHECK(option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT) == 0);
}

TEST_CASE("tcp: a peer that does not read blocks the writer, which goes on when it reads again",
          "[tcp_network]") {
  connected_pair pair;
  on(pair.second, [&] { pair.far().stream->pause_reading(); });
  const std::string block(1 << 20, 'x');
  std::size_t written = 0;
  const auto fill = [&] {
    error_code ec;
    for (;;) {
      const std::size_t n = write(*pair.near().stream, block, ec);
      REQUIRE_FALSE(ec);
      written += n;
      if (n < block.size()) break;
      REQUIRE(written < (std::size_t{1} << 30));
    }
  };
  on(pair.first, fill);
  // What the paused side took before it paused is all that it may take.
  CHECK(on(pair.second, [&] { return pair.far().received.size(); }) == 0);
  CHECK(on(pair.first, [&] { return pair.near().writable; }) == 0);
  on(pair.second, [&] { pair.far().stream->resume_reading(); });
  CHECK(eventually(pair.first, [&] { return pair.near().writable == 1; }));
  CHECK(eventually(pair.second, [&] { return pair.far().received.size() == written; }));
}

TEST_CASE("tcp: what comes while reading is paused is kept, and so is the end", "[tcp_network]") {
  connected_pair pair;
  on(pair.second, [&] { pair.far().stream->pause_reading(); });
  error_code ec;
  on(pair.first, [&] {
    write(*pair.near().stream, "kept", ec);
    pair.near().stream->close();
  });
  on(pair.second, [&] {
    CHECK(pair.far().received.empty());
    pair.far().stream->resume_reading();
    pair.far().stream->pause_reading();
    pair.far().stream->resume_reading();
    CHECK(pair.far().received.empty());  // not inside the call
  });
  CHECK(eventually(pair.second, [&] { return pair.far().ended; }));
  CHECK(pair.far().received == "kept");
}

TEST_CASE("tcp: the end of sending leaves the other direction open", "[tcp_network]") {
  connected_pair pair;
  error_code ec;
  on(pair.first, [&] {
    write(*pair.near().stream, "last", ec);
    pair.near().stream->shutdown_send();
  });
  CHECK(eventually(pair.second, [&] { return pair.far().ended; }));
  CHECK(pair.far().received == "last");
  on(pair.second, [&] { write(*pair.far().stream, "answer", ec); });
  CHECK(eventually(pair.first, [&] { return pair.near().received == "answer"; }));
  CHECK_FALSE(pair.near().broken);
  on(pair.first, [&] {
    CHECK(write(*pair.near().stream, "more", ec) == 0);
    CHECK(ec == error::broken_pipe);
  });
}

TEST_CASE("tcp: a close is an end of file, or a reset where that is asked for", "[tcp_network]") {
  const bool reset = GENERATE(false, true);
  connected_pair pair;
  on(pair.first, [&] { pair.near().stream->close(reset); });
  CHECK(eventually(pair.second, [&] { return reset ? bool{pair.far().broken} : pair.far().ended; }));
  CHECK(pair.far().ended == !reset);
  CHECK(pair.far().broken == (reset ? error_code(error::connection_reset) : error_code()));
}

TEST_CASE("tcp: a closed transport takes nothing and tells nothing", "[tcp_network]") {
  connected_pair pair;
  error_code ec;
  on(pair.first, [&] {
    pair.near().stream->close();
    pair.near().stream->close(true);
    CHECK(write(*pair.near().stream, "x", ec) == 0);
    CHECK(ec);
    pair.near().stream->shutdown_send();
    pair.near().stream->pause_reading();
    pair.near().stream->resume_reading();
  });
  CHECK(eventually(pair.second, [&] { return pair.far().ended; }));
  CHECK(on(pair.first, [&] { return !pair.near().ended && !pair.near().broken; }));
}

TEST_CASE("tcp: the owner may destroy a transport in each event", "[tcp_network]") {
  connected_pair pair;
  error_code ec;
  bool gone = false;
  const auto leave = [&] {
    pair.server.ends.clear();
    gone = true;
  };
  SECTION("when bytes arrive") {
    on(pair.second, [&] { pair.far().when_read = leave; });
    on(pair.first, [&] { write(*pair.near().stream, "x", ec); });
  }
  SECTION("at the end") {
    on(pair.second, [&] { pair.far().when_read = leave; });
    on(pair.first, [&] { pair.near().stream->shutdown_send(); });
  }
  SECTION("when it broke") {
    on(pair.second, [&] { pair.far().when_broken = leave; });
    on(pair.first, [&] { pair.near().stream->close(true); });
  }
  SECTION("when it can be written to again") {
    on(pair.second, [&] {
      pair.far().when_writable = leave;
      const std::string block(1 << 20, 'x');
      while (write(*pair.far().stream, block, ec) == block.size()) {
      }
    });
  }
  REQUIRE(eventually(pair.second, [&] { return gone; }));
}

TEST_CASE("tcp: an accepted transport may be dropped before it is started", "[tcp_network]") {
  struct dropping : accept_events {
    explicit dropping(loop& home) : home(home) {}
    loop& next_loop() override { return home; }
    void on_accepted(loop&, std::unique_ptr<transport> accepted) override { accepted.reset(); }
    void on_accept_failed(const error_code&) override {}
    loop& home;
  };
  two_loops loops;
  dropping events{loops.second};
  std::unique_ptr<listener> listening;
  caller client;
  on(loops.first, [&] {
    error_code ec;
    listening = system_network().listen(loops.first, endpoint::parse("127.0.0.1:0").value(), {}, ec);
    listening->start(events);
    client.connect(listening->local());
  });
  CHECK(eventually(loops.first, [&] { return client.stream && client.stream->ended; }));
  on(loops.first, [&] {
    listening.reset();
    client.stream.reset();
  });
}

TEST_CASE("tcp: connecting where nobody listens is refused, later", "[tcp_network]") {
  two_loops loops;
  const endpoint at = host(loops.first, loops.first).listen();  // nobody listens there any more
  caller client;
  on(loops.first, [&] { client.connect(at); });
  CHECK(eventually(loops.first, [&] { return bool{client.failed}; }));
  CHECK(client.failed == error::connection_refused);
  CHECK_FALSE(client.called_inside);
}

TEST_CASE("tcp: an abandoned attempt tells nothing", "[tcp_network]") {
  two_loops loops;
  host server(loops.second, loops.second);
  const endpoint at = server.listen();
  caller client;
  on(loops.first, [&] {
    client.connect(at);
    client.attempt.reset();
  });
  caller other;
  on(loops.first, [&] { other.connect(at); });
  CHECK(eventually(loops.first, [&] { return other.stream != nullptr; }));
  CHECK(on(loops.first, [&] { return !client.stream && !client.failed; }));
  on(loops.first, [&] { other.stream.reset(); });
}

TEST_CASE("tcp: endpoints of other kinds are refused", "[tcp_network]") {
  two_loops loops;
  const auto [text, number] =
      GENERATE(table<const char*, int>({{"unix:/tmp/x", EOPNOTSUPP}, {"host:80", EINVAL}}));
  const endpoint where = endpoint::parse(text).value();
  const error_code expected{number, boost::system::system_category()};
  caller client;
  on(loops.first, [&] { client.connect(where); });
  CHECK(eventually(loops.first, [&] { return client.failed.value() == number; }));
  CHECK_FALSE(client.called_inside);
  on(loops.first, [&] {
    error_code ec;
    CHECK(system_network().listen(loops.first, where, {}, ec) == nullptr);
    CHECK(ec.value() == number);
  });
}

TEST_CASE("tcp: an address in use cannot be listened on again", "[tcp_network]") {
  two_loops loops;
  host server(loops.first, loops.second);
  const endpoint at = server.listen();
  on(loops.second, [&] {
    error_code ec;
    CHECK(system_network().listen(loops.second, at, {}, ec) == nullptr);
    CHECK(ec == error::address_in_use);
  });
}

TEST_CASE("tcp: without descriptors accepting pauses, says so, and goes on", "[tcp_network]") {
  two_loops loops;
  host server(loops.second, loops.second);
  const endpoint at = server.listen();
  const int client = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
  REQUIRE(client >= 0);
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  const int lowest_free = ::dup(client);
  ::close(lowest_free);
  rlimit none = before;
  none.rlim_cur = static_cast<rlim_t>(lowest_free);
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);

  auto address = at.tcp();
  ::connect(client, address.data(), static_cast<socklen_t>(address.size()));
  CHECK(eventually(loops.second, [&] { return !server.failed.empty(); }));
  ::setrlimit(RLIMIT_NOFILE, &before);
  CHECK(server.failed.front() == error::no_descriptors);
  CHECK(eventually(loops.second, [&] { return server.ends.size() == 1; }));
  ::close(client);
}
