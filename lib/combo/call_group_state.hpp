#pragma once

#include <braid/combo_channel.hpp>
#include <braid/coroutine.hpp>

#include "client/call.hpp"
#include "client/call_target.hpp"
#include "client/sub_calls.hpp"
#include "combo/combo_run.hpp"

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace braid::combo {

/// The sub calls of one combo call and the coroutine that waits for them.
class call_group_state final {
 public:
  /// `subs`: of `parent`, with room for all.
  call_group_state(combo_run& parent, client::sub_calls& subs);
  ~call_group_state();

  /// What a sub call of `method` (null: the parent's) makes its response from when it is given none. Throws
  /// std::invalid_argument where there is nothing.
  static const google::protobuf::Message& response_prototype(
      combo_run& parent, const google::protobuf::MethodDescriptor* method);

  controller& control(std::size_t index);
  void launch(std::size_t index, const std::shared_ptr<client::call_target>& on, sub_call_request request);
  const finished_sub_call* next(yield_context yield);
  /// Cancels what still runs, with 1006 for sub calls that are not needed any more.
  void cancel(cancel_cause cause) noexcept;
  /// Waits until nothing runs.
  void join(yield_context yield);
  finished_sub_call at(std::size_t index) const;
  std::size_t running() const noexcept { return running_; }

 private:
  class pause;
  struct member final : client::call_listener {
    void on_settled(client::call&) noexcept override { group->settled(*this); }

    call_group_state* group = nullptr;
    std::size_t index = 0;
    std::optional<client::call> call;
    std::optional<finished_sub_call> finished;
    bool returned = false;
  };

  void settled(member& ended) noexcept;
  bool shares_payload(const sub_call_request& request, const controller& control) const noexcept;
  core::time_point deadline_of(const controller& control, const sub_call_request& request,
                               core::time_point now) const noexcept;
  const finished_sub_call* take_next();
  bool must_wait() const noexcept;

  combo_run& parent_;
  client::sub_calls& subs_;
  std::vector<member> members_;     // of a fixed size: calls refer to theirs
  std::vector<std::size_t> ended_;  // in the order in which they ended
  std::size_t taken_ = 0;           // of those
  std::size_t sweep_ = 0;           // the first index that may be unreturned, once the parent is cancelled
  std::size_t running_ = 0;
  pause* waiting_ = nullptr;
  bool joining_ = false;
};

}  // namespace braid::combo
