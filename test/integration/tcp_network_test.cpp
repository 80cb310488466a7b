#include "integration/no_descriptors.hpp"
#include "net/socket_address.hpp"
#include "net/socket_options.hpp"
#include "network_fixture.hpp"

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/use_future.hpp>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fstream>

namespace {

using namespace network_fixture;

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

TEST_CASE("tcp: without memory to read into a transport breaks with 12, after what it had read",
          "[tcp_network]") {
  connected_pair pair;
  on(pair.second, [&] { pair.far().no_memory = true; });
  on(pair.first, [&] {
    error_code ec;
    CHECK(write(*pair.near().stream, "last words", ec) == 10);
  });
  CHECK(eventually(pair.second, [&] { return pair.far().broken == error::no_memory; }));
  CHECK(pair.far().received == "last words");
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

TEST_CASE("tcp: a connection to itself is a refused one", "[tcp_network]") {
  two_loops loops;
  const int alone = ::socket(AF_INET, SOCK_STREAM, 0);
  auto address = endpoint::parse("127.0.0.1:0").value().tcp();
  REQUIRE(::bind(alone, address.data(), static_cast<socklen_t>(address.size())) == 0);
  const endpoint itself = local_tcp_endpoint(alone);
  CHECK_FALSE(connected_to_itself(alone));
  address = itself.tcp();
  REQUIRE(::connect(alone, address.data(), static_cast<socklen_t>(address.size())) == 0);
  CHECK(connected_to_itself(alone));
  reset_on_close(alone);
  ::close(alone);

  connected_pair pair;
  const int fd = descriptor_of(*pair.near().stream);
  REQUIRE(fd >= 0);
  CHECK_FALSE(connected_to_itself(fd));
}

TEST_CASE("tcp: a dead port among the system's own is always refused, whatever port a connect gets",
          "[tcp_network]") {
  // A connect gets each free port of the range in turn, so that one of so many gets the dead one itself. Only
  // every second port is given to connects, so the dead one is of the same kind.
  int lowest = 0;
  int highest = 0;
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> lowest >> highest;
  REQUIRE(highest > lowest);
  struct knocking : connect_events {
    knocking(loop& home, const endpoint& to, int left) : home(home), to(to), left(left) {}
    void next() { attempt = system_network().connect(home, to, {}, *this); }
    void on_connected(std::unique_ptr<transport>) override {
      ++connected;
      left = 0;
    }
    void on_connect_failed(const error_code& why) override {
      if (why != error::connection_refused) ++otherwise;
      if (--left > 0) home.after_turn([this] { next(); });
    }
    loop& home;
    endpoint to;
    int left;
    int connected = 0;
    int otherwise = 0;
    std::unique_ptr<connecting> attempt;
  };
  two_loops loops;
  const int port = lowest + (highest - lowest) / 2 / 2 * 2;
  knocking client(loops.first,
                  endpoint(boost::asio::ip::address_v4::loopback(), static_cast<std::uint16_t>(port)),
                  highest - lowest + 1);
  on(loops.first, [&] { client.next(); });
  CHECK(eventually(loops.first, [&] { return client.left <= 0; }));
  CHECK(client.connected == 0);
  CHECK(client.otherwise == 0);
  on(loops.first, [&] { client.attempt.reset(); });
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

TEST_CASE("tcp: a name that was not resolved is refused", "[tcp_network]") {
  two_loops loops;
  const endpoint where = endpoint::parse("host:80").value();
  caller client;
  on(loops.first, [&] { client.connect(where); });
  CHECK(eventually(loops.first, [&] { return client.failed.value() == EINVAL; }));
  CHECK_FALSE(client.called_inside);
  on(loops.first, [&] {
    error_code ec;
    CHECK(system_network().listen(loops.first, where, {}, ec) == nullptr);
    CHECK(ec.value() == EINVAL);
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
  {
    const server_test::no_descriptors meanwhile;
    auto address = at.tcp();
    ::connect(client, address.data(), static_cast<socklen_t>(address.size()));
    CHECK(eventually(loops.second, [&] { return !server.failed.empty(); }));
  }
  CHECK(server.failed.front() == error::no_descriptors);
  CHECK(eventually(loops.second, [&] { return server.ends.size() == 1; }));
  ::close(client);
}

// Threads share the state that Asio keeps of a descriptor there; that they do not race for it, only
// ThreadSanitizer sees.
TEST_CASE("loop: the program's own sockets may be used on another thread than their loop's",
          "[tcp_network]") {
  boost::asio::io_context unused;
  boost::asio::ip::tcp::acceptor listening(unused, {boost::asio::ip::address_v4::loopback(), 0});
  braid::runtime rt({.loops = 1});
  int connected = 0;
  for (int i = 0; i < 50; ++i) {
    boost::asio::ip::tcp::socket made(rt.get_executor());
    made.async_connect(listening.local_endpoint(), boost::asio::use_future).get();
    connected += made.is_open() ? 1 : 0;
  }
  CHECK(connected == 50);
}
