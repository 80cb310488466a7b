#include "server/baidu_std_session.hpp"

#include "core/runtime_core.hpp"
#include "server/connection.hpp"
#include "server/loop_part.hpp"
#include "server/running_call.hpp"
#include "wire/payload.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <new>
#include <string>
#include <utility>

namespace braid::server_side {
namespace {

constexpr std::size_t longest_text = 4096;

bool has_meta(wire::frame_reader::status status) noexcept {
  return status == wire::frame_reader::status::frame || status == wire::frame_reader::status::oversized;
}

/// Null: the frame carries none.
std::shared_ptr<metadata> metadata_of(const wire::inbound_frame& frame) {
  const wire::request_meta& request = frame.meta.request;
  const payload_format format = wire::format_of(frame.meta);
  const bool any = !frame.meta.user_fields.empty() || !frame.attachment.empty() || request.log_id ||
                   request.trace_id || request.span_id || request.parent_span_id || request.request_id ||
                   !format.is_plain();
  if (!any) return nullptr;
  auto into = std::make_shared<metadata>();
  for (const auto& field : frame.meta.user_fields) into->user_fields.emplace_back(field.key, field.value);
  into->log_id = request.log_id;
  into->trace_id = request.trace_id;
  into->span_id = request.span_id;
  into->parent_span_id = request.parent_span_id;
  into->request_id = request.request_id.value_or(std::string_view());
  if (!frame.attachment.empty()) into->attachment = frame.take_attachment();
  into->format = format;
  return into;
}

core::time_point deadline_of(const wire::rpc_meta& meta, core::time_point arrived,
                             const server_options& options) {
  if (meta.request.timeout_ms) return arrived + std::chrono::milliseconds(*meta.request.timeout_ms);
  return options.default_timeout.count() > 0 ? core::saturating_add(arrived, options.default_timeout)
                                             : core::time_point::max();
}

}  // namespace

baidu_std_session::baidu_std_session(connection& owner, net::outbound_queue& out)
    : owner_(owner),
      out_(out),
      reader_(owner.part().options().max_body_size),
      frame_(owner.part().scratch().inbound),
      meta_(owner.part().scratch().outbound),
      admission_(owner.part().options().auth ? admission::undecided : admission::open) {}

bool baidu_std_session::take_requests(core::time_point arrived) {
  while (owner_.takes_requests()) {
    const auto status = reader_.next(frame_);
    if (!client_.heard() && has_meta(status)) hear_first(frame_.meta);
    if (owner_.closed()) return true;
    if (admission_ != admission::open && has_meta(status) && !may_pass(status, arrived)) continue;
    switch (status) {
      case wire::frame_reader::status::need_more:
        if (!drop_what_finds_no_room()) return true;
        break;
      case wire::frame_reader::status::frame:
      case wire::frame_reader::status::oversized:
        take(frame_, status, arrived);
        break;
      case wire::frame_reader::status::broken:
        return false;
    }
  }
  return true;
}

// A large request that would be refused in the end is not stored either.
bool baidu_std_session::drop_what_finds_no_room() {
  constexpr std::size_t worth_a_look = std::size_t{128} * 1024;  // more than any meta
  const std::size_t size = reader_.frame_size();
  if (size < worth_a_look) return false;
  why_dropped_ = owner_.load().room_for(size);
  if (why_dropped_ == crowded::no) return false;
  reader_.drop_frame();
  return true;
}

void baidu_std_session::take(const wire::inbound_frame& frame, wire::frame_reader::status status,
                             core::time_point arrived) {
  ++frames_taken_;
  if (status != wire::frame_reader::status::frame) return too_large(frame);
  try {
    request(frame, arrived);
  } catch (const std::bad_alloc&) {  // before the call has begun: a large request must not end the server
    owner_.answer_error(frame.meta.correlation_id.value_or(0), {ENOMEM, boost::system::system_category()},
                        "no memory for the request");
  }
}

/// While the client has not been let in: whether what it sent is taken all the same. Its first request is
/// held back until its credential was checked.
bool baidu_std_session::may_pass(wire::frame_reader::status status, core::time_point arrived) {
  if (!frame_.meta.has_request || owner_.part().stopping()) return true;
  if (admission_ == admission::refused) {
    refuse_client(frame_, "the connection's credential was refused");
    return false;
  }
  if (!frame_.meta.authentication_data) {
    owner_.part().log_refused(owner_.remote(), "the first request has none");
    refuse_client(frame_, "the connection's first request has no credential");
    return false;
  }
  admission_ = admission::checking;
  held_ = std::make_unique<held_request>(held_request{.status = status, .since = arrived});
  std::swap(held_->frame, frame_);
  owner_.check_credential(*held_->frame.meta.authentication_data);
  return false;
}

void baidu_std_session::admit(std::shared_ptr<const auth_context> who) {
  if (admission_ != admission::checking) return;
  admission_ = admission::open;
  who_ = std::move(who);
  const auto held = std::move(held_);
  take(held->frame, held->status, held->since);
}

void baidu_std_session::refuse_client(const wire::inbound_frame& request, std::string_view text) {
  admission_ = admission::refused;
  owner_.answer_error(request.meta.correlation_id.value_or(0), errc::auth_failed, text);
}

void baidu_std_session::refuse_client(std::string_view text) {
  if (admission_ != admission::checking) return;
  const auto held = std::move(held_);
  refuse_client(held->frame, text);
}

void baidu_std_session::give_up(const error_code& code, std::string_view text) {
  if (admission_ != admission::checking) return;
  admission_ = admission::refused;
  const auto held = std::move(held_);
  owner_.answer_error(held->frame.meta.correlation_id.value_or(0), code, text);
}

void baidu_std_session::request(const wire::inbound_frame& frame, core::time_point arrived) {
  const wire::rpc_meta& meta = frame.meta;
  if (!meta.has_request) return control(meta);
  const std::int64_t id = meta.correlation_id.value_or(0);
  loop_part& part = owner_.part();
  if (part.stopping()) return owner_.answer_error(id, errc::logoff, "the server is stopping");

  error_code ec;
  const method_entry* const method =
      part.methods().find(meta.request.service_name, meta.request.method_name, ec);
  if (!method) {
    return owner_.answer_error(id, ec,
                               fmt::format("no {} {}.{}", ec == errc::no_service ? "service" : "method",
                                           meta.request.service_name, meta.request.method_name));
  }
  if (meta.request.timeout_ms.value_or(1) <= 0)
    return owner_.answer_error(id, errc::timed_out, "the deadline had passed before the request arrived");
  const core::time_point deadline = deadline_of(meta, arrived, part.options());
  if (owner_.holds_back() && deadline <= part.home().now())
    return owner_.answer_error(id, errc::timed_out, "the deadline passed while the request was held back");
  call_place place;
  if (const crowded full = place.take(part.concurrency(), method->limit.get(), owner_.load(),
                                      wire::header_size + frame.header.body_size);
      full != crowded::no) {
    return refuse(id, full, method);
  }

  message_pair messages = part.take_messages(*method);
  const wire::decoded read = wire::decode_payload(frame, part.home().owner().compressors(),
                                                  part.options().max_body_size, "request", *messages.request);
  if (!read.wrong.empty()) {
    owner_.answer_error(id, errc::bad_request, read.wrong);
    part.recycle(*method, std::move(messages), std::max(place.size(), read.size));
    return;
  }
  if (const crowded full = place.grow(place.size() - frame.payload.size() + read.size); full != crowded::no)
    return refuse(id, full, method);
  auto incoming = metadata_of(frame);
  auto* const call = new running_call(part, owner_, *method, id, std::move(messages), deadline);
  call->occupy(std::move(place));
  if (who_) call->set_auth(who_);
  call->incoming() = std::move(incoming);
  call->start();
}

// A client that announces features waits for ours before it cancels anything.
void baidu_std_session::hear_first(const wire::rpc_meta& meta) {
  client_.hear(meta);
  if (!client_.announced()) return;
  out_.append(wire::control_frame::announcement().bytes());
  announced_ = out_.bytes_appended_total();
  owner_.wrote();
}

std::size_t baidu_std_session::answers_waiting() const noexcept {
  const std::uint64_t sent = out_.bytes_consumed_total();
  const std::size_t announcement = sent < announced_ ? static_cast<std::size_t>(announced_ - sent) : 0;
  return out_.size() - std::min(announcement, out_.size());
}

// An answer, or an announcement by itself, means nothing to a server.
void baidu_std_session::control(const wire::rpc_meta& meta) noexcept {
  if (client_.announced() && wire::is_cancel(meta))
    owner_.cancel_calls(*meta.correlation_id, wire::cause_from_wire(*meta.cancel_cause));
}

// Also what was dropped although its size is allowed.
void baidu_std_session::too_large(const wire::inbound_frame& frame) {
  if (!frame.meta.has_request) return;
  const std::int64_t id = frame.meta.correlation_id.value_or(0);
  const std::size_t limit = owner_.part().options().max_body_size;
  if (frame.header.body_size <= limit) return refuse(id, why_dropped_, nullptr);
  owner_.answer_error(
      id, errc::bad_request,
      fmt::format("the request of {} bytes is over max_body_size {}", frame.header.body_size, limit));
}

void baidu_std_session::refuse(std::int64_t id, crowded full, const method_entry* method) {
  const server_options& options = owner_.part().options();
  const auto over = [&](std::string_view what, std::string_view option, std::size_t limit) {
    owner_.answer_error(id, errc::limit, fmt::format("{}: {} is {}", what, option, limit));
  };
  constexpr std::string_view calls = "too many calls run";
  constexpr std::string_view bytes = "too many bytes are in flight";
  switch (full) {
    case crowded::server_calls:
      return over(calls, "max_concurrency", options.max_concurrency);
    case crowded::method_calls:
      return over(calls, "the limit of " + method->descriptor->full_name(), method->limit->most());
    case crowded::connection_calls:
      return over(calls, "max_concurrency_per_connection", options.max_concurrency_per_connection);
    case crowded::connection_bytes:
      return over(bytes, "max_bytes_in_flight_per_connection", options.max_bytes_in_flight_per_connection);
    case crowded::server_bytes:
    case crowded::no:
      return over(bytes, "max_bytes_in_flight", options.max_bytes_in_flight);
  }
}

// A client that does not read may get as much again as it has not read, unless all that do not read take too
// much, and is told of the rest. Why there is no room for an answer; empty: there is.
std::string baidu_std_session::no_room_for(std::size_t size) const {
  const std::size_t waiting = answers_waiting();
  if (waiting == 0) return {};
  const server_options& options = owner_.part().options();
  const std::size_t limit = options.max_unsent_bytes;
  const std::size_t held = waiting / 2 + size / 2;  // of twice the limit, without overflow
  if (limit != 0 && held > limit) return fmt::format("max_unsent_bytes is {}", limit);
  if (owner_.load().server_is_full(size))
    return fmt::format("max_bytes_in_flight is {}", options.max_bytes_in_flight);
  return {};
}

void baidu_std_session::write_answer(running_call& finished) {
  if (finished.error()) return write_failure(finished);
  const google::protobuf::Message& message = finished.response();
  const metadata& carried = finished.response_metadata();
  const core::compressor_set& added = owner_.part().home().owner().compressors();
  // A small plain message goes straight into the queue; all others are made apart, what may fail at once.
  const bool plain = carried.format.is_plain();
  wire::payload made;
  if (std::string why; !plain && !wire::encode_payload(message, carried.format, added, "response", made, why))
    return write_error(finished.id(), errc::bad_response, why);
  begin_answer(finished.id(), 0, carried.user_fields);
  wire::crc32c_bytes sum;
  if (!plain) wire::note_format(carried.format, made, carried.attachment, meta_, sum);
  if (!carried.attachment.empty())
    meta_.attachment_size = static_cast<std::int32_t>(carried.attachment.size());

  const std::size_t payload_size = plain ? message.ByteSizeLong() : made.bytes.size();
  const std::size_t meta_size = wire::meta_size(meta_);
  const std::size_t body_size = meta_size + payload_size + carried.attachment.size();
  if (!may_answer(finished.id(), meta_size, body_size)) return;
  const bool apart = !plain || payload_size > wire::inline_payload_size;
  if (plain && apart) made.bytes = wire::serialise(message, payload_size);
  const std::size_t head = wire::header_size + meta_size + (apart ? 0 : payload_size);
  char* const at = wire::encode_head(meta_, meta_size, body_size, out_.reserve(head));
  if (!apart) message.SerializeWithCachedSizesToArray(reinterpret_cast<std::uint8_t*>(at));
  out_.commit(head);
  if (apart) out_.append(made.bytes);
  if (!carried.attachment.empty()) out_.append(carried.attachment);
}

/// Whether an answer of that size can be sent; what is in its way is written instead.
bool baidu_std_session::may_answer(std::int64_t id, std::size_t meta_size, std::size_t body_size) {
  if (meta_size > wire::default_max_meta_size) {
    write_error(id, errc::bad_response,
                fmt::format("the response's metadata of {} bytes is over the protocol's limit of {}",
                            meta_size, wire::default_max_meta_size));
  } else if (body_size > wire::largest_body_size) {
    write_error(id, errc::bad_response,
                fmt::format("the response of {} bytes is over the protocol's limit of 2 GiB", body_size));
  } else if (const std::string limit = no_room_for(wire::header_size + body_size); !limit.empty()) {
    write_error(id, errc::overcrowded,
                fmt::format("the response of {} bytes finds no room beside {} unsent ones: {}", body_size,
                            answers_waiting(), limit));
  } else {
    return true;
  }
  return false;
}

// The fields that the handler set go along, unless there is no room for them.
void baidu_std_session::write_failure(running_call& finished) {
  begin_answer(finished.id(), to_wire(finished.error()), finished.response_metadata().user_fields);
  const std::string text = finished.ErrorText();
  meta_.response.error_text = std::string_view(text).substr(0, longest_text);
  if (wire::meta_size(meta_) > wire::default_max_meta_size) meta_.user_fields.clear();
  write_meta();
}

void baidu_std_session::write_error(std::int64_t id, const error_code& code, std::string_view text) {
  begin_answer(id, to_wire(code), {});
  meta_.response.error_text = text.substr(0, longest_text);
  write_meta();
}

void baidu_std_session::begin_answer(std::int64_t id, std::int32_t code, const metadata::fields& fields) {
  meta_.clear();
  meta_.has_response = true;
  meta_.response.error_code = code;
  meta_.correlation_id = id;
  for (const auto& [key, value] : fields) meta_.user_fields.push_back({key, value});
}

/// A frame of nothing but a meta.
void baidu_std_session::write_meta() {
  const std::size_t size = wire::meta_size(meta_);
  wire::encode_head(meta_, size, size, out_.reserve(wire::header_size + size));
  out_.commit(wire::header_size + size);
}

}  // namespace braid::server_side
