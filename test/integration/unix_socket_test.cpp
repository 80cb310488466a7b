#include "call_fixture.hpp"
#include "network_fixture.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace {

using namespace network_fixture;

// A directory of the test's own, gone with all that is in it at the end.
class temporary_directory {
 public:
  temporary_directory() {
    char name[] = "/tmp/braid-unix-XXXXXX";
    REQUIRE(::mkdtemp(name) != nullptr);
    path_ = name;
  }
  ~temporary_directory() { std::filesystem::remove_all(path_); }
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  std::string address(const std::string& name) const { return "unix:" + file(name); }

 private:
  std::string path_;
};

// A name that no other process uses.
std::string abstract_address() { return "unix:@braid-test-" + std::to_string(::getpid()); }

bool exists(const std::string& path) {
  struct stat found {};
  return ::lstat(path.c_str(), &found) == 0;
}

// A socket bound to a path as another program would; -1 for none.
int bind_plainly(const std::string& path, int type = SOCK_STREAM) {
  const int made = ::socket(AF_UNIX, type, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strcpy(address.sun_path, path.c_str());
  if (::bind(made, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return made;
  ::close(made);
  return -1;
}

error_code listening_fails(two_loops& loops, const std::string& address) {
  return on(loops.first, [&] {
    error_code ec;
    CHECK(system_network().listen(loops.first, endpoint::parse(address).value(), {}, ec) == nullptr);
    return ec;
  });
}

}  // namespace

TEST_CASE("unix: bytes go both ways, over a file and over an abstract name", "[unix_socket]") {
  const temporary_directory directory;
  const std::string address = GENERATE(true, false) ? directory.address("s") : abstract_address();
  connected_pair pair(address.c_str());
  CHECK(pair.at.to_string() == address);

  error_code ec;
  CHECK(on(pair.first, [&] { return write(*pair.near().stream, "ping", ec); }) == 4);
  CHECK(eventually(pair.second, [&] { return pair.far().received == "ping"; }));
  CHECK(on(pair.second, [&] { return write(*pair.far().stream, "pong!", ec); }) == 5);
  CHECK(eventually(pair.first, [&] { return pair.near().received == "pong!"; }));
  CHECK_FALSE(ec);
  for (const end* each : {&pair.near(), &pair.far()}) {
    CHECK(each->stream->remote().to_string() == address);
    CHECK(each->stream->local().to_string() == address);
  }
  CHECK(on(pair.first, [&] { return pair.near().in_turn && !pair.client.called_inside; }));
}

TEST_CASE("unix: a peer that does not read blocks the writer, which goes on when it reads again",
          "[unix_socket]") {
  const temporary_directory directory;
  connected_pair pair(directory.address("s").c_str());
  on(pair.second, [&] { pair.far().stream->pause_reading(); });
  const std::string block(1 << 20, 'x');
  std::size_t written = 0;
  on(pair.first, [&] {
    error_code ec;
    for (std::size_t n = block.size(); n == block.size() && written < (std::size_t{1} << 30);) {
      n = write(*pair.near().stream, block, ec);
      REQUIRE_FALSE(ec);
      written += n;
    }
  });
  CHECK(on(pair.first, [&] { return pair.near().writable; }) == 0);
  on(pair.second, [&] { pair.far().stream->resume_reading(); });
  CHECK(eventually(pair.first, [&] { return pair.near().writable == 1; }));
  CHECK(eventually(pair.second, [&] { return pair.far().received.size() == written; }));
}

TEST_CASE("unix: a connect waits while the listener's queue is full, and can be abandoned", "[unix_socket]") {
  const temporary_directory directory;
  const std::string path = directory.file("s");
  const int listening = bind_plainly(path);
  REQUIRE(::listen(listening, 0) == 0);
  two_loops loops;
  const endpoint at = endpoint::parse("unix:" + path).value();
  caller in_queue;
  on(loops.first, [&] { in_queue.connect(at); });
  REQUIRE(eventually(loops.first, [&] { return in_queue.stream != nullptr; }));

  caller waiting;
  caller impatient;
  on(loops.first, [&] {
    waiting.connect(at);
    impatient.connect(at);
  });
  // What their sockets say at once has been heard when the loop has been to the system and back twice.
  for (int i = 0; i < 2; ++i) {
    caller later;
    on(loops.first, [&] { later.connect(endpoint::parse(directory.address("none")).value()); });
    REQUIRE(eventually(loops.first,
                       [&] { return later.failed == error_code(ENOENT, boost::system::system_category()); }));
    on(loops.first, [&] { later.attempt.reset(); });
  }
  on(loops.first, [&] {
    CHECK(waiting.stream == nullptr);
    CHECK_FALSE(waiting.failed);
    impatient.attempt.reset();
  });
  const int first = ::accept(listening, nullptr, nullptr);
  CHECK(eventually(loops.first, [&] { return waiting.stream != nullptr; }));
  const int second = ::accept(listening, nullptr, nullptr);
  error_code ec;
  CHECK(on(loops.first, [&] { return write(*waiting.stream->stream, "ping", ec); }) == 4);
  char text[4];
  CHECK(::recv(second, text, sizeof text, MSG_WAITALL) == 4);
  CHECK(impatient.stream == nullptr);
  on(loops.first, [&] {
    in_queue.stream.reset();
    waiting.stream.reset();
  });
  for (const int each : {first, second, listening}) ::close(each);
}

TEST_CASE("unix: the end of sending leaves the other direction open, and a close is an end of file",
          "[unix_socket]") {
  const temporary_directory directory;
  connected_pair pair(directory.address("s").c_str());
  error_code ec;
  on(pair.first, [&] {
    write(*pair.near().stream, "last", ec);
    pair.near().stream->shutdown_send();
  });
  CHECK(eventually(pair.second, [&] { return pair.far().ended; }));
  CHECK(pair.far().received == "last");
  on(pair.second, [&] {
    write(*pair.far().stream, "answer", ec);
    pair.far().stream->close(true);
  });
  CHECK(eventually(pair.first, [&] { return pair.near().ended; }));
  CHECK(pair.near().received == "answer");
}

TEST_CASE("unix: a listener removes its file when it ends, and no other", "[unix_socket]") {
  const temporary_directory directory;
  const std::string path = directory.file("s");
  two_loops loops;
  {
    host server(loops.first, loops.first);
    server.listen(("unix:" + path).c_str());
    CHECK(exists(path));
  }
  CHECK_FALSE(exists(path));
  {
    host server(loops.first, loops.first);
    server.listen(("unix:" + path).c_str());
    std::filesystem::remove(path);
    std::ofstream(path) << "another's";
  }
  CHECK(exists(path));
}

TEST_CASE("unix: a relative path is removed although the program has changed its directory",
          "[unix_socket]") {
  const temporary_directory directory;
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(directory.file(""));
  two_loops loops;
  {
    host server(loops.first, loops.first);
    server.listen("unix:relative");
    CHECK(exists(directory.file("relative")));
    std::filesystem::current_path(before);
  }
  CHECK_FALSE(exists(directory.file("relative")));
}

TEST_CASE("unix: a socket file on which nobody listens any more is replaced", "[unix_socket]") {
  const temporary_directory directory;
  const std::string path = directory.file("s");
  const int type = GENERATE(SOCK_STREAM, SOCK_DGRAM);
  ::close(bind_plainly(path, type));
  REQUIRE(exists(path));
  connected_pair pair(("unix:" + path).c_str());
  error_code ec;
  on(pair.first, [&] { write(*pair.near().stream, "new", ec); });
  CHECK(eventually(pair.second, [&] { return pair.far().received == "new"; }));
}

TEST_CASE("unix: a listener that lives is not replaced, nor is a socket of another type", "[unix_socket]") {
  const temporary_directory directory;
  two_loops loops;
  {
    host server(loops.second, loops.second);
    const endpoint at = server.listen(directory.address("s").c_str());
    CHECK(listening_fails(loops, at.to_string()) == error::address_in_use);
    // The one that was there still answers.
    caller client;
    on(loops.first, [&] { client.connect(at); });
    CHECK(eventually(loops.first, [&] { return client.stream != nullptr; }));
    on(loops.first, [&] { client.stream.reset(); });
  }
  const int datagrams = bind_plainly(directory.file("d"), SOCK_DGRAM);
  CHECK(listening_fails(loops, directory.address("d")) == error::address_in_use);
  CHECK(exists(directory.file("d")));
  ::close(datagrams);

  host server(loops.second, loops.second);
  server.listen(abstract_address().c_str());
  CHECK(listening_fails(loops, abstract_address()) == error::address_in_use);
}

TEST_CASE("unix: what is no socket is left as it is", "[unix_socket]") {
  const temporary_directory directory;
  const std::string path = directory.file("s");
  two_loops loops;
  SECTION("a file") {
    std::ofstream(path) << "precious";
    CHECK(listening_fails(loops, "unix:" + path).value() == ENOTSOCK);
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    CHECK(text.str() == "precious");
  }
  SECTION("a directory") {
    std::filesystem::create_directory(path);
    CHECK(listening_fails(loops, "unix:" + path).value() == ENOTSOCK);
  }
  SECTION("a link, even to an abandoned socket") {
    ::close(bind_plainly(directory.file("t")));
    std::filesystem::create_symlink(directory.file("t"), path);
    CHECK(listening_fails(loops, "unix:" + path).value() == ENOTSOCK);
    CHECK(exists(directory.file("t")));
  }
  CHECK(exists(path));
}

TEST_CASE("unix: where no file can be made, listening fails with the system's reason", "[unix_socket]") {
  const temporary_directory directory;
  two_loops loops;
  CHECK(listening_fails(loops, directory.address("none/s")).value() == ENOENT);
  std::ofstream(directory.file("f")) << "file";
  CHECK(listening_fails(loops, directory.address("f/s")).value() == ENOTDIR);
}

TEST_CASE("unix: calls go over a file and over an abstract name, and both sides name the peer by it",
          "[unix_socket]") {
  const temporary_directory directory;
  const std::string address = GENERATE(true, false) ? directory.address("s") : abstract_address();
  std::string seen;
  {
    braid::runtime process({.loops = 2});
    braid::server server(process);
    server.handle(&golden::EchoService::Echo, [&](braid::server_call& call, const golden::EchoRequest& wanted,
                                                  golden::EchoResponse& response, braid::yield_context) {
      seen = call.remote_side().to_string();
      response.set_message(wanted.message());
    });
    server.start(address);
    CHECK(server.port() == 0);
    CHECK(server.endpoints().front().to_string() == address);

    braid::runtime rt({.loops = 1});
    braid::channel channel(rt);
    channel.init(address, {.timeout = 60s});
    braid::controller control;
    golden::EchoResponse response;
    const std::string large(3 << 20, 'x');
    channel.call(call_over_tcp::echo(), control, call_over_tcp::request(large), response);
    CHECK(response.message() == large);
    CHECK(control.remote_side().to_string() == address);
  }
  CHECK(seen == address);
  CHECK_FALSE(exists(directory.file("s")));
}

TEST_CASE("unix: a call to a path where nobody listens is refused with 111, whatever is there",
          "[unix_socket]") {
  const temporary_directory directory;
  const std::string path = directory.file("s");
  SECTION("nothing") {}
  SECTION("an abandoned socket") { ::close(bind_plainly(path)); }
  SECTION("a file") { std::ofstream(path) << "file"; }
  braid::runtime rt({.loops = 1});
  braid::channel channel(rt);
  channel.init("unix:" + path, {.timeout = 60s});
  braid::controller control;
  golden::EchoResponse response;
  error_code ec;
  channel.call(call_over_tcp::echo(), control, call_over_tcp::request(), response, ec);
  CHECK(ec.value() == 111);
  CHECK(control.ErrorText().find("unix:" + path) != std::string::npos);
}

TEST_CASE("unix: errors of a server's start and of a channel name what is wrong", "[unix_socket]") {
  const temporary_directory directory;
  std::ofstream(directory.file("f")) << "file";
  const int living = bind_plainly(directory.file("l"));
  ::listen(living, 1);
  const std::string too_long = "unix:/" + std::string(107, 'p');
  // The directory is another one in each run of the case.
  const auto [name, number, part] = GENERATE(
      table<std::string, int, std::string>({{"f", 88, "is no socket"},
                                            {"l", 98, "somebody else listens there"},
                                            {"", 22, "longer than 107 bytes"},
                                            {"localhost:80", 22, "literal address or a unix socket"}}));
  const std::string address = name.empty() ? too_long : name.size() == 1 ? directory.address(name) : name;
  braid::runtime rt({.loops = 1});
  braid::server server(rt);
  error_code ec;
  std::string text;
  try {
    server.start(address);
  } catch (const boost::system::system_error& failed) {
    ec = failed.code();
    text = failed.what();
  }
  CHECK(ec.value() == number);
  CAPTURE(text);
  CHECK(text.find(part) != std::string::npos);
  ::close(living);

  braid::channel channel(rt);
  error_code refused;
  channel.init(too_long, {}, refused);
  CHECK(refused.value() == 22);
}
