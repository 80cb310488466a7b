#include <braid/call_completion.hpp>
#include <braid/controller.hpp>

#include "client/sub_calls.hpp"
#include "core/call_scope.hpp"
#include "core/cancel_handle.hpp"

namespace braid {
namespace {

const metadata no_metadata{};

metadata& writable(std::shared_ptr<metadata>& held) {
  if (!held) {
    held = std::make_shared<metadata>();
  } else if (held.use_count() != 1) {
    held = std::make_shared<metadata>(*held);
  }
  return *held;
}

}  // namespace

std::string controller_base::ErrorText() const {
  if (!error_) return {};
  return text_.empty() ? error_.message() : text_;
}

void controller_base::SetFailed(const std::string& reason) { set_failed(errc::internal, reason); }

void controller_base::set_failed(const error_code& code, std::string_view text) {
  error_ = code ? code : make_error_code(errc::internal);
  text_ = text;
}

const metadata& controller_base::request_metadata() const noexcept {
  return request_metadata_ ? *request_metadata_ : no_metadata;
}
metadata& controller_base::mutable_request_metadata() { return writable(request_metadata_); }
const metadata& controller_base::response_metadata() const noexcept {
  return response_metadata_ ? *response_metadata_ : no_metadata;
}
metadata& controller_base::mutable_response_metadata() { return writable(response_metadata_); }

void controller_base::clear() {
  error_ = {};
  text_.clear();
  request_metadata_.reset();
  response_metadata_.reset();
}

controller::controller() = default;
controller::~controller() = default;

call_error detail::describe_failure(const controller& failed) {
  const std::string peer = failed.attempts() != 0 ? failed.remote_side().to_string() : std::string();
  return call_error(failed.error(), failed.ErrorText(), peer, failed.attempts());
}

call_id controller::call_id() { return braid::call_id(name_.handle()); }

std::size_t controller::sub_count() const noexcept { return subs_ ? subs_->size() : 0; }

const controller* controller::sub(std::size_t index) const noexcept {
  if (!subs_ || index >= subs_->size()) return nullptr;
  const auto* entry = subs_->at(index);
  return entry ? &entry->control : nullptr;
}

void controller::Reset() {
  clear();
  timeout_.reset();
  detached_ = false;
  parent_.reset();
  request_outlives_call_ = false;
  clear_results();
  name_.reset();
}

void controller::clear_results() noexcept {
  error_ = {};
  text_.clear();
  response_metadata_.reset();
  result_ = {};
  remote_side_ = {};
  latency_ = {};
  attempts_ = 0;
  anything_sent_ = false;
  subs_.reset();
}

void controller::fail_without_call(const outcome& why, std::string_view text) noexcept {
  clear_results();
  result_ = why;
  error_ = why.code;
  text_ = text;
}

void controller::refuse_call(const outcome& why, std::string_view text) noexcept {
  name_.renew();
  fail_without_call(why, text);
  if (const auto named = name_.end()) named->release();
}

void controller::lend_to(controller& used) {
  used.request_metadata_ = request_metadata_;
  used.timeout_ = timeout_;
  used.detached_ = detached_;
  used.parent_ = parent_;
  name_.renew();
  used.name_.adopt(name_.handle());
}

void controller::take_results(controller& used) noexcept {
  error_ = used.error_;
  text_ = std::move(used.text_);
  response_metadata_ = std::move(used.response_metadata_);
  result_ = used.result_;
  remote_side_ = used.remote_side_;
  latency_ = used.latency_;
  attempts_ = used.attempts_;
  subs_ = std::move(used.subs_);
  name_.end();
}

void controller::leave_call(cancel_cause why, std::chrono::nanoseconds after) {
  fail_without_call(outcome::cancelled(why), why == cancel_cause::deadline
                                                 ? "the deadline passed while the call's loop did not run"
                                                 : "cancelled while the call's loop did not run");
  latency_ = after;
  if (request_metadata_) request_metadata_ = std::make_shared<metadata>(*request_metadata_);
  if (const auto left = name_.leave()) left->request(why);
}

void controller::StartCancel() { call_id().cancel(); }

bool controller::IsCanceled() const { return result_.cause != cancel_cause::none; }

void controller::NotifyOnCancel(google::protobuf::Closure*) {}

}  // namespace braid
