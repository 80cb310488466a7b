#include "program.hpp"

#include <catch2/catch.hpp>

#include <signal.h>

#include <random>
#include <regex>
#include <string>
#include <vector>

using demo_test::is_gone_soon;
using demo_test::program;
using demo_test::scratch;

namespace {

// What parallel_echo's servers do to a text, written once more.
std::string numbered(const std::string& text) {
  std::string result;
  std::size_t number = 0;
  bool line_starts = true;
  for (const char c : text) {
    if (line_starts) result += std::to_string(++number) + ": ";
    line_starts = c == '\n';
    result += c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c;
  }
  return result;
}

bool has_line(const std::string& output, const std::string& pattern) {
  return std::regex_search(output, std::regex("(^|\n)" + pattern + "(\n|$)"));
}

std::vector<pid_t> server_pids(const program& demo) {
  std::vector<pid_t> pids;
  for (const auto& word : demo.words_after("is process ")) pids.push_back(std::stoi(word));
  return pids;
}

void check_that_no_server_is_left(const program& demo) {
  const auto pids = server_pids(demo);
  CHECK(pids.size() == 3);
  for (const auto pid : pids) CHECK(is_gone_soon(pid));
}

// The whole demo with an input, and its answer held against one process's.
void check_answer(const std::string& text) {
  const scratch folder;
  program demo("parallel_echo",
               {folder.file("input", text), "--output", folder.path("answer"), "--timeout", "600"});
  const int status = demo.ends();
  INFO(demo.output());
  CHECK(status == 0);
  CHECK((folder.content("answer") == numbered(text)));  // not printed: it may be large
  check_that_no_server_is_left(demo);
}

// A demo that has started its servers and waits for its input.
class waiting_demo : public program {
 public:
  waiting_demo() : program("parallel_echo", {"-"}) { REQUIRE(prints("server 2 is process ")); }
};

}  // namespace

TEST_CASE("parallel_echo shows a call over three servers, one that fails with 111, and a partial one") {
  const scratch folder;
  program demo("parallel_echo", {folder.file("input", "one\ntwo\nthree\nfour\nfive\nsix\n")});
  const int status = demo.ends();
  const auto& output = demo.output();
  INFO(output);
  CHECK(status == 0);

  const auto addresses = demo.words_after(" at ");
  REQUIRE(addresses.size() == 3);
  const std::string time = " +[0-9]+\\.[0-9]+ ms  ";
  for (int i = 0; i < 3; ++i) {
    CHECK(has_line(output, "  " + std::to_string(i) + " +" + addresses[static_cast<std::size_t>(i)] + " +0" +
                               time + "ok"));
  }
  CHECK(has_line(output, "  call +all of them +0" + time + "ok"));
  CHECK(has_line(output, "  6 lines, the same as one process says"));
  CHECK(has_line(output, "  \\| 2: TWO"));

  const auto killed = "  1 +" + addresses[1] + " +111" + time + "Connection refused";
  const auto second = output.find("2. The same");
  const auto third = output.find("3. The same");
  REQUIRE(second != std::string::npos);
  REQUIRE(third != std::string::npos);
  CHECK(has_line(output.substr(second, third - second), killed));
  CHECK(has_line(output.substr(third), killed));
  CHECK(has_line(output, "  call +all of them +111" + time + "Connection refused"));
  CHECK(has_line(output, "  call +all of them +0" + time + "ok, but partial"));
  CHECK(has_line(output, "  succeeded, and says that it is partial: lines 3 to 4 of 6 are missing"));
  check_that_no_server_is_left(demo);
}

TEST_CASE("parallel_echo answers an empty input") { check_answer(""); }

TEST_CASE("parallel_echo answers a single line, with and without a newline") {
  check_answer("just one\n");
  check_answer("just one");
}

TEST_CASE("parallel_echo keeps a last line without a newline as it is") { check_answer("a\nb\nc\nd\n\ne"); }

