#include "call_table.hpp"

#include <fmt/format.h>

#include <chrono>
#include <string>
#include <string_view>

namespace demo {
namespace {

void print_row(std::string_view index, std::string_view peer, std::string_view code, std::string_view latency,
               std::string_view meaning) {
  fmt::print("  {:<6}{:<23}{:>5}{:>12}  {}\n", index, peer, code, latency, meaning);
}

std::string in_ms(std::chrono::nanoseconds time) {
  return fmt::format("{:.2f} ms", std::chrono::duration<double, std::milli>(time).count());
}

std::string meaning_of(const braid::controller& control) {
  if (control.Failed()) return control.error().message();
  return control.partial() ? "ok, but partial" : "ok";
}

void print_call(std::string_view index, std::string_view peer, const braid::controller& control) {
  print_row(index, peer, fmt::format("{}", control.error().value()), in_ms(control.latency()),
            meaning_of(control));
}

}  // namespace

void print_call_table(const braid::controller& control) {
  print_row("sub", "peer", "code", "latency", "meaning");
  for (std::size_t i = 0; i < control.sub_count(); ++i) {
    const auto index = fmt::format("{}", i);
    if (const auto* sub = control.sub(i)) {
      print_call(index, sub->remote_side().to_string(), *sub);
    } else {
      print_row(index, "-", "-", "-", "not called");
    }
  }
  print_call("call", "all of them", control);
}

}  // namespace demo
