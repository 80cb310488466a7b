#pragma once

#include <braid/server.hpp>

#include "core/runtime_core.hpp"
#include "net/transport.hpp"
#include "server/loop_part.hpp"
#include "server/server_settings.hpp"
#include "server/stop_report.hpp"

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace braid::server_side {

/// What a server is made of; its listeners keep it alive.
class server_core final : public std::enable_shared_from_this<server_core>, private net::accept_events {
 public:
  server_core(std::shared_ptr<core::runtime_core> runtime, const server_options& options);

  method_table& methods() noexcept { return settings_->methods; }
  const server_options& options() const noexcept { return settings_->options; }
  core::runtime_core& runtime() const noexcept { return *settings_->runtime; }
  bool started() const noexcept { return started_; }

  void start(std::string_view address, error_code& ec, std::string& why);
  std::vector<endpoint> endpoints() const;

  enum class stop_start : bool {
    later,    ///< `stopped` is not called in here, unless the loops are gone.
    at_once,  ///< On a lent loop, which perhaps nobody runs, this thread begins, unless a handler holds it.
  };
  /// Stops on all loops; `stopped` is called on one of them, or on this thread when there is nothing to stop
  /// and it is to be at_once.
  /// Returns what the parts say meanwhile; null in that case.
  std::shared_ptr<stop_report> stop(const stop_options& how, stop_report::handler stopped, stop_start start);
  /// On a lent loop that is not run: ends the stop that goes on. One that a handler holds says nothing.
  void give_up_stop(const std::shared_ptr<stop_report>& report);

 private:
  void make_parts();
  void listen(core::loop& home, const endpoint& at, error_code& ec, std::string& why);

  core::loop& next_loop() override;
  void on_accepted(core::loop& home, std::unique_ptr<net::transport> accepted) override;
  void on_accept_failed(const error_code& why) override;

  const std::shared_ptr<server_settings> settings_;
  std::vector<std::shared_ptr<loop_part>> parts_;  // by the loop's index, once the server was started
  std::atomic<std::size_t> next_{0};
  bool started_ = false;
  mutable std::mutex mutex_;
  std::vector<endpoint> endpoints_;
};

}  // namespace braid::server_side
