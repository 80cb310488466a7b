#pragma once

#include "server/handler_run.hpp"

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/strand.hpp>

#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

namespace braid::server_side {

/// A handler that is an Asio awaitable. On an executor of many threads it runs on a strand of its own.
class awaitable_run final : public handler_run, private core::live_node {
 public:
  awaitable_run(running_call& call, core::loop* where);

  /// Empty when the handler has ended on an executor that is no loop's.
  boost::asio::any_io_executor executor() override;

 private:
  class completion;

  void begin() noexcept override;
  using strand = boost::asio::strand<boost::asio::any_io_executor>;

  boost::asio::any_io_executor foreign_executor() const override { return *strand_; }
  void let_go() noexcept override;
  void on_cancel(cancel_cause cause) noexcept override;
  void emit() noexcept;
  void ended(const std::exception_ptr& thrown) noexcept;

  // live_node: the loop waits for it
  void cancel_for_shutdown() noexcept override { on_cancel(cancel_cause::shutdown); }
  std::string describe() const override;

  std::mutex mutex_;                         // guards strand_ once the handler was given to it
  std::optional<strand> strand_;             // where there is no loop, until the handler has ended
  boost::asio::cancellation_signal signal_;  // used on the executor only, as over_ is
  bool emitting_ = false;
  bool over_ = false;
};

}  // namespace braid::server_side
