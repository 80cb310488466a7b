#pragma once

// How what a server or a client made of a hostile stream is held against the oracle.

#include <braid/controller.hpp>
#include <braid/error.hpp>

#include "golden.pb.h"
#include "golden/hostile_oracle.hpp"
#include "unit/hostile_report.hpp"

#include <cstdint>
#include <string>
#include <string_view>

namespace hostile {

/// The id of the sound request behind a case.
constexpr std::int64_t probe_id = 424242;

constexpr std::size_t max_body = std::size_t{64} * 1024 * 1024;

inline golden::server_expectation expect_of_server(std::string_view stream,
                                                   const golden::connection_past& past = {}) {
  return golden::expect_of_server(stream, golden::decode_formats(max_body), max_body, past);
}
inline golden::client_expectation expect_of_client(std::string_view stream,
                                                   std::vector<std::int64_t> waiting) {
  return golden::expect_of_client(stream, std::move(waiting), golden::decode_formats(max_body), max_body);
}

/// What is wrong with all that a server sent; empty: nothing.
inline std::string judge_answers(std::string_view stream, const golden::server_expectation& expected) {
  std::size_t matched = 0;
  for (std::string_view each = golden::cut_frame(stream); !each.empty(); each = golden::cut_frame(stream)) {
    std::int64_t id = 0;
    golden::reply got;
    if (!golden::read_reply(each, id, got)) return "the answer cannot be read";
    if (matched == expected.replies.size()) return "an answer too many: " + golden::to_string(got);
    const auto& [expected_id, reply] = expected.replies[matched++];
    if (id != expected_id) return "an answer to " + std::to_string(id);
    if (got != reply) return "expected " + golden::to_string(reply) + ", got " + golden::to_string(got);
  }
  if (!stream.empty()) return "half an answer";
  return matched == expected.replies.size() ? "" : "an answer is missing";
}

/// Counts a case that a server took as it should, by the answer to it, and not the announcement before it or
/// the probe's.
inline void count(hostile_report& report, const golden::server_expectation& expected) {
  if (expected.closes) return report.count("closed");
  if (expected.owes) return report.count("rest of a frame awaited");
  int code = -1;
  for (const auto& [id, reply] : expected.replies)
    if (id != probe_id && reply.code != golden::reply::announcement && code == -1) code = reply.code;
  report.count_code(code);
}

/// Counts one that a client took as it should, by the outcome of the call that it answers.
inline void count(hostile_report& report, const golden::client_expectation& expected, std::int64_t id) {
  if (expected.closes) return report.count("connection closed, all 2002");
  const auto due = expected.ended.find(id);
  if (due == expected.ended.end()) return report.count(expected.owes ? "rest awaited" : "ignored");
  report.count_code(due->second.code);
}

/// What became of a call.
inline golden::reply outcome_of(const braid::error_code& ec, const braid::controller& control,
                                const golden::EchoResponse& response) {
  golden::reply got;
  got.code = braid::to_wire(ec);
  if (got.code != 0) return got;
  got.message = response.message();
  got.attachment = control.response_attachment().to_string();
  for (const auto& [key, value] : control.response_metadata().user_fields)
    got.user_fields.emplace(key, value);
  return got;
}

}  // namespace hostile
