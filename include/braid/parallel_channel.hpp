#pragma once

/// \file
/// A channel that calls several channels at once and merges their answers.

#include <braid/combo_channel.hpp>
#include <braid/config.hpp>

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

namespace braid {

namespace combo {
class parallel_target;
}

/// What a call_mapper makes of one sub channel: a sub call, nothing, or an error.
class sub_call {
 public:
  /// A call with messages that outlive the parent call. A borrowed response must lie inside the response
  /// given to the mapper, where it stays if there is no merger; null: a new message. A null request: the
  /// parent's.
  sub_call(const google::protobuf::MethodDescriptor& method, const google::protobuf::Message* request,
           google::protobuf::Message* response = nullptr) noexcept {
    request_.method = &method;
    request_.request = request;
    request_.response = response;
  }
  /// A call with messages that it owns; a null response: a new message. A method that is not of generated
  /// code needs a response: without one it counts as bad().
  sub_call(const google::protobuf::MethodDescriptor& method,
           std::unique_ptr<google::protobuf::Message> request,
           std::unique_ptr<google::protobuf::Message> response = nullptr) noexcept {
    request_.method = &method;
    request_.owned_request = std::move(request);
    request_.owned_response = std::move(response);
  }

  /// The call cannot be mapped: the parent call fails at once with errc::bad_request and sends nothing.
  static sub_call bad() noexcept { return sub_call(kind::bad); }
  /// This sub channel is not needed: sub(i) will be null, and it is not counted.
  static sub_call skip() noexcept { return sub_call(kind::skip); }

  /// Whether it is bad().
  bool is_bad() const noexcept { return kind_ == kind::bad; }
  /// Whether it is skip().
  bool is_skip() const noexcept { return kind_ == kind::skip; }

  /// Changes the sub call's controller before anything is sent: metadata (shared with the parent's until it
  /// is written), a timeout that ends it before the parent. Throwing counts as bad().
  sub_call& prepare(std::function<void(controller&)> change) & {
    prepare_ = std::move(change);
    return *this;
  }
  /// The same for a temporary.
  sub_call&& prepare(std::function<void(controller&)> change) && {
    return std::move(prepare(std::move(change)));
  }
  /// An end before the parent's; a later one has no effect.
  sub_call& set_deadline(std::chrono::steady_clock::time_point deadline) & noexcept {
    request_.deadline = deadline;
    return *this;
  }
  /// The same for a temporary.
  sub_call&& set_deadline(std::chrono::steady_clock::time_point deadline) && noexcept {
    return std::move(set_deadline(deadline));
  }

  /// For the library's own layers.
  sub_call_request& request() noexcept { return request_; }
  /// For the library's own layers.
  const std::function<void(controller&)>& preparation() const noexcept { return prepare_; }

 private:
  enum class kind : unsigned char { call, bad, skip };
  explicit sub_call(kind of) noexcept : kind_(of) {}

