// One call over three server processes: its lines are split over them and their answers are joined. Then one
// of the servers is killed, and the call is made again.

#include <braid/channel.hpp>
#include <braid/controller.hpp>
#include <braid/parallel_channel.hpp>
#include <braid/runtime.hpp>

#include "call_table.hpp"
#include "line_server.hpp"
#include "lines.hpp"
#include "lines.pb.h"

#include <boost/asio/error.hpp>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <array>
#include <chrono>
#include <cstdio>
#include <exception>
#include <fstream>
#include <iostream>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

using namespace std::chrono_literals;

namespace {

constexpr std::size_t server_count = 3;
constexpr std::size_t victim = 1;  // the server that is killed

using servers = std::array<demo::line_server, server_count>;

// Gives each sub channel its share of the lines. Every server gets a call, if need be an empty one: the point
// here is what becomes of a call to a dead one. (sub_call::skip() would leave it out.)
class line_mapper : public braid::call_mapper {
 public:
  braid::sub_call map(std::size_t index, std::size_t count, const google::protobuf::MethodDescriptor& method,
                      const google::protobuf::Message& request, google::protobuf::Message&) override {
    const auto& whole = static_cast<const lines::NumberRequest&>(request);
    const auto share = demo::block_of(whole.text(), index, count);
    auto part = std::make_unique<lines::NumberRequest>();
    part->set_text(share.text.data(), share.text.size());
    part->set_first_line(share.first_line);
    return {method, std::move(part)};
  }
};

// Joins the answers, which come in the order of the channels.
class line_joiner : public braid::response_merger {
 public:
  braid::merge_result merge(google::protobuf::Message& response,
                            const google::protobuf::Message& sub_response) override {
    const auto& part = static_cast<const lines::NumberResponse&>(sub_response);
    static_cast<lines::NumberResponse&>(response).mutable_text()->append(part.text());
    return braid::merge_result::merged;
  }
};

// A call and what came of it.
struct numbering {
  braid::controller control;
  lines::NumberResponse response;
};

class client {
 public:
  client(const servers& all, std::string_view text, std::chrono::seconds timeout)
      : servers_(all), timeout_(timeout) {
    request_.set_text(text.data(), text.size());
    request_.set_first_line(1);
  }

  // `name` un-shares the connections of the call: a connection from before would break when its server is
  // killed, and whether the next call still meets it, and fails with 1014 or 104 instead of 111, would be a
  // matter of timing.
  void call(const std::string& name, std::optional<int> fail_limit, numbering& result) {
    braid::parallel_channel all(runtime_, {.timeout = timeout_, .fail_limit = fail_limit});
    for (const auto& server : servers_) {
      auto one = std::make_shared<braid::channel>(runtime_);
      one->init(server.address(), {.connect_timeout = 10s,  // a busy machine is not a dead server
                                   .connection_group = name,
                                   .max_body_size = demo::largest_message});
      all.add_channel(one, mapper_, joiner_);
    }
    lines::LineService::Stub stub(&all);
    stub.Number(&result.control, &request_, &result.response, nullptr);
  }

 private:
  const servers& servers_;
  const std::chrono::seconds timeout_;
  lines::NumberRequest request_;
  std::shared_ptr<line_mapper> mapper_ = std::make_shared<line_mapper>();
  std::shared_ptr<line_joiner> joiner_ = std::make_shared<line_joiner>();
  braid::runtime runtime_{{.loops = 1}};
};

struct settings {
  std::string input = "-";
  std::string output{};
  std::size_t show = 3;
  std::chrono::seconds timeout{60};
};

class unexpected : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

void expect(bool holds, const std::string& otherwise) {
  if (!holds) throw unexpected(otherwise);
}

template <typename... Args>
void say(fmt::format_string<Args...> format, Args&&... args) {
  fmt::print(format, std::forward<Args>(args)...);
  std::fflush(stdout);
}

std::ifstream open_input(const std::string& name) {
  std::ifstream file(name, std::ios::binary);
  file.peek();  // a folder can be opened, but not read
  if (file.fail()) throw std::runtime_error("cannot read " + name);
  file.clear();
  return file;
}

std::string read_all(std::istream& input) {
  std::string text;
  std::array<char, 1 << 16> some;
  do {
    input.read(some.data(), some.size());
    text.append(some.data(), static_cast<std::size_t>(input.gcount()));
    if (text.size() > demo::largest_text) {
      throw std::runtime_error(fmt::format("the input has more than {} MiB", demo::largest_text >> 20));
    }
  } while (input);
  if (input.bad()) throw std::runtime_error("cannot read the input");
  return text;
}

// The start of a line, with a dot for each byte that a terminal may not take well.
std::string preview(std::string_view line) {
  constexpr std::size_t width = 76;
  std::string shown(line.substr(0, width));
  for (char& c : shown) {
    if (c < ' ' || c > '~') c = '.';
  }
  return line.size() > width ? shown + " ..." : shown;
}

void show_answer(std::string_view text, std::size_t limit) {
  const auto total = demo::count_lines(text);
  for (std::size_t shown = 0; shown < limit && !text.empty(); ++shown) {
    const auto size = std::min(text.find('\n'), text.size());
    say("  | {}\n", preview(text.substr(0, size)));
    text.remove_prefix(std::min(size + 1, text.size()));
  }
  if (total > limit) say("  | ... and {} more\n", total - limit);
}

void save(const std::string& name, std::string_view text) {
  std::ofstream file(name, std::ios::binary);
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file.flush()) throw std::runtime_error("cannot write " + name);
}

