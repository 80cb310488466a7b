#pragma once

/// \file
/// What a call can be made for.

#include <braid/config.hpp>

#include <memory>

namespace braid {

namespace core {
class call_scope;
}

/// Something that calls are made for and whose deadline and cancellation they inherit: a server_call.
///
/// Thread safety: any thread may use it as long as it lives.
class call_parent {
 public:
  /// For the library's own layers.
  virtual std::shared_ptr<core::call_scope> scope() = 0;

 protected:
  call_parent() = default;
  ~call_parent() = default;
};

}  // namespace braid
