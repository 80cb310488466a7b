#pragma once

/// \file
/// Naming a method by the member function that protobuf generated for it.

#include <braid/config.hpp>

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <google/protobuf/service.h>

namespace braid {

/// A method of a generated service: `&EchoService::Echo`.
template <typename Service, typename Request, typename Response>
using generated_method = void (Service::*)(google::protobuf::RpcController*, const Request*, Response*,
                                           google::protobuf::Closure*);

namespace detail {

/// Notes which method a generated stub calls.
class method_probe final : public google::protobuf::RpcChannel {
 public:
  void CallMethod(const google::protobuf::MethodDescriptor* method, google::protobuf::RpcController*,
                  const google::protobuf::Message*, google::protobuf::Message*,
                  google::protobuf::Closure*) override {
    called = method;
  }
  const google::protobuf::MethodDescriptor* called = nullptr;
};

}  // namespace detail

/// The descriptor of a generated method. Costs a virtual call or two.
///
/// How: a pointer to a virtual member function finds the stub's override, which names its descriptor to the
/// channel.
template <typename Service, typename Request, typename Response>
const google::protobuf::MethodDescriptor& describe_method(
    generated_method<Service, Request, Response> method) {
  detail::method_probe probe;
  typename Service::Stub stub(&probe);
  (static_cast<Service&>(stub).*method)(nullptr, nullptr, nullptr, nullptr);
  return *probe.called;
}

}  // namespace braid
