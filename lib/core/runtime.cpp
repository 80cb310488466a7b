#include <braid/runtime.hpp>

#include "core/runtime_core.hpp"

#include <utility>

namespace braid {

runtime::runtime(runtime_options options) : core_(std::make_shared<core::runtime_core>(std::move(options))) {}

runtime::runtime(boost::asio::io_context& lent, runtime_options options)
    : core_(std::make_shared<core::runtime_core>(std::move(options), &lent)) {}

runtime::~runtime() { core_->finish(); }

std::size_t runtime::loop_count() const noexcept { return core_->loop_count(); }

runtime::executor_type runtime::loop_executor(std::size_t index) const noexcept {
  return core_->at(index).executor();
}

runtime::executor_type runtime::get_executor() const noexcept { return core_->home().executor(); }

void runtime::stop() noexcept { core_->begin_stop(); }

}  // namespace braid
