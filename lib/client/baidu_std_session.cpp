#include "client/baidu_std_session.hpp"

#include "client/answer_sink.hpp"
#include "client/connection_table.hpp"
#include "core/runtime_core.hpp"
#include "wire/meta.hpp"
#include "wire/payload.hpp"

#include <boost/asio/error.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <new>

namespace braid::client {
namespace {

std::int32_t remaining_ms(core::time_point now, core::time_point deadline) {
  const auto rest = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - now).count();
  return static_cast<std::int32_t>(
      std::clamp<std::int64_t>(rest, 1, std::numeric_limits<std::int32_t>::max()));
}

bool has_meta(wire::frame_reader::status status) noexcept {
  return status == wire::frame_reader::status::frame || status == wire::frame_reader::status::oversized;
}

void fill_request(wire::rpc_meta& meta, const call& of, core::time_point now) {
  meta.clear();
  meta.has_request = true;
  meta.request.service_name = of.method().service()->full_name();
  meta.request.method_name = of.method().name();
  if (of.deadline() != core::time_point::max()) meta.request.timeout_ms = remaining_ms(now, of.deadline());
  const metadata& carried = of.request_metadata();
  meta.request.log_id = carried.log_id;
  meta.request.trace_id = carried.trace_id;
  meta.request.span_id = carried.span_id;
  meta.request.parent_span_id = carried.parent_span_id;
  if (!carried.request_id.empty()) meta.request.request_id = carried.request_id;
  for (const auto& [key, value] : carried.user_fields) meta.user_fields.push_back({key, value});
  if (!carried.attachment.empty())
    meta.attachment_size = static_cast<std::int32_t>(carried.attachment.size());
}

void take_metadata(controller& control, const wire::inbound_frame& frame) {
  if (!frame.meta.user_fields.empty()) {
    for (const auto& field : frame.meta.user_fields)
      control.mutable_response_metadata().user_fields.emplace_back(field.key, field.value);
  }
  if (!frame.attachment.empty()) control.response_attachment() = frame.take_attachment();
  if (const payload_format format = wire::format_of(frame.meta); !format.is_plain())
    control.mutable_response_metadata().format = format;
}

}  // namespace

baidu_std_session::baidu_std_session(core::loop& home, net::outbound_queue& out, std::size_t max_body_size,
                                     connection_table& table)
    : home_(home),
      out_(out),
      max_body_size_(max_body_size),
      table_(table),
      reader_(max_body_size),
      frame_(table.scratch().inbound),
      meta_(table.scratch().outbound) {}

void baidu_std_session::start(attempt& started) {
  call& of = started.owner();
  const metadata& carried = of.request_metadata();
  // A small plain message of one call goes straight into the queue; all others are made once, apart.
  std::string why;
  const bool apart = of.has_payload() || of.shares_payload() || !carried.format.is_plain() ||
                     !of.request().IsInitialized() || of.request().ByteSizeLong() > wire::inline_payload_size;
  if (apart && !of.serialise(why)) {
    started.finish(outcome::local_failure(errc::bad_request), why);
    return;
  }
  const buffer& attachment = carried.attachment;
  const std::size_t payload_size =
      apart ? of.payload().bytes.size() : static_cast<std::size_t>(of.request().GetCachedSize());
  fill_request(meta_, of, of.has_payload() ? home_.now() : of.begun());
  wire::crc32c_bytes sum;
  if (!carried.format.is_plain()) wire::note_format(carried.format, of.payload(), attachment, meta_, sum);
  const std::uint64_t id = pending_.insert(started);
  meta_.correlation_id = static_cast<std::int64_t>(id);
  if (!announced_) introduce();
  const std::size_t meta_size = wire::meta_size(meta_);
  const std::size_t body_size = meta_size + payload_size + attachment.size();
  if (body_size > max_body_size_ || meta_size > wire::default_max_meta_size ||
      out_.would_exceed(body_size + wire::header_size)) {
    pending_.remove(id);
    refuse(started, body_size, meta_size);
    return;
  }
  const std::size_t head = wire::header_size + meta_size + (apart ? 0 : payload_size);
  char* at = out_.reserve(head);
  at = wire::encode_head(meta_, meta_size, body_size, at);
  if (!apart) of.request().SerializeWithCachedSizesToArray(reinterpret_cast<std::uint8_t*>(at));
  out_.commit(head);
  if (apart) out_.append(of.payload().bytes);
  if (!attachment.empty()) out_.append(attachment);
  if (!announced_) introduced(id);
  started.mark_sent(id);
}

// What the first request of a connection carries beside its own.
void baidu_std_session::introduce() noexcept {
  meta_.features = wire::own_features;
  if (credential_) meta_.authentication_data = *credential_;
}

void baidu_std_session::introduced(std::uint64_t id) noexcept {
  announced_ = true;
  if (!credential_) return;
  credential_.reset();
  credential_id_ = id;
}

void baidu_std_session::forget(attempt& cancelled, cancel_cause cause) noexcept {
  if (!pending_.remove(cancelled.session_id())) return;  // its answer has come
  const auto id = static_cast<std::int64_t>(cancelled.session_id());
  if (!server_.heard()) {
    kept_.add(id, cause);
  } else if (server_.takes_cancels()) {
    out_.append(wire::control_frame::cancel(id, cause).bytes());
  }
}