void call_all(client& caller, std::string_view text, const settings& wanted) {
  say("\n1. A call over all {} servers\n", server_count);
  numbering result;
  caller.call("all", std::nullopt, result);
  demo::print_call_table(result.control);
  expect(!result.control.Failed(), result.control.ErrorText());
  expect(!result.control.partial(), "the call is said to be partial");
  expect(result.response.text() == demo::number_lines({.text = text}),
         "one process would say something else");
  say("  {} lines, the same as one process says\n", demo::count_lines(text));
  show_answer(result.response.text(), wanted.show);
  if (!wanted.output.empty()) save(wanted.output, result.response.text());
}

void call_with_fail_limit(client& caller) {
  say("\n2. The same again, with fail_limit 1\n");
  numbering result;
  caller.call("fail_limit 1", 1, result);
  demo::print_call_table(result.control);
  expect(result.control.error() == boost::asio::error::connection_refused,
         "the call should have failed with 111");
  expect(result.response.text().empty(), "a failed call has changed the response");
  say("  failed with 111, since one failure is too many\n");
}

void call_without_fail_limit(client& caller, std::string_view text) {
  say("\n3. The same again, without fail_limit\n");
  numbering result;
  caller.call("no fail_limit", std::nullopt, result);
  demo::print_call_table(result.control);
  expect(!result.control.Failed(), result.control.ErrorText());
  expect(result.control.partial(), "the call should have said that it is partial");
  std::string expected;
  for (std::size_t i = 0; i < server_count; ++i) {
    if (i != victim) expected += demo::number_lines(demo::block_of(text, i, server_count));
  }
  expect(result.response.text() == expected, "the answer is not that of the servers that live");
  const auto lost = demo::block_of(text, victim, server_count);
  const auto lost_lines = demo::count_lines(lost.text);
  if (lost_lines == 0) {
    say("  succeeded, and says that it is partial; server {} had no line\n", victim);
  } else {
    say("  succeeded, and says that it is partial: lines {} to {} of {} are missing\n", lost.first_line,
        lost.first_line + lost_lines - 1, demo::count_lines(text));
  }
}

void run(const settings& wanted) {
  std::ifstream file;
  if (wanted.input != "-") file = open_input(wanted.input);
  servers all;
  for (std::size_t i = 0; i < all.size(); ++i) {
    say("server {} is process {} at {}\n", i, all[i].pid(), all[i].address());
  }
  const auto text = read_all(wanted.input == "-" ? std::cin : file);
  client caller(all, text, wanted.timeout);
  call_all(caller, text, wanted);
  all[victim].kill();  // returns when it is gone
  say("\nserver {} is killed\n", victim);
  call_with_fail_limit(caller);
  call_without_fail_limit(caller, text);
}

}  // namespace

int main(int argc, char** argv) {
  settings wanted;
  bool serve = false;
  CLI::App app(
      "Starts three server processes and calls them as one: the lines of the input are split over them, each "
      "server "
      "numbers its lines and writes them in capitals, and the answers are joined. Then kills one server and "
      "calls "
      "again, once with fail_limit 1 and once without. Exits with 1 when any of it does not go as it "
      "should.");
  app.add_option("FILE", wanted.input, "the input; -: standard input")->capture_default_str();
  app.add_option("-o,--output", wanted.output, "also write the joined answer to this file");
  app.add_option("-n,--show", wanted.show, "how many lines of the answer to show")->capture_default_str();
  app.add_option_function<int>(
         "-t,--timeout", [&](int seconds) { wanted.timeout = std::chrono::seconds(seconds); },
         "how long a call may take, in seconds")
      ->check(CLI::Range(1, 86400))
      ->default_str("60");
  app.add_flag("--serve", serve)->group("");  // hidden: what the servers are started with
  CLI11_PARSE(app, argc, argv);
  try {
    serve ? demo::serve_lines_until_input_ends() : run(wanted);
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "parallel_echo: {}\n", error.what());
    return 1;
  }
}