  kind kind_ = kind::call;
  sub_call_request request_{};
  std::function<void(controller&)> prepare_{};
};

/// Makes the sub calls of a parallel call.
///
/// Object lifetimes: the channel and its calls share it. `request` is the caller's, or a copy, and lives as
/// long as the call; so does `response`.
///
/// Thread safety: called on the call's loop, for several calls at once, on different threads.
class call_mapper {
 public:
  virtual ~call_mapper() = default;
  /// The sub call for channel `index` of `count`. Throwing counts as sub_call::bad().
  virtual sub_call map(std::size_t index, std::size_t count, const google::protobuf::MethodDescriptor& method,
                       const google::protobuf::Message& request, google::protobuf::Message& response) = 0;
};

/// What a response_merger made of one sub response.
enum class merge_result {
  merged,
  fail,      ///< This sub call counts as failed after all; the outcome is judged again.
  fail_all,  ///< The parallel call fails with errc::bad_response.
};

/// Merges sub responses into the response, after the calls are decided: one at a time, in the order of the
/// channels, successes only. Without one, sub responses are merged by MergeFrom, which needs them to be of
/// the response's type.
///
/// Object lifetimes: the channel and its calls share it. Both messages belong to the call and are valid until
/// merge() returns; `response` is swapped into the caller's when the call succeeds.
///
/// Thread safety: called on the call's loop, once the sub calls have ended and perhaps after the deadline;
/// for several calls at once, on different threads.
class response_merger {
 public:
  virtual ~response_merger() = default;
  /// Throwing counts as merge_result::fail_all.
  virtual merge_result merge(google::protobuf::Message& response,
                             const google::protobuf::Message& sub_response) = 0;
};

/// The settings of a parallel channel.
struct parallel_channel_options {
  /// As channel_options::timeout. The sub channels' own timeouts do not apply.
  std::chrono::nanoseconds timeout = std::chrono::milliseconds(500);
  /// The call fails once so many sub calls have failed. Unset: all of them. Below 1: 1; above the number: the
  /// number.
  std::optional<int> fail_limit{};
  /// The call succeeds once so many sub calls have succeeded, and cancels the rest. Unset: one success is
  /// needed, and all are awaited. More than there are sub calls: the call fails with 22.
  std::optional<int> success_limit{};
};

/// A channel that calls several channels at once.
///
/// Outcome: success if and only if at least max(1, success_limit) sub calls succeeded and fewer than
/// fail_limit failed. The call ends as soon as that is decided. See docs for the table of codes.
///
/// Sub calls: a call without a mapper sends the same request, serialised once, to all. controller::sub(i)
/// shows each.
///
/// Deadline: that of the whole call, which covers mapping, the sub calls and their end; merging may start at
/// it. A sub call unfinished then has failed with errc::timed_out. Only a mapper gives one an earlier
/// deadline.
///
/// Cancellation: see channel_base. It reaches each sub call with its cause; a cancelled call never succeeds
/// and merges nothing. The limits cancel what is left, with 125 at fail_limit and errc::parallel_finished at
/// success_limit. `total` works while no byte of any sub call's request was handed to a transport.
///
/// Errors: no channels 1, a mapper's bad() 1003, all skipped 125, a success_limit above the number 22, all
/// before anything is sent. Then: the deadline has decided it 1008; the code that all failed sub calls share,
/// else errc::too_many_fails; a merger that fails the call errc::bad_response. The text names each failed sub
/// call.
///
/// Object lifetimes: may be destroyed right after an asynchronous start. A request that may go with the
/// initiating function is copied; see controller::set_request_outlives_call(). Mappers and mergers are kept
/// by the channel and its calls.
///
/// Thread safety: calls may be started from any thread; channels must not be added while calls run.
class parallel_channel : public channel_base {
 public:
  /// A channel without sub channels; see add_channel().
  explicit parallel_channel(const runtime& rt, parallel_channel_options options = {});
  ~parallel_channel() override;

  /// Adds a channel, which is ready for calls; the same one may be added many times, and any kind of channel,
  /// also of another runtime: its calls then run on a loop of that one. What it calls is shared, so the
  /// channel object itself may go. Throws std::invalid_argument for null and for this channel itself.
  void add_channel(std::shared_ptr<channel_base> channel, std::shared_ptr<call_mapper> mapper = nullptr,
                   std::shared_ptr<response_merger> merger = nullptr);
  /// The same for a channel that somebody else owns.
  void add_channel(channel_base* channel, std::shared_ptr<call_mapper> mapper = nullptr,
                   std::shared_ptr<response_merger> merger = nullptr);

  /// How many channels were added.
  std::size_t channel_count() const noexcept;

 private:
  explicit parallel_channel(std::shared_ptr<combo::parallel_target> target) noexcept;

  std::shared_ptr<combo::parallel_target> parallel_;
};

}  // namespace braid
