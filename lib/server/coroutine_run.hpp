#pragma once

#include <braid/cancellation.hpp>
#include <braid/spawn.hpp>

#include "server/handler_run.hpp"

#include <memory>
#include <optional>
#include <string>

namespace braid::server_side {

/// A handler in a coroutine of another loop than its call's.
class coroutine_run final : public handler_run, private detail::coroutine_body {
 public:
  coroutine_run(running_call& call, core::loop& where);

  boost::asio::any_io_executor executor() override;

 private:
  /// What the coroutine and the calls that it leaves running are below, on its loop.
  struct anchor final : cancel_node {
    void on_cancel(cancel_cause) noexcept override {}
  };

  void begin() noexcept override;
  boost::asio::any_io_executor foreign_executor() const override { return {}; }
  void on_cancel(cancel_cause cause) noexcept override;
  void on_end() noexcept override;

  // coroutine_body
  void run(yield_context yield) override;
  void failed(detail::failure why) noexcept override;
  void ended(const detail::loop_executor& home) noexcept override;
  void refused(const error_code&) noexcept override {}
  std::string describe() const override;

  anchor anchor_;
  const std::shared_ptr<detail::cancel_handle> handle_;  // reaches the anchor
  bool answers_ = false;                                 // by returning
  std::optional<detail::failure> thrown_;
};

}  // namespace braid::server_side
