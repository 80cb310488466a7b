#pragma once

#include <braid/controller.hpp>

#include <google/protobuf/message.h>

#include <cstddef>
#include <memory>
#include <vector>

namespace braid::client {

/// The sub calls of a combo call, as its controller shows them after the end.
class sub_calls {
 public:
  struct entry {
    controller control;
    std::unique_ptr<google::protobuf::Message> request;   ///< When the sub call owns it.
    std::unique_ptr<google::protobuf::Message> response;  ///< When the sub call owns it.
  };

  explicit sub_calls(std::size_t count) : entries_(count) {}

  std::size_t size() const noexcept { return entries_.size(); }
  entry* at(std::size_t index) noexcept { return entries_[index].get(); }
  const entry* at(std::size_t index) const noexcept { return entries_[index].get(); }
  entry& make(std::size_t index) {
    if (!entries_[index]) entries_[index] = std::make_unique<entry>();
    return *entries_[index];
  }

  /// Takes over the parent's metadata, shared until a sub call changes its own.
  static void inherit_metadata(controller& sub, const controller& parent) noexcept {
    sub.request_metadata_ = parent.request_metadata_;
  }

 private:
  std::vector<std::unique_ptr<entry>> entries_;
};

}  // namespace braid::client
