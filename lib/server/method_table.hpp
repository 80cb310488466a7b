#pragma once

#include <braid/error.hpp>
#include <braid/handler.hpp>
#include <braid/interceptor.hpp>
#include <braid/placement.hpp>

#include "server/load.hpp"

#include <boost/unordered/unordered_flat_map.hpp>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <google/protobuf/service.h>

#include <cstddef>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace braid::server_side {

/// One method that a server has.
struct method_entry {
  const google::protobuf::MethodDescriptor* descriptor;
  const google::protobuf::Message* request_prototype;
  const google::protobuf::Message* response_prototype;
  detail::any_handler handler;
  placement run_on;
  std::vector<server_interceptor> interceptors;        ///< The server's and the method's.
  std::size_t index = 0;                               ///< Its place in the table.
  std::unique_ptr<concurrency_limit> limit = nullptr;  ///< Null: none of its own.
};

/// The methods of a server, by the names that requests carry. Filled before the server starts, read-only
/// afterwards.
class method_table {
 public:
  /// Adds all methods of a service. 22 when it is there already.
  void add(std::shared_ptr<google::protobuf::Service> service, const method_options& options, error_code& ec);
  /// Adds one method. 22 when it is there already, or its messages are not of generated code.
  void add(const google::protobuf::MethodDescriptor& method, detail::any_handler handler,
           const method_options& options, error_code& ec);
  static bool has_generated_messages(const google::protobuf::MethodDescriptor& method);
  /// The entry of a method that was added, or null.
  method_entry* find(const google::protobuf::MethodDescriptor& method) noexcept;

  /// errc::no_service or errc::no_method when it is not there. `service` may lack its package.
  const method_entry* find(std::string_view service, std::string_view method, error_code& ec) const noexcept;

  /// Sets the limit of one method; 0: none. errc::no_method when it is not there.
  void limit(const google::protobuf::MethodDescriptor& method, std::size_t most, error_code& ec);

  std::size_t size() const noexcept { return entries_.size(); }

 private:
  struct service_entry {
    std::string name;
    std::vector<method_entry*> methods;
  };
  service_entry& service(const google::protobuf::ServiceDescriptor& descriptor);
  void insert(service_entry& into, method_entry entry);

  std::deque<method_entry> entries_;
  std::deque<service_entry> services_;
  boost::unordered_flat_map<std::string_view, service_entry*> by_name_;  // full and short names
};

}  // namespace braid::server_side
