#include "server/method_table.hpp"

#include <braid/server.hpp>

#include <algorithm>

namespace braid::server_side {
namespace {

const error_code already_there{EINVAL, boost::system::system_category()};

/// Null for a type that no generated code knows.
const google::protobuf::Message* prototype(const google::protobuf::Descriptor* type) {
  return google::protobuf::MessageFactory::generated_factory()->GetPrototype(type);
}

}  // namespace

method_table::service_entry& method_table::service(const google::protobuf::ServiceDescriptor& descriptor) {
  const auto known = std::find_if(services_.begin(), services_.end(), [&](const service_entry& each) {
    return each.name == descriptor.full_name();
  });
  if (known != services_.end()) return *known;
  service_entry& added = services_.emplace_back(service_entry{descriptor.full_name(), {}});
  by_name_[added.name] = &added;
  by_name_.emplace(descriptor.name(), &added);  // the first service of a short name keeps it
  return added;
}

bool method_table::has_generated_messages(const google::protobuf::MethodDescriptor& method) {
  return prototype(method.input_type()) && prototype(method.output_type());
}

void method_table::insert(service_entry& into, method_entry entry) {
  entry.index = entries_.size();
  into.methods.push_back(&entries_.emplace_back(std::move(entry)));
}

void method_table::add(std::shared_ptr<google::protobuf::Service> service, const method_options& options,
                       error_code& ec) {
  const auto& descriptor = *service->GetDescriptor();
  service_entry& into = this->service(descriptor);
  if (!into.methods.empty()) {
    ec = already_there;
    return;
  }
  for (int i = 0; i < descriptor.method_count(); ++i) {
    const auto* method = descriptor.method(i);
    insert(into,
           {.descriptor = method,
            .request_prototype = &service->GetRequestPrototype(method),
            .response_prototype = &service->GetResponsePrototype(method),
            .handler = detail::generated_handler(
                [service, method](server_call& call, const google::protobuf::Message& request,
                                  google::protobuf::Message& response, google::protobuf::Closure& done) {
                  service->CallMethod(method, &call, &request, &response, &done);
                }),
            .run_on = options.run_on,
            .interceptors = options.interceptors});
  }
}

void method_table::add(const google::protobuf::MethodDescriptor& method, detail::any_handler handler,
                       const method_options& options, error_code& ec) {
  if (!has_generated_messages(method)) {
    ec = {EINVAL, boost::system::system_category()};
    return;
  }
  service_entry& into = service(*method.service());
  const bool known = std::any_of(into.methods.begin(), into.methods.end(), [&](const method_entry* each) {
    return each->descriptor->name() == method.name();
  });
  if (known) {
    ec = already_there;
    return;
  }
  insert(into, {.descriptor = &method,
                .request_prototype = prototype(method.input_type()),
                .response_prototype = prototype(method.output_type()),
                .handler = std::move(handler),
                .run_on = options.run_on,
                .interceptors = options.interceptors});
}

method_entry* method_table::find(const google::protobuf::MethodDescriptor& method) noexcept {
  const auto found = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const method_entry& each) { return each.descriptor == &method; });
  return found == entries_.end() ? nullptr : &*found;
}

void method_table::limit(const google::protobuf::MethodDescriptor& method, std::size_t most, error_code& ec) {
  const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const method_entry& each) {
    return each.descriptor->full_name() == method.full_name();
  });
  if (found == entries_.end()) {
    ec = errc::no_method;
    return;
  }
  found->limit = most == 0 ? nullptr : std::make_unique<concurrency_limit>(most);
}

const method_entry* method_table::find(std::string_view service, std::string_view method,
                                       error_code& ec) const noexcept {
  const auto found = by_name_.find(service);
  if (found == by_name_.end()) {
    ec = errc::no_service;
    return nullptr;
  }
  for (const method_entry* each : found->second->methods)
    if (each->descriptor->name() == method) return each;
  ec = errc::no_method;
  return nullptr;
}

}  // namespace braid::server_side
