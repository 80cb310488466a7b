#pragma once

#include <braid/payload_format.hpp>

#include <google/protobuf/message.h>

#include <string>
#include <string_view>

namespace braid::wire {

// Both recurse by the nesting of the message, and use the base stack for that when a coroutine calls them.

/// Writes `message`, which has all required fields, as JSON or as text. False: `why` says what is wrong. The
/// nesting of JSON is bounded, with that of Any in Any.
bool print_message(const google::protobuf::Message& message, content_type as, std::string& out,
                   std::string& why);

/// Reads `from` into `message`; whether required fields are there is the caller's to check. False: `why`
/// says what is wrong. Nesting is bounded.
bool parse_message(std::string_view from, content_type as, google::protobuf::Message& message,
                   std::string& why);

}  // namespace braid::wire
