#pragma once

// What the hostile tests over sockets share.

#include <braid/endpoint.hpp>
#include <braid/log.hpp>
#include <braid/runtime.hpp>

#include "unit/hostile_run.hpp"

#include <google/protobuf/stubs/logging.h>

#include <unistd.h>

#include <cstddef>
#include <filesystem>
#include <iterator>
#include <string>
#include <vector>

namespace hostile {

/// A sanitizer is slower by an order of magnitude, so there some cases do less, and say so.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr bool sanitized = true;
#else
constexpr bool sanitized = false;
#endif

/// Every how manieth value of a byte is tried over sockets.
constexpr std::size_t value_stride = sanitized ? sample_stride : 1;

/// Where the tests of one transport listen.
struct transport {
  std::string name;
  braid::endpoint at;
  std::vector<ending> endings;
};
inline transport over_tcp() {
  return {"tcp",
          braid::endpoint::parse("127.0.0.1:0").value(),
          {ending::half_close, ending::close, ending::reset}};
}
/// An abstract name that no other process uses. A unix socket has no reset.
inline transport over_unix() {
  return {"unix",
          braid::endpoint::parse("unix:@braid-hostile-" + std::to_string(::getpid())).value(),
          {ending::half_close, ending::close}};
}

/// Without a log: thousands of broken connections would each have a line.
inline braid::runtime_options quiet() {
  return {.loops = 1, .log = [](braid::log_level, std::string_view, std::span<const braid::log_field>) {}};
}

/// The descriptors that this process has open.
inline std::ptrdiff_t open_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return std::distance(begin(all), end(all));
}

}  // namespace hostile
