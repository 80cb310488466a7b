#pragma once

/// \file
/// The controller of one call: its settings before it starts, its result afterwards.

#include <braid/call_id.hpp>
#include <braid/call_parent.hpp>
#include <braid/config.hpp>
#include <braid/endpoint.hpp>
#include <braid/error.hpp>
#include <braid/metadata.hpp>
#include <braid/outcome.hpp>

#include <google/protobuf/service.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace braid {

class channel_base;

namespace client {
class call;
class root_call;
class async_root_call;
class leavable_call;
class sub_calls;
struct call_origin;
}  // namespace client

/// What the client's and the server's controller have in common: how the call failed, and what it carries.
class controller_base : public google::protobuf::RpcController {
 public:
  /// Whether the call failed, and how. Success as long as nobody said otherwise.
  const error_code& error() const noexcept { return error_; }
  /// Whether error() holds one.
  bool Failed() const override { return static_cast<bool>(error_); }
  /// The text that belongs to the error; the code's own message when nobody gave one.
  std::string ErrorText() const override;
  /// Fails the call with errc::internal and a text.
  void SetFailed(const std::string& reason) override;
  /// Fails the call with a code, also one of the application's own, and a text. A code that says success, 0,
  /// becomes errc::internal.
  void set_failed(const error_code& code, std::string_view text);
  /// The same with a code as it is on the wire.
  void set_failed(int code, std::string_view text) { set_failed(from_wire(code), text); }

  /// What the request carries. On the client, for writing, until the call starts.
  const metadata& request_metadata() const noexcept;
  /// The same for writing; copied first where a sub call shares it.
  metadata& mutable_request_metadata();
  /// The bytes that follow the request, for writing.
  buffer& request_attachment() { return mutable_request_metadata().attachment; }
  /// The bytes that follow the request.
  const buffer& request_attachment() const noexcept { return request_metadata().attachment; }

  /// What the response carries. On the server for writing.
  const metadata& response_metadata() const noexcept;
  /// The same for writing.
  metadata& mutable_response_metadata();
  /// The bytes that follow the response, for writing.
  buffer& response_attachment() { return mutable_response_metadata().attachment; }
  /// The bytes that follow the response.
  const buffer& response_attachment() const noexcept { return response_metadata().attachment; }

 protected:
  controller_base() = default;
  ~controller_base() override = default;

  /// Makes it as new.
  void clear();

  /// See error().
  error_code error_;
  /// See ErrorText(); empty: the code's own message.
  std::string text_;
  std::shared_ptr<metadata> request_metadata_;   ///< Shared with sub calls, copied before it is changed.
  std::shared_ptr<metadata> response_metadata_;  ///< Null: nothing was written.
};

/// The client's controller of one call.
///
/// What it does: carries a call's own settings and gets its result. It may be used for one call at a time,
/// and for another after Reset().
///
/// A sub call's carries timeout, metadata and result, that of interceptors metadata and result. Such a call
/// is cancelled with the one above it: call_id() and StartCancel() have no effect there, nor have
/// set_detached(), set_parent() and set_request_outlives_call().
///
/// Object lifetimes: must live until the call has completed. Sub controllers belong to it.
///
/// Thread safety: none while the caller writes it; during the call it belongs to the call. call_id() may be
/// used to cancel from any thread.
class controller final : public controller_base {
 public:
  /// A controller without settings of its own.
  controller();
  ~controller() override;
  controller(const controller&) = delete;
  controller& operator=(const controller&) = delete;

  // Settings.

  /// How long the call may take, all told; negative: no limit. Unset: the channel's timeout.
  void set_timeout(std::chrono::nanoseconds timeout) noexcept { timeout_ = timeout; }
  /// What set_timeout() was given, if it was.
  std::optional<std::chrono::nanoseconds> timeout() const noexcept { return timeout_; }

