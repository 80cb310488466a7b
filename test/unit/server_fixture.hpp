#pragma once

#include <braid/log.hpp>
#include <braid/server.hpp>

#include "golden.pb.h"
#include "wire/frame.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace server_test {

/// A frame of a meta, a payload and an attachment.
inline std::string frame(const braid::wire::rpc_meta& meta, std::string_view payload,
                         std::string_view attachment = {}) {
  const std::size_t meta_size = braid::wire::meta_size(meta);
  std::string bytes(braid::wire::header_size + meta_size, '\0');
  char* at = braid::wire::encode_header(
      {.body_size = static_cast<std::uint32_t>(meta_size + payload.size() + attachment.size()),
       .meta_size = static_cast<std::uint32_t>(meta_size)},
      bytes.data());
  braid::wire::encode_meta(meta, at);
  return bytes.append(payload).append(attachment);
}

inline braid::wire::rpc_meta echo_meta(std::int64_t id) {
  braid::wire::rpc_meta meta;
  meta.has_request = true;
  meta.request.service_name = "golden.EchoService";
  meta.request.method_name = "Echo";
  meta.correlation_id = id;
  return meta;
}

inline std::string payload(std::string_view message, int fail_code = 0) {
  golden::EchoRequest request;
  request.set_message(std::string(message));
  if (fail_code != 0) request.set_fail_code(fail_code);
  return request.SerializeAsString();
}

/// The request Echo(message).
inline std::string echo(std::int64_t id, std::string_view message) {
  return frame(echo_meta(id), payload(message));
}
inline std::string echo_within(std::int64_t id, std::string_view message, std::int32_t timeout_ms) {
  auto meta = echo_meta(id);
  meta.request.timeout_ms = timeout_ms;
  return frame(meta, payload(message));
}

/// One answer of the server.
struct answer {
  std::int64_t id = 0;
  int code = 0;
  std::string text;
  std::string payload;
  std::string attachment;
  std::map<std::string, std::string> fields;
  std::string bytes;  ///< The whole frame.

  std::string message() const {
    golden::EchoResponse response;
    return response.ParsePartialFromString(payload) ? response.message() : "unreadable";
  }
};

/// All answers in a stream.
inline std::vector<answer> answers_in(std::string_view stream) {
  std::vector<answer> all;
  braid::wire::frame_reader reader;
  braid::wire::inbound_frame got;
  const std::string_view whole = stream;
  std::size_t begin = 0;
  for (;;) {
    while (reader.next(got) == braid::wire::frame_reader::status::frame) {
      answer next;
      next.id = got.meta.correlation_id.value_or(0);
      next.code = got.meta.response.error_code.value_or(0);
      next.text = got.meta.response.error_text.value_or("");
      next.payload = got.payload;
      next.attachment = got.attachment;
      for (const auto& field : got.meta.user_fields) next.fields.emplace(field.key, field.value);
      const std::size_t size = braid::wire::header_size + got.header.body_size;
      next.bytes = whole.substr(begin, size);
      begin += size;
      all.push_back(std::move(next));
    }
    if (stream.empty()) return all;
    const auto room = reader.prepare();
    const std::size_t n = std::min(room.size(), stream.size());
    std::memcpy(room.data(), stream.data(), n);
    reader.commit(n);
    stream.remove_prefix(n);
  }
}

/// A generated service whose Echo is a function of the test's; at first it answers at once.
class echo_service : public golden::EchoService {
 public:
  using function = std::function<void(braid::server_call&, const golden::EchoRequest&, golden::EchoResponse&,
                                      google::protobuf::Closure*)>;

  void Echo(google::protobuf::RpcController* control, const golden::EchoRequest* request,
            golden::EchoResponse* response, google::protobuf::Closure* done) override {
    run(static_cast<braid::server_call&>(*control), *request, *response, done);
  }

  /// Sends everything back, and fails where it is told to.
  static void answer_at_once(braid::server_call& call, const golden::EchoRequest& request,
                             golden::EchoResponse& response, google::protobuf::Closure* done) {
    answer(call, request, response);
    done->Run();
  }
  static void answer(braid::server_call& call, const golden::EchoRequest& request,
                     golden::EchoResponse& response) {
    response.set_message(request.message());
    if (call.request_metadata().user_fields.size() + call.request_attachment().size() != 0) {
      call.mutable_response_metadata().user_fields = call.request_metadata().user_fields;
      call.response_attachment() = static_cast<const braid::server_call&>(call).request_attachment();
    }
    if (request.fail_code() != 0) call.set_failed(request.fail_code(), "asked to fail");
  }

  function run = answer_at_once;
};

/// Keeps what is logged.
class log_lines {
 public:
  braid::log_sink sink() {
    return [this](braid::log_level level, std::string_view text, std::span<const braid::log_field>) {
      const std::lock_guard lock(mutex_);
      if (!keep) return;
      lines_.push_back(std::string(to_string(level)) + ": " + std::string(text));
    };
  }
  bool keep = true;  ///< Not to be changed while runtimes log.
  int count(std::string_view part) const {
    const std::lock_guard lock(mutex_);
    return static_cast<int>(std::count_if(lines_.begin(), lines_.end(), [&](const std::string& line) {
      return line.find(part) != std::string::npos;
    }));
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> lines_;
};

}  // namespace server_test
