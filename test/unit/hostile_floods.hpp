#pragma once

// Small frames that cost a peer nothing to send by the thousand.

#include "golden/frame_model.hpp"
#include "golden/hostile_cases.hpp"
#include "unit/server_fixture.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace hostile {

struct flood {
  const char* name;
  std::string frame;
  bool answered = false;  ///< By a server; a client counts it as an answer to nobody.

  std::string times(int count) const {
    std::string all;
    for (int i = 0; i < count; ++i) all += frame;
    return all;
  }
};

/// Body sizes over this are too large for the servers and clients of these tests.
constexpr std::size_t flooded_max_body = 1000;

inline std::string extension_frame(std::string_view name, bool to_server) {
  for (const golden::chunk& each : golden::extension_frames())
    if (each.name == name && each.to_server == to_server) return each.bytes;
  throw std::logic_error("no such frame");
}

inline std::vector<flood> floods_of_server() {
  auto nobody = server_test::echo_meta(1);
  nobody.request.service_name = "golden.Nobody";
  braid::wire::rpc_meta answer;
  answer.has_response = true;
  return {{"requests", server_test::echo(1, "x"), true},
          {"requests for no service", server_test::frame(nobody, ""), true},
          {"requests that cannot be read", server_test::frame(server_test::echo_meta(1), "\xff"), true},
          {"oversized requests", server_test::echo(1, std::string(flooded_max_body, 'x')), true},
          {"answers", server_test::frame(answer, "")},
          {"announcements", extension_frame("announcement", true)},
          {"cancels", extension_frame("cancel", true)},
          {"empty frames", golden::make_frame("", "")}};
}

/// All for a client that waits for none of them.
inline std::vector<flood> floods_of_client() {
  braid::wire::rpc_meta answer;
  answer.has_response = true;
  answer.correlation_id = std::int64_t{5} << 32;
  return {{"answers", server_test::frame(answer, ""), true},
          {"oversized answers", server_test::frame(answer, std::string(flooded_max_body, 'x')), true},
          {"requests", server_test::echo(1, "x"), true},
          {"announcements", extension_frame("announcement", false)},
          {"cancels", extension_frame("cancel", false)},
          {"empty frames", golden::make_frame("", "")}};
}

}  // namespace hostile
