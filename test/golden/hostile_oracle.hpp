#pragma once

#include "golden/oracle.hpp"

#include <google/protobuf/message.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace golden {

/// Reads a payload into a message the way its meta says; false: it cannot be read.
using payload_decoder = std::function<bool(const oracle_meta& meta, std::string_view payload,
                                           std::string_view attachment, google::protobuf::Message& into)>;

/// Every format of the contract, by protobuf's, zlib's and snappy's own functions, with a limit of what comes
/// out of a compressed payload.
payload_decoder decode_formats(std::size_t max_body);

/// One answer, or the outcome of one call: what the contract says of a frame.
struct reply {
  static constexpr int announcement = -2;  ///< No answer: the server tells its features.

  int code = 0;
  std::string message;  ///< Of the EchoResponse, where the code is 0.
  std::string attachment;
  std::map<std::string, std::string> user_fields;
  bool operator==(const reply&) const = default;
};

std::string to_string(const reply& what);

/// What matters of what a connection has brought before.
struct connection_past {
  bool heard = false;  ///< A frame had a meta.
  std::string
      token{};  ///< What the server's authenticator takes; empty: it has none, or the client is let in.
};

/// What a server of golden.EchoService.Echo, whose handler sends everything back and fails with fail_code,
/// must do with a stream; by protobuf's parser and the contract's table.
struct server_expectation {
  std::vector<std::pair<std::int64_t, reply>> replies;  ///< By correlation id, in order.
  bool closes = false;                                  ///< The stream can be no frames.
  bool owes = false;                                    ///< The stream ends inside a frame.
  connection_past past;                                 ///< With this stream.
};
server_expectation expect_of_server(std::string_view stream, const payload_decoder& decode,
                                    std::size_t max_body, connection_past past = {});

/// What must become of calls to such a server that wait on one connection when a stream arrives.
struct client_expectation {
  std::map<std::int64_t, reply> ended;  ///< Of the waiting ones.
  bool closes = false;
  bool owes = false;
};
client_expectation expect_of_client(std::string_view stream, std::vector<std::int64_t> waiting,
                                    const payload_decoder& decode, std::size_t max_body);

/// The reply that a server's frame carries, and its id; false: it is no whole, readable frame.
bool read_reply(std::string_view frame, std::int64_t& id, reply& into);

/// Cuts the first whole frame off a stream; empty: there is none.
std::string_view cut_frame(std::string_view& stream);
/// How many of them it begins with.
std::size_t whole_frames(std::string_view stream);

}  // namespace golden
