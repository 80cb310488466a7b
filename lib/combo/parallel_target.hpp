#pragma once

#include <braid/parallel_channel.hpp>

#include "client/call_target.hpp"

#include <memory>
#include <vector>

namespace braid::combo {

/// One channel of a parallel channel.
struct parallel_member {
  std::shared_ptr<client::call_target> channel;
  std::shared_ptr<call_mapper> mapper;
  std::shared_ptr<response_merger> merger;
};

/// What calls on a parallel channel run on: its channels and its limits.
class parallel_target final : public client::call_target {
 public:
  parallel_target(std::shared_ptr<core::runtime_core> runtime, const parallel_channel_options& options)
      : call_target(std::move(runtime), options.timeout),
        options_(options),
        members_(std::make_shared<std::vector<parallel_member>>()) {}

  /// Not while calls run.
  void add(parallel_member member) { members_->push_back(std::move(member)); }
  std::size_t size() const noexcept { return members_->size(); }

  void start(client::call& started, const std::shared_ptr<call_target>& self) noexcept override;

  bool reaches(const call_target& there) const noexcept override;
  bool usable() const noexcept override;
  int capacity() const noexcept override;

 private:
  parallel_channel_options options_;
  std::shared_ptr<std::vector<parallel_member>> members_;  // shared with running calls
};

}  // namespace braid::combo