TEST_CASE("parallel_echo passes any bytes through") {
  std::mt19937 random(1);
  std::string text;
  for (int i = 0; i < 100'000; ++i) text += static_cast<char>(random());
  check_answer(text);
}

TEST_CASE("parallel_echo answers 10 MB of lines, and a single line of 10 MB") {
  std::mt19937 random(2);
  std::string text;
  while (text.size() < 10'000'000) text.append(random() % 200, 'x').append("\n");
  check_answer(text);
  check_answer(std::string(10'000'000, 'y'));
}

TEST_CASE("parallel_echo reads the standard input when no file is named") {
  program demo("parallel_echo", {});
  demo.write("from a pipe\n");
  demo.end_input();
  CHECK(demo.ends() == 0);
  INFO(demo.output());
  CHECK(has_line(demo.output(), "  \\| 1: FROM A PIPE"));
}

TEST_CASE("parallel_echo leaves no server behind when it is killed") {
  const int number = GENERATE(SIGKILL, SIGTERM, SIGINT);
  waiting_demo demo;
  demo.signal(number);
  CHECK(demo.ends() == -number);
  check_that_no_server_is_left(demo);
}

TEST_CASE("parallel_echo fails and leaves no server behind when one dies early") {
  waiting_demo demo;
  const auto pids = server_pids(demo);
  REQUIRE(pids.size() == 3);
  REQUIRE(::kill(pids[0], SIGKILL) == 0);
  demo.end_input();
  CHECK(demo.ends() == 1);
  INFO(demo.output());
  CHECK(has_line(demo.output(), "parallel_echo: .+"));
  check_that_no_server_is_left(demo);
}

TEST_CASE("parallel_echo refuses an input that it cannot read, before it starts a server") {
  const scratch folder;
  const std::string name = GENERATE("no such file", ".");
  program demo("parallel_echo", {folder.path(name)});
  CHECK(demo.ends() == 1);
  INFO(demo.output());
  CHECK(has_line(demo.output(), "parallel_echo: cannot read .+"));
  CHECK(server_pids(demo).empty());
}

TEST_CASE("parallel_echo refuses an input above its limit") {
  const scratch folder;
  std::filesystem::resize_file(folder.file("large", ""), (std::size_t{64} << 20) + 1);
  program demo("parallel_echo", {folder.path("large")});
  CHECK(demo.ends() == 1);
  INFO(demo.output());
  CHECK(has_line(demo.output(), "parallel_echo: the input has more than 64 MiB"));
  check_that_no_server_is_left(demo);
}

TEST_CASE("call_styles makes the call in each style, on every kind of coroutine") {
  program demo("call_styles", {});
  const int status = demo.ends();
  const auto& output = demo.output();
  INFO(output);
  CHECK(status == 0);
  const std::string no = " +42 'the answer is no' after 1 attempt";
  CHECK(has_line(output, "  call\\(\\.\\.\\.\\) +hello"));
  CHECK(has_line(output, "  use_future that throws call_error" + no));
  CHECK(has_line(output, "  use_awaitable that throws call_error" + no));
  CHECK(has_line(output, "  a method by its name +named"));
  CHECK(has_line(output, "  of two, the first; the other is cancelled +quick, 125"));
  // In braid's coroutines and in Asio's.
  const std::string stackful = "  async_call\\(\\.\\.\\., yield\\) that throws call_error" + no + "\n";
  CHECK(std::regex_search(output, std::regex(stackful + "[^]*" + stackful)));
  CHECK(has_line(output, "each answered as it should"));
}

TEST_CASE("cancel tells 1008 from 125, and whose cancellation it was") {
  program demo("cancel", {});
  const int status = demo.ends();
  const auto& output = demo.output();
  INFO(output);
  CHECK(status == 0);
  CHECK(has_line(output, "  deadline +1008  (deadline|none) .*"));
  for (const std::string who : {"another thread", "before the start", "slot of the token", "its coroutine"}) {
    INFO(who);
    CHECK(has_line(output, "  " + who + " +125  user .*"));
  }
  CHECK(has_line(output, "    sub call 0 +125  fail_limit .*"));
  CHECK(has_line(output, "    sub call 0 +1006  success_limit .*"));
  CHECK(has_line(output, "  deadline of the whole +1008  (deadline|none) .*"));
}

TEST_CASE("the demos explain themselves") {
  const std::string name = GENERATE("parallel_echo", "call_styles", "cancel", "echo_server", "echo_client");
  program help(name, {"--help"});
  CHECK(help.ends() == 0);
  INFO(help.output());
  CHECK(help.output().find("Options:") != std::string::npos);
  CHECK(!std::regex_search(help.output(), std::regex("--serve\\b")));  // not for users

  program wrong(name, {"--no-such-option"});
  CHECK(wrong.ends() != 0);
}

TEST_CASE("echo: the client prints what the server sends back, and the server ends when told to") {
  const int number = GENERATE(SIGTERM, SIGINT);
  program server("echo_server", {"--listen", "127.0.0.1:0"});
  REQUIRE(server.prints("READY 127.0.0.1:"));
  const auto address = server.words_after("READY ").front();

  program client("echo_client", {"--timeout", "60000", "--server", address, "hello", "Größe", ""});
  const int status = client.ends();
  INFO(client.output());
  CHECK(status == 0);
  CHECK(has_line(client.output(), "hello"));
  CHECK(has_line(client.output(), "Größe"));
  CHECK(has_line(client.output(), "  from " + address + " in [0-9]+ .*"));

  server.signal(number);
  CHECK(server.ends() == 0);

  program late("echo_client", {"--timeout", "60000", "--server", address, "hello"});
  CHECK(late.ends() == 1);
  INFO(late.output());
  CHECK(has_line(late.output(), "echo_client: .*\\(111\\)"));
}

TEST_CASE("echo: a server refuses an address that it cannot listen on") {
  program server("echo_server", {"--listen", "nonsense"});
  CHECK(server.ends() == 1);
  INFO(server.output());
  CHECK(has_line(server.output(), "echo_server: .+"));
}

TEST_CASE(
    "your_own_combo: a race of replicas inside a parallel channel takes the first answer of each shard") {
  program demo("your_own_combo", {});
  const int status = demo.ends();
  INFO(demo.output());
  CHECK(status == 0);
  CHECK(has_line(demo.output(), "call: ok"));
  CHECK(has_line(demo.output(), "    replica 1: 125 .*, cause sibling_won"));
  CHECK(has_line(demo.output(), "    replica 0: 111 .*, cause none"));
  CHECK(has_line(demo.output(), "answers: quick steady "));
}