// The server's first frame tells whether it takes cancels: now those that were kept are sent, or never.
void baidu_std_session::hear_first(const wire::rpc_meta& meta) {
  server_.hear(meta);
  if (meta.correlation_id) kept_.drop(*meta.correlation_id);
  for (const auto& each : kept_.take())
    if (server_.takes_cancels()) out_.append(wire::control_frame::cancel(each.id, each.cause).bytes());
}

// What the server would close the connection for, or what nobody takes away, fails here and alone.
void baidu_std_session::refuse(attempt& started, std::size_t body_size, std::size_t meta_size) noexcept {
  if (body_size > max_body_size_) {
    started.finish(
        outcome::local_failure(errc::bad_request),
        fmt::format("the request of {} bytes is over max_body_size {}", body_size, max_body_size_));
  } else if (meta_size > wire::default_max_meta_size) {
    started.finish(outcome::local_failure(errc::bad_request),
                   fmt::format("the request's metadata of {} bytes is over the protocol's limit of {}",
                               meta_size, wire::default_max_meta_size));
  } else {
    started.finish(
        outcome::local_failure(errc::overcrowded),
        fmt::format("{} bytes wait to be sent, max_unsent_bytes is {}", out_.size(), out_.limit()));
  }
}

void baidu_std_session::fail(const error_code& why, std::string_view text) noexcept {
  // A server that refuses the credential closes the connection: the other calls end for the same reason.
  const error_code code = refused_ ? error_code(errc::auth_failed) : why;
  const std::string_view said = refused_ ? "the server refused the connection's credential" : text;
  while (attempt* waiting = pending_.remove_any()) waiting->finish(outcome::local_failure(code), said);
}

session_failure baidu_std_session::on_read(std::size_t size) {
  reader_.commit(size);
  try {
    return take_answers();
  } catch (const std::bad_alloc&) {
    return {boost::asio::error::no_memory, "there is no memory for the metadata that the server sent"};
  }
}

session_failure baidu_std_session::take_answers() {
  const core::time_point now = home_.now();
  for (;;) {
    const auto status = reader_.next(frame_);
    if (!server_.heard() && has_meta(status)) hear_first(frame_.meta);
    switch (status) {
      case wire::frame_reader::status::need_more:
        return {};
      case wire::frame_reader::status::frame:
        ++answers_read_;
        answered(frame_, now);
        break;
      case wire::frame_reader::status::oversized:
        ++answers_read_;
        too_large(frame_);
        break;
      case wire::frame_reader::status::broken:
        return {errc::bad_response,
                fmt::format("the server sent a broken frame: {}", wire::to_string(reader_.error()))};
    }
  }
}

void baidu_std_session::answered(const wire::inbound_frame& frame, core::time_point now) {
  if (!frame.meta.correlation_id || wire::is_control(frame.meta)) return;
  attempt* const waiting = pending_.remove(static_cast<std::uint64_t>(*frame.meta.correlation_id));
  if (!waiting) {  // late: its call has ended
    table_.count_late_answer();
    return;
  }
  if (now >= waiting->owner().deadline()) {
    table_.count_late_answer();
    waiting->owner().cancel(cancel_cause::deadline);
    return;
  }
  refused_ = frame.meta.response.error_code == static_cast<int>(errc::auth_failed) &&
             (refused_ || waiting->session_id() == credential_id_);
  deliver(*waiting, frame, max_body_size_);
}

void baidu_std_session::deliver(attempt& waiting, const wire::inbound_frame& frame,
                                std::size_t max_body_size) {
  try {
    if (answer_sink* const unread = waiting.owner().sink()) {
      unread->take_answer(frame);
      waiting.finish(outcome::success());
    } else {
      read_answer(waiting, frame, max_body_size);
    }
  } catch (const std::bad_alloc&) {  // before it has finished: a large answer must not end more than its call
    if (!waiting.owner().sink()) waiting.owner().drop_answer();
    waiting.finish(outcome::local_failure(boost::asio::error::no_memory), "no memory for the response");
  }
}

void baidu_std_session::read_answer(attempt& waiting, const wire::inbound_frame& frame,
                                    std::size_t max_body_size) {
  call& of = waiting.owner();
  const wire::rpc_meta& meta = frame.meta;
  if (const std::int32_t code = meta.response.error_code.value_or(0); code != 0) {
    take_metadata(of.control(), frame);
    waiting.finish(outcome::peer_failure(from_wire(code)),
                   meta.response.error_text.value_or(std::string_view()));
    return;
  }
  const std::string wrong =
      wire::decode_payload(frame, of.home().owner().compressors(), max_body_size, "response", of.response())
          .wrong;
  if (!wrong.empty()) {
    of.response().Clear();  // of what could be read; it may lie inside the response of a combo that succeeds
    waiting.finish(outcome::local_failure(errc::bad_response), wrong);
    return;
  }
  take_metadata(of.control(), frame);
  waiting.finish(outcome::success());
}

void baidu_std_session::too_large(const wire::inbound_frame& frame) {
  if (!frame.meta.correlation_id || wire::is_control(frame.meta)) return;
  const std::string text = fmt::format("the response of {} bytes is over max_body_size {}",
                                       frame.header.body_size, max_body_size_);
  if (attempt* const waiting = pending_.remove(static_cast<std::uint64_t>(*frame.meta.correlation_id))) {
    waiting->finish(outcome::local_failure(errc::bad_response), text);
  } else {  // late: its call has ended
    table_.count_late_answer();
  }
}

}  // namespace braid::client
