#pragma once

#include <google/protobuf/descriptor.h>

#include <string_view>

namespace braid::wire {

/// Whether a message of `type`, whose bytes these are, lies at most `levels` deep in messages, with what its
/// Anys hold. Protobuf bounds neither the Anys in Anys that it writes as JSON nor those that it reads as
/// text.
bool bytes_nest_within(std::string_view bytes, const google::protobuf::Descriptor& type, int levels);

/// Whether the brackets of protobuf's text format lie at most `levels` deep.
bool text_nests_within(std::string_view text, int levels) noexcept;

}  // namespace braid::wire
