#include <braid/method.hpp>

#include <boost/system/system_error.hpp>
#include <fmt/format.h>
#include <google/protobuf/descriptor.pb.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

namespace braid::detail {
namespace {

namespace pb = google::protobuf;

/// What is asked for.
struct wanted_method {
  std::string service;
  std::string name;
  const pb::Descriptor& request;
  const pb::Descriptor& response;
};

[[noreturn]] void refuse(const wanted_method& wanted, std::string_view why) {
  throw boost::system::system_error({EINVAL, boost::system::system_category()},
                                    fmt::format("method '{}.{}': {}", wanted.service, wanted.name, why));
}

std::string names_of_methods(const pb::ServiceDescriptor& service) {
  std::string names;
  for (int i = 0; i < service.method_count(); ++i) {
    if (i != 0) names += ", ";
    names += service.method(i)->name();
  }
  return names.empty() ? "none" : names;
}

const pb::MethodDescriptor& find_in(const pb::ServiceDescriptor& service, const wanted_method& wanted) {
  const pb::MethodDescriptor* const found = service.FindMethodByName(wanted.name);
  if (!found)
    refuse(wanted, fmt::format("the service has no such method; it has: {}", names_of_methods(service)));
  if (found->input_type() != &wanted.request || found->output_type() != &wanted.response) {
    refuse(wanted, fmt::format("it takes {} and returns {}, not {} and {}", found->input_type()->full_name(),
                               found->output_type()->full_name(), wanted.request.full_name(),
                               wanted.response.full_name()));
  }
  if (found->client_streaming() || found->server_streaming()) refuse(wanted, "it is a streaming method");
  return *found;
}

// Protobuf takes more than its own compiler does; what is meant to be shared had better be a name for both.
bool is_identifier(std::string_view text) noexcept {
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  return !text.empty() && is_letter(text.front()) &&
         std::all_of(text.begin(), text.end(), [&](char c) { return is_letter(c) || is_digit(c); });
}

void check_names(const wanted_method& wanted) {
  std::string_view rest = wanted.service;
  for (;;) {
    const std::string_view part = rest.substr(0, rest.find('.'));
    if (!is_identifier(part)) refuse(wanted, fmt::format("'{}' is no name of a service", wanted.service));
    if (part.size() == rest.size()) break;
    rest.remove_prefix(part.size() + 1);
  }
  if (!is_identifier(wanted.name)) refuse(wanted, fmt::format("'{}' is no name of a method", wanted.name));
}

pb::FileDescriptorProto describe_file(const wanted_method& wanted) {
  pb::FileDescriptorProto file;
  file.set_name(fmt::format("braid/method/{}.{}.proto", wanted.service, wanted.name));
  file.set_syntax("proto3");
  const std::size_t dot = wanted.service.rfind('.');
  if (dot != std::string::npos) file.set_package(wanted.service.substr(0, dot));
  file.add_dependency(wanted.request.file()->name());
  if (wanted.response.file() != wanted.request.file()) file.add_dependency(wanted.response.file()->name());
  auto& service = *file.add_service();
  service.set_name(dot == std::string::npos ? wanted.service : wanted.service.substr(dot + 1));
  auto& method = *service.add_method();
  method.set_name(wanted.name);
  method.set_input_type("." + wanted.request.full_name());
  method.set_output_type("." + wanted.response.full_name());
  return file;
}

class error_lines final : public pb::DescriptorPool::ErrorCollector {
 public:
  void AddError(const std::string&, const std::string&, const pb::Message*, ErrorLocation,
                const std::string& message) override {
    if (!text_.empty()) text_ += "; ";
    text_ += message;
  }
  const std::string& text() const noexcept { return text_; }

 private:
  std::string text_;
};

/// Methods of services that no linked .proto file has, each in a pool of its own: as with generated
/// descriptors, calls, servers and controllers hold plain references to them, so they are never destroyed.
class made_methods {
 public:
  static made_methods& instance() {
    static auto* const all = new made_methods;
    return *all;
  }

  const pb::MethodDescriptor& get(const wanted_method& wanted) {
    const std::string key = fmt::format("{}/{} {} {}", wanted.service, wanted.name,
                                        wanted.request.full_name(), wanted.response.full_name());
    const std::lock_guard lock(mutex_);
    const auto known = made_.find(key);
    if (known != made_.end()) return *known->second.method;
    auto pool = std::make_unique<pb::DescriptorPool>(pb::DescriptorPool::generated_pool());
    error_lines errors;
    const auto* const file = pool->BuildFileCollectingErrors(describe_file(wanted), &errors);
    if (!file) refuse(wanted, errors.text());
    const auto* const method = file->service(0)->method(0);
    made_.emplace(key, made{std::move(pool), method});
    return *method;
  }

 private:
  struct made {
    std::unique_ptr<pb::DescriptorPool> pool;
    const pb::MethodDescriptor* method;
  };
  std::mutex mutex_;
  std::unordered_map<std::string, made> made_;
};

}  // namespace

const pb::MethodDescriptor& find_method(std::string_view service, std::string_view name,
                                        const pb::Descriptor& request, const pb::Descriptor& response) {
  const wanted_method wanted{std::string(service), std::string(name), request, response};
  const auto* const pool = pb::DescriptorPool::generated_pool();
  if (request.file()->pool() != pool || response.file()->pool() != pool)
    refuse(wanted, "its messages are not generated ones");
  if (const auto* const known = pool->FindServiceByName(wanted.service)) return find_in(*known, wanted);
  if (const auto* const file = pool->FindFileContainingSymbol(wanted.service))
    refuse(wanted, fmt::format("{} is no service; it is something else in {}", wanted.service, file->name()));
  check_names(wanted);
  return made_methods::instance().get(wanted);
}

}  // namespace braid::detail
