#pragma once

#include "core/call_scope.hpp"

#include <boost/asio/execution.hpp>
#include <boost/asio/prefer.hpp>
#include <boost/asio/query.hpp>
#include <boost/asio/require.hpp>

#include <memory>
#include <type_traits>
#include <utility>

namespace braid::core {

/// An executor that makes what it runs part of a scope: calls started there inherit from the server call.
/// This is how an `asio::awaitable`, whose every step runs through its executor, carries its call along.
template <typename Inner>
class scoped_executor {
 public:
  scoped_executor(Inner inner, std::shared_ptr<call_scope> scope) noexcept
      : inner_(std::move(inner)), scope_(std::move(scope)) {}

  template <typename Function>
  void execute(Function&& function) const {
    inner_.execute(in_scope<std::decay_t<Function>>{scope_, std::forward<Function>(function)});
  }

  // All properties are those of the executor below.

  template <typename Property>
  requires(boost::asio::can_query<const Inner&, Property>::value) decltype(auto)
      query(const Property& property) const noexcept {
    return boost::asio::query(inner_, property);
  }
  template <typename Property>
  requires(boost::asio::can_require<const Inner&, Property>::value) auto require(
      const Property& property) const noexcept {
    return rebound(boost::asio::require(inner_, property));
  }
  template <typename Property>
  requires(boost::asio::can_prefer<const Inner&, Property>::value) auto prefer(
      const Property& property) const noexcept {
    return rebound(boost::asio::prefer(inner_, property));
  }

  friend bool operator==(const scoped_executor& a, const scoped_executor& b) noexcept {
    return a.scope_ == b.scope_ && a.inner_ == b.inner_;
  }
  friend bool operator!=(const scoped_executor& a, const scoped_executor& b) noexcept { return !(a == b); }

 private:
  template <typename Function>
  struct in_scope {
    std::shared_ptr<call_scope> scope;
    Function function;
    void operator()() {
      const call_scope::entered inside(scope.get());
      std::move(function)();
    }
  };

  template <typename Other>
  scoped_executor<Other> rebound(Other inner) const noexcept {
    return {std::move(inner), scope_};
  }

  Inner inner_;
  std::shared_ptr<call_scope> scope_;
};

}  // namespace braid::core
