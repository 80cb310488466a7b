#pragma once

#include <braid/controller.hpp>

#include <google/protobuf/message.h>

#include <cstddef>
#include <memory>
#include <utility>

namespace braid::client {

/// The sub calls of a combo call, as its controller shows them after the end.
class sub_calls {
 public:
  struct entry {
    controller control;
    std::unique_ptr<google::protobuf::Message> request;   ///< When the sub call owns it.
    std::unique_ptr<google::protobuf::Message> response;  ///< When the sub call owns it.
  };

  explicit sub_calls(std::size_t count) : entries_(std::make_unique<slot[]>(count)), count_(count) {}

  std::size_t size() const noexcept { return count_; }
  /// Null: there is no such sub call.
  entry* at(std::size_t index) noexcept { return entries_[index].made ? &entries_[index] : nullptr; }
  const entry* at(std::size_t index) const noexcept {
    return entries_[index].made ? &entries_[index] : nullptr;
  }
  entry& make(std::size_t index) noexcept {
    entries_[index].made = true;
    return entries_[index];
  }

  /// Takes over the parent's metadata, shared until a sub call changes its own.
  static void inherit_metadata(controller& sub, const controller& parent) noexcept {
    sub.request_metadata_ = parent.request_metadata_;
  }
  /// The settings and metadata of `parent`, for what may read them when that has gone. Not shared: counting
  /// references does not tell the user's thread when another has stopped reading.
  static void copy_settings(controller& into, const controller& parent) {
    into.timeout_ = parent.timeout_;
    into.detached_ = parent.detached_;
    into.request_outlives_call_ = parent.request_outlives_call_;
    if (parent.request_metadata_)
      into.request_metadata_ = std::make_shared<metadata>(*parent.request_metadata_);
  }
  /// Takes the sub calls out of a controller that has ended.
  static std::unique_ptr<sub_calls> take(controller& from) noexcept { return std::move(from.subs_); }

 private:
  struct slot final : entry {
    bool made = false;
  };

  std::unique_ptr<slot[]> entries_;  // in one piece: a fan-out makes them all
  std::size_t count_;
};

}  // namespace braid::client
