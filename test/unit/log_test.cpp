#include <braid/log.hpp>

#include <catch2/catch.hpp>

#include <unistd.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using braid::log_field;
using braid::log_level;
using braid::logger;

constexpr log_level levels[] = {log_level::debug, log_level::info, log_level::warning, log_level::error};

// What a function writes to standard error (less than a pipe holds).
template <class Function>
std::string stderr_of(Function function) {
  int pipe_ends[2];
  REQUIRE(::pipe(pipe_ends) == 0);
  const int saved = ::dup(STDERR_FILENO);
  REQUIRE(saved >= 0);
  ::dup2(pipe_ends[1], STDERR_FILENO);
  ::close(pipe_ends[1]);
  function();
  ::dup2(saved, STDERR_FILENO);  // closes the last writing end
  ::close(saved);
  std::string text;
  char buffer[4096];
  for (ssize_t n = 0; (n = ::read(pipe_ends[0], buffer, sizeof(buffer))) > 0;) {
    text.append(buffer, static_cast<std::size_t>(n));
  }
  ::close(pipe_ends[0]);
  return text;
}

TEST_CASE("reports below the minimum do not reach the sink", "[log]") {
  for (auto minimum : levels) {
    std::vector<log_level> seen;
    const logger log{[&](log_level level, auto, auto) { seen.push_back(level); }, minimum};
    for (auto level : levels) {
      CHECK(log.enabled(level) == (level >= minimum));
      log.log(level, "text");
    }
    CHECK(seen ==
          std::vector<log_level>(std::find(std::begin(levels), std::end(levels), minimum), std::end(levels)));
  }
}

TEST_CASE("text and fields reach the sink as they are", "[log]") {
  std::string seen;
  const logger log{[&](log_level level, std::string_view text, std::span<const log_field> fields) {
    seen = std::string{to_string(level)} + "|" + std::string{text};
    for (const auto& f : fields) seen += "|" + std::string{f.name} + "=" + std::string{f.value};
  }};
  log.log(log_level::error, "it broke", {{"peer", "1.2.3.4:80"}, {"errno", "104"}});
  CHECK(seen == "error|it broke|peer=1.2.3.4:80|errno=104");
  const std::vector<log_field> fields = {{"a", "b"}};
  log.log(log_level::warning, "x", fields);
  CHECK(seen == "warning|x|a=b");
}

TEST_CASE("a sink that throws hurts nobody", "[log]") {
  int calls = 0;
  const logger log{[&](auto...) {
    ++calls;
    throw std::runtime_error{"made up"};
  }};
  log.log(log_level::error, "one");
  log.log(log_level::error, "two");
  CHECK(calls == 2);
}

TEST_CASE("a logger without a sink is off", "[log]") {
  const logger log{nullptr, log_level::debug};
  CHECK_FALSE(log.enabled(log_level::error));
  log.log(log_level::error, "nobody hears this");
}

TEST_CASE("the default logger writes warnings and worse to standard error", "[log]") {
  const logger log;
  const auto text = stderr_of([&] {
    for (auto level : levels) log.log(level, "hello", {{"peer", "[::1]:80"}});
  });
  CHECK(text == "braid warning: hello peer=[::1]:80\nbraid error: hello peer=[::1]:80\n");
}

TEST_CASE("a report is one line, whatever is in it", "[log]") {
  const auto text = stderr_of([] {
    logger{}.log(log_level::error, "a\nb\x1b[1m", {{"q", "say \"x\" \\"}, {"empty", ""}, {"tab\t", "\x7f"}});
  });
  CHECK(text == "braid error: a\\nb\\x1b[1m q=\"say \\\"x\\\" \\\\\" empty=\"\" tab\\x09=\\x7f\n");
}

TEST_CASE("a line ends at 4096 bytes", "[log]") {
  const std::string huge(10'000, 'x');
  const auto in_text = stderr_of([&] { logger{}.log(log_level::error, huge, {{"a", "b"}}); });
  CHECK(in_text.size() == 4096);
  CHECK(in_text.back() == '\n');
  const auto in_value = stderr_of([&] {
    logger{}.log(log_level::error, "t", {{"a", huge + " "}, {"b", huge}});
  });
  CHECK(in_value.size() == 4096);
  CHECK(std::count(in_value.begin(), in_value.end(), '\n') == 1);
}

}  // namespace