  /// In a handler: whether the call ends with the server call that it is part of, by its deadline and its
  /// cancellation. Default: it does.
  void set_detached(bool detached) noexcept { detached_ = detached; }
  /// What set_detached() was given.
  bool detached() const noexcept { return detached_; }

  /// Makes the call one of `parent`, a server call: it ends no later than that one's deadline, and when that
  /// one is cancelled. For code that runs on behalf of a handler but outside of it, as the callbacks that a
  /// handler leaves behind do; handlers themselves need it for nothing. `parent` must not be over, and may be
  /// once this has returned. set_detached() goes before it.
  void set_parent(call_parent& parent) { parent_ = parent.scope(); }

  /// Promises that the request outlives the call, so that no parallel channel copies it. Default: it may go
  /// once the call has been started asynchronously. What may go on when the call has ended has a copy all the
  /// same: a combo_channel of the program's own, interceptors, a sub channel of another runtime, a
  /// synchronous call whose thread does not wait longer than the deadline.
  void set_request_outlives_call(bool outlives) noexcept { request_outlives_call_ = outlives; }
  /// What set_request_outlives_call() was given.
  bool request_outlives_call() const noexcept { return request_outlives_call_; }

  /// A weak name of the call, through which any thread may cancel it, before, during and after it. May be
  /// called from any thread. When a call has ended, it is still that call's until Reset() or the start of
  /// another.
  braid::call_id call_id();

  // Results.

  /// How it ended, with the origin of the error and the cause of a cancellation.
  const outcome& result() const noexcept { return result_; }
  /// Whether it succeeded although some sub call did not contribute.
  bool partial() const noexcept { return result_.partial; }
  /// The server that was asked last; a default endpoint when none was.
  const endpoint& remote_side() const noexcept { return remote_side_; }
  /// From the start to the end of the call.
  std::chrono::nanoseconds latency() const noexcept { return latency_; }
  /// How many attempts were made below this call, retries, backup requests and refused connects included; the
  /// largest path of a combo.
  int attempts() const noexcept { return attempts_; }
  /// Sub calls of a combo: the number of its channels, and the controller of the index-th or null (skipped,
  /// not reached, no combo). One that was prepared, or cancelled before it was sent, has its controller.
  /// Valid until this controller is reused or destroyed.
  std::size_t sub_count() const noexcept;
  /// The index-th of them; see sub_count().
  const controller* sub(std::size_t index) const noexcept;

  // google::protobuf::RpcController

  /// Makes the controller as new.
  void Reset() override;
  /// Cancels the call, from any thread; what call_id() names.
  void StartCancel() override;
  /// Whether the call has ended by a cancellation or its deadline, which result() tells apart.
  bool IsCanceled() const override;
  /// For servers; the client's side never runs `callback`.
  void NotifyOnCancel(google::protobuf::Closure* callback) override;

 private:
  friend class client::call;
  friend class client::root_call;
  friend class client::async_root_call;
  friend class client::leavable_call;
  friend class client::sub_calls;
  friend struct client::call_origin;
  friend class channel_base;

  void clear_results() noexcept;
  void fail_without_call(const outcome& why, std::string_view text) noexcept;
  /// The same for a call that is refused before there is any of it: it has been one, and its name ends.
  void refuse_call(const outcome& why, std::string_view text) noexcept;

  // For a call whose caller may leave before its loop has ended it: the loop uses a controller of its own.
  void lend_to(controller& used);
  void take_results(controller& used) noexcept;
  void leave_call(cancel_cause why, std::chrono::nanoseconds after);

  std::optional<std::chrono::nanoseconds> timeout_;
  bool detached_ = false;
  bool request_outlives_call_ = false;
  std::shared_ptr<core::call_scope> parent_;
  outcome result_;
  endpoint remote_side_;
  std::chrono::nanoseconds latency_{0};
  int attempts_ = 0;
  bool anything_sent_ = false;  // a byte of the request was handed to a transport
  detail::call_name name_;
  std::unique_ptr<client::sub_calls> subs_;
};

}  // namespace braid
