#include "server/baidu_std_session.hpp"

#include "server/connection.hpp"
#include "server/loop_part.hpp"
#include "server/running_call.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <string>

namespace braid::server_side {
namespace {

constexpr std::size_t largest_body = 0x7fffffff;
constexpr std::size_t inline_payload =
    16 * 1024;  // larger messages are serialised apart and sent by reference

bool has_meta(wire::frame_reader::status status) noexcept {
  return status == wire::frame_reader::status::frame || status == wire::frame_reader::status::oversized;
}

void take_metadata(std::shared_ptr<metadata>& into, const wire::inbound_frame& frame) {
  const wire::request_meta& request = frame.meta.request;
  const bool any = !frame.meta.user_fields.empty() || !frame.attachment.empty() || request.log_id ||
                   request.trace_id || request.span_id || request.parent_span_id || request.request_id;
  if (!any) return;
  into = std::make_shared<metadata>();
  for (const auto& field : frame.meta.user_fields) into->user_fields.emplace_back(field.key, field.value);
  into->log_id = request.log_id;
  into->trace_id = request.trace_id;
  into->span_id = request.span_id;
  into->parent_span_id = request.parent_span_id;
  into->request_id = request.request_id.value_or(std::string_view());
  if (!frame.attachment.empty()) into->attachment = frame.take_attachment();
}

/// What makes a payload unreadable here, or nothing.
std::string unreadable(const wire::inbound_frame& frame) {
  if (frame.bad_attachment_size) return "the request's attachment_size does not fit its body";
  if (frame.meta.compress_type.value_or(0) != 0)
    return fmt::format("compress_type {} is not supported", *frame.meta.compress_type);
  if (frame.meta.content_type.value_or(0) != 0)
    return fmt::format("content_type {} is not supported", *frame.meta.content_type);
  return {};
}

/// Reads the payload; what is wrong with it, or nothing. Protobuf's own check would print what it finds.
std::string parse(std::string_view payload, google::protobuf::Message& into) {
  if (!into.ParsePartialFromArray(payload.data(), static_cast<int>(payload.size())))
    return fmt::format("the request is no valid {}", into.GetTypeName());
  if (!into.IsInitialized())
    return fmt::format("the request lacks required fields: {}", into.InitializationErrorString());
  return {};
}

core::time_point deadline_of(const wire::rpc_meta& meta, core::time_point now,
                             const server_options& options) {
  if (meta.request.timeout_ms) return now + std::chrono::milliseconds(*meta.request.timeout_ms);
  return options.default_timeout.count() > 0 ? core::saturating_add(now, options.default_timeout)
                                             : core::time_point::max();
}

}  // namespace

baidu_std_session::baidu_std_session(connection& owner, net::outbound_queue& out)
    : owner_(owner),
      out_(out),
      reader_(std::min(owner.part().options().max_body_size, largest_body)),
      frame_(owner.part().scratch().inbound),
      meta_(owner.part().scratch().outbound),
      admission_(owner.part().options().auth ? admission::undecided : admission::open) {}

bool baidu_std_session::take_requests(core::time_point now) {
  while (owner_.takes_requests()) {
    const auto status = reader_.next(frame_);
    if (!client_.heard() && has_meta(status)) hear_first(frame_.meta);
    if (admission_ != admission::open && has_meta(status) && !may_pass(status, now)) continue;
    switch (status) {
      case wire::frame_reader::status::need_more:
        if (!drop_what_finds_no_room()) return true;
        break;
      case wire::frame_reader::status::frame:
      case wire::frame_reader::status::oversized:
        take(status, now);
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

void baidu_std_session::take(wire::frame_reader::status status, core::time_point now) {
  ++frames_taken_;
  if (status == wire::frame_reader::status::frame) {
    request(frame_, now);
  } else {
    too_large(frame_);
  }
}

/// While the client has not been let in: whether what it sent is taken all the same. Its first request is
/// held back until its credential was checked.
bool baidu_std_session::may_pass(wire::frame_reader::status status, core::time_point now) {
  if (!frame_.meta.has_request || owner_.part().stopping()) return true;
  if (admission_ == admission::refused || !frame_.meta.authentication_data) {
    refuse_client(admission_ == admission::refused ? "the connection's credential was refused"
                                                   : "the connection's first request has no credential");
    return false;
  }
  admission_ = admission::checking;
  held_ = std::make_unique<wire::inbound_frame>(frame_);
  held_status_ = status;
  held_since_ = now;
  held_size_ = frame_.header.body_size;
  owner_.check_credential(*held_->meta.authentication_data);
  return false;
}

void baidu_std_session::take_back_held() noexcept {
  if (const auto held = std::move(held_)) frame_ = std::move(*held);
}

void baidu_std_session::admit(std::shared_ptr<const auth_context> who) {
  admission_ = admission::open;
  who_ = std::move(who);
  held_size_ = 0;
  take_back_held();
  const core::time_point deadline = deadline_of(frame_.meta, held_since_, owner_.part().options());
  if (deadline <= owner_.part().home().now() && deadline > held_since_) {
    owner_.answer_error(frame_.meta.correlation_id.value_or(0), errc::timed_out,
                        "the deadline passed while the credential was checked");
  } else {
    take(held_status_, held_since_);
  }
}

void baidu_std_session::refuse_client(std::string_view text) {
  admission_ = admission::refused;
  held_size_ = 0;
  take_back_held();
  owner_.answer_error(frame_.meta.correlation_id.value_or(0), errc::auth_failed, text);
}

void baidu_std_session::give_up(const error_code& code, std::string_view text) {
  if (admission_ != admission::checking) return;
  admission_ = admission::refused;
  take_back_held();
  owner_.answer_error(frame_.meta.correlation_id.value_or(0), code, text);
}

void baidu_std_session::request(const wire::inbound_frame& frame, core::time_point now) {
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
  call_place place;
  if (const crowded full = place.take(part.concurrency(), method->limit.get(), owner_.load(),
                                      wire::header_size + frame.header.body_size);
      full != crowded::no) {
    return refuse(id, full, method);
  }
  if (const std::string why = unreadable(frame); !why.empty())
    return owner_.answer_error(id, errc::bad_request, why);

  message_pair messages = part.take_messages(*method);
  if (const std::string why = parse(frame.payload, *messages.request); !why.empty()) {
    owner_.answer_error(id, errc::bad_request, why);
    part.recycle(*method, std::move(messages), place.size());
    return;
  }
  auto* const call = new running_call(part, owner_, *method, id, std::move(messages),
                                      deadline_of(meta, now, part.options()));
  call->occupy(std::move(place));
  if (who_) call->set_auth(who_);
  take_metadata(call->incoming(), frame);
  call->start();
}

// A client that announces features waits for ours before it cancels anything.
void baidu_std_session::hear_first(const wire::rpc_meta& meta) {
  client_.hear(meta);
  if (!client_.announced()) return;
  out_.append(wire::control_frame::announcement().bytes());
  owner_.wrote();
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

// A client that does not read may get as much again as it has not read, and is told of the rest.
bool baidu_std_session::answer_fits(std::size_t size) const noexcept {
  const std::size_t limit = owner_.part().options().max_unsent_bytes;
  if (limit == 0 || out_.empty()) return true;
  const std::size_t held = out_.size() / 2 + size / 2;  // of twice the limit, without overflow
  return held <= limit;
}

void baidu_std_session::write_answer(running_call& finished) {
  if (finished.error()) return write_error(finished.id(), finished.error(), finished.ErrorText());
  const google::protobuf::Message& message = finished.response();
  const metadata& carried = finished.response_metadata();
  meta_.clear();
  meta_.has_response = true;
  meta_.response.error_code = 0;
  meta_.correlation_id = finished.id();
  for (const auto& [key, value] : carried.user_fields) meta_.user_fields.push_back({key, value});
  if (!carried.attachment.empty())
    meta_.attachment_size = static_cast<std::int32_t>(carried.attachment.size());

  const std::size_t payload_size = message.ByteSizeLong();
  const std::size_t meta_size = wire::meta_size(meta_);
  const std::size_t body_size = meta_size + payload_size + carried.attachment.size();
  if (meta_size > wire::default_max_meta_size) {
    return write_error(finished.id(), errc::bad_response,
                       fmt::format("the response's metadata of {} bytes is over the protocol's limit of {}",
                                   meta_size, wire::default_max_meta_size));
  }
  if (body_size > largest_body) {
    return write_error(
        finished.id(), errc::bad_response,
        fmt::format("the response of {} bytes is over the protocol's limit of 2 GiB", body_size));
  }
  if (!answer_fits(wire::header_size + body_size)) {
    return write_error(finished.id(), errc::overcrowded,
                       fmt::format("the response of {} bytes finds no room beside {} unsent ones: "
                                   "max_unsent_bytes is {}",
                                   body_size, out_.size(), owner_.part().options().max_unsent_bytes));
  }
  const bool apart = payload_size > inline_payload;
  const std::size_t head = wire::header_size + meta_size + (apart ? 0 : payload_size);
  char* at = out_.reserve(head);
  at = wire::encode_header({.body_size = static_cast<std::uint32_t>(body_size),
                            .meta_size = static_cast<std::uint32_t>(meta_size)},
                           at);
  at = wire::encode_meta(meta_, at);
  if (!apart) message.SerializeWithCachedSizesToArray(reinterpret_cast<std::uint8_t*>(at));
  out_.commit(head);
  if (apart) {
    detail::block_ref block(payload_size);
    message.SerializeWithCachedSizesToArray(reinterpret_cast<std::uint8_t*>(block.data()));
    const char* data = block.data();
    out_.append(buffer(std::move(block), data, payload_size));
  }
  if (!carried.attachment.empty()) out_.append(carried.attachment);
}

void baidu_std_session::write_error(std::int64_t id, const error_code& code, std::string_view text) {
  meta_.clear();
  meta_.has_response = true;
  meta_.response.error_code = to_wire(code);
  constexpr std::size_t longest_text = 4096;
  meta_.response.error_text = text.substr(0, longest_text);
  meta_.correlation_id = id;
  const std::size_t meta_size = wire::meta_size(meta_);
  char* at = out_.reserve(wire::header_size + meta_size);
  at = wire::encode_header({.body_size = static_cast<std::uint32_t>(meta_size),
                            .meta_size = static_cast<std::uint32_t>(meta_size)},
                           at);
  wire::encode_meta(meta_, at);
  out_.commit(wire::header_size + meta_size);
}

}  // namespace braid::server_side
