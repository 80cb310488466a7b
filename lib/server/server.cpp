#include <braid/server.hpp>

#include "core/run_on.hpp"
#include "server/server_core.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace braid {
namespace {

// How long after its end a stop on a lent loop is waited for before it is taken that nobody runs the loop.
constexpr auto patience = std::chrono::milliseconds(20);

[[noreturn]] void throw_error(int value, const std::string& what) {
  throw boost::system::system_error({value, boost::system::system_category()}, what);
}

}  // namespace

server::server(const runtime& rt, server_options options)
    : core_(std::make_shared<server_side::server_core>(rt.core(), options)) {}

server::~server() {
  const stop_options at_once{.grace = std::chrono::milliseconds(0)};
  if (core_->runtime().runs_here()) {
    core_->stop(
        at_once, [](const std::vector<std::string>&) {}, server_side::server_core::stop_start::at_once);
  } else {
    stop(at_once);
  }
}

void server::add_service(std::unique_ptr<google::protobuf::Service> service) {
  add_shared(std::shared_ptr<google::protobuf::Service>(std::move(service)));
}

void server::add_service(google::protobuf::Service& service) {
  add_shared(std::shared_ptr<google::protobuf::Service>(&service, [](google::protobuf::Service*) {}));
}

void server::add_shared(std::shared_ptr<google::protobuf::Service> service) {
  const std::string name = service->GetDescriptor()->full_name();
  if (core_->started()) throw_error(EINVAL, fmt::format("service {} is added after the start", name));
  error_code ec;
  core_->methods().add(std::move(service), ec);
  if (ec) throw boost::system::system_error(ec, fmt::format("service {} is there already", name));
}

void server::handle(const google::protobuf::MethodDescriptor& method, untyped_handler handler) {
  if (core_->started())
    throw_error(EINVAL, fmt::format("method {} is added after the start", method.full_name()));
  error_code ec;
  core_->methods().add(
      method,
      [handler = std::move(handler)](server_call& call, const google::protobuf::Message& request,
                                     google::protobuf::Message& response, google::protobuf::Closure& done,
                                     yield_context yield) {
        handler(call, request, response, yield);
        done.Run();
      },
      ec);
  if (ec)
    throw boost::system::system_error(ec, fmt::format("method {} is there already", method.full_name()));
}

void server::limit_concurrency(const google::protobuf::MethodDescriptor& method, std::size_t most) {
  if (core_->started())
    throw_error(EINVAL, fmt::format("method {} is limited after the start", method.full_name()));
  error_code ec;
  core_->methods().limit(method, most, ec);
  if (ec) throw boost::system::system_error(ec, fmt::format("no method {} to limit", method.full_name()));
}

void server::start(std::string_view address) {
  error_code ec;
  std::string why;
  core_->start(address, ec, why);
  if (ec) throw boost::system::system_error(ec, fmt::format("server on '{}': {}", address, why));
}

void server::start(std::string_view address, error_code& ec) {
  std::string why;
  ec = {};
  core_->start(address, ec, why);
}

std::uint16_t server::port() const noexcept {
  const auto all = core_->endpoints();
  return all.empty() ? std::uint16_t{0} : all.front().port();
}

std::vector<endpoint> server::endpoints() const { return core_->endpoints(); }

std::vector<std::string> server::stop(stop_options options) {
  if (core_->runtime().runs_here())
    throw_error(EDEADLK, "server::stop() on a loop of the server would wait for itself");
  core::blocking_event stopped;
  std::vector<std::string> left;
  core_->stop(
      options,
      [&](std::vector<std::string> names) {
        left = std::move(names);
        stopped.set();
      },
      server_side::server_core::stop_start::at_once);
  if (core_->runtime().is_lent()) {
    const auto end = core::saturating_add(core::clock::now(), options.grace + options.kill + patience);
    if (!stopped.wait_until(core_->runtime(), end)) core_->give_up_stop();
  }
  stopped.wait(core_->runtime());
  return left;
}

void server::start_stop(stop_options options,
                        detail::erased_completion<error_code, std::vector<std::string>>* completion) {
  core_->stop(
      options,
      [completion, core = core_](std::vector<std::string> names) {
        core::loop* const here = core->runtime().current();
        if (here && here->on_base_stack()) {
          completion->complete(here->executor(), error_code(), std::move(names));
        } else {
          completion->complete_without_loop(error_code(), std::move(names));
        }
      },
      server_side::server_core::stop_start::later);
}

}  // namespace braid
