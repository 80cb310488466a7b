#pragma once

#include <braid/payload_format.hpp>

#include <google/protobuf/io/zero_copy_stream.h>
#include <google/protobuf/message.h>

#include <string>

namespace braid::wire {

/// Writes `message`, which has all required fields, as JSON or as text. False: `why` says what is wrong.
bool print_message(const google::protobuf::Message& message, content_type as, std::string& out,
                   std::string& why);

/// Reads `from` into `message`; whether required fields are there is the caller's to check. False: `why`
/// says what is wrong. Nesting is bounded.
bool parse_message(google::protobuf::io::ZeroCopyInputStream& from, content_type as,
                   google::protobuf::Message& message, std::string& why);

}  // namespace braid::wire
