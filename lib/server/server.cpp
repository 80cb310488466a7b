#include <braid/server.hpp>

#include "core/run_on.hpp"
#include "server/server_core.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <variant>

namespace braid {
namespace {

// How long after its end a stop is waited for before it is taken that something holds up a loop, or that
// nobody runs the one that was lent.
constexpr auto patience = std::chrono::milliseconds(250);
constexpr auto patience_with_lent = std::chrono::milliseconds(20);

[[noreturn]] void throw_error(int value, const std::string& what) {
  throw boost::system::system_error({value, boost::system::system_category()}, what);
}

/// Throws when a handler cannot run there.
void check_placement(const core::runtime_core& runtime, const std::string& name, const placement& where,
                     const detail::any_handler* handler = nullptr) {
  if (where.where() == placement::kind::loop && where.index() >= runtime.loop_count()) {
    throw_error(EINVAL, fmt::format("{} is placed on loop {}, and the runtime has {}", name, where.index(),
                                    runtime.loop_count()));
  }
  if (where.where() != placement::kind::executor) return;
  if (!where.executor()) throw_error(EINVAL, fmt::format("{} is placed on an executor that is empty", name));
  if (handler && std::holds_alternative<detail::stackful_handler>(*handler)) {
    throw_error(EINVAL, fmt::format("{} is stackful and placed on an executor: a yield_context needs a loop; "
                                    "use a plain function, whose synchronous calls block there",
                                    name));
  }
}

/// A method's options with the server's own interceptors before the method's.
method_options within(const server_options& whole, const method_options& options) {
  method_options joined = options;
  joined.interceptors.insert(joined.interceptors.begin(), whole.interceptors.begin(),
                             whole.interceptors.end());
  return joined;
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

void server::add_service(std::unique_ptr<google::protobuf::Service> service, const method_options& options) {
  add_shared(std::shared_ptr<google::protobuf::Service>(std::move(service)), options);
}

void server::add_service(google::protobuf::Service& service, const method_options& options) {
  add_shared(std::shared_ptr<google::protobuf::Service>(&service, [](google::protobuf::Service*) {}),
             options);
}

void server::add_shared(std::shared_ptr<google::protobuf::Service> service, const method_options& options) {
  if (!service) throw_error(EINVAL, "the service to add is a null pointer");
  const std::string name = service->GetDescriptor()->full_name();
  if (core_->started()) throw_error(EINVAL, fmt::format("service {} is added after the start", name));
  check_placement(core_->runtime(), name, options.run_on);
  error_code ec;
  core_->methods().add(std::move(service), within(core_->options(), options), ec);
  if (ec) throw boost::system::system_error(ec, fmt::format("service {} is there already", name));
}

void server::add_handler(const google::protobuf::MethodDescriptor& method, detail::any_handler handler,
                         const method_options& options) {
  if (core_->started())
    throw_error(EINVAL, fmt::format("method {} is added after the start", method.full_name()));
  check_placement(core_->runtime(), method.full_name(), options.run_on, &handler);
  error_code ec;
  core_->methods().add(method, std::move(handler), within(core_->options(), options), ec);
  if (!ec) return;
  const bool known = server_side::method_table::has_generated_messages(method);
  throw boost::system::system_error(
      ec, fmt::format("method {} {}", method.full_name(),
                      known ? "is there already" : "has messages that are not of generated code"));
}

void server::limit_concurrency(const google::protobuf::MethodDescriptor& method, std::size_t most) {
  if (core_->started())
    throw_error(EINVAL, fmt::format("method {} is limited after the start", method.full_name()));
  error_code ec;
  core_->methods().limit(method, most, ec);
  if (ec) throw boost::system::system_error(ec, fmt::format("no method {} to limit", method.full_name()));
}

void server::set_options(const google::protobuf::MethodDescriptor& method, const method_options& options) {
  if (core_->started())
    throw_error(EINVAL, fmt::format("the options of {} are set after the start", method.full_name()));
  server_side::method_entry* const entry = core_->methods().find(method);
  if (!entry) throw_error(EINVAL, fmt::format("method {} was not added", method.full_name()));
  check_placement(core_->runtime(), method.full_name(), options.run_on, &entry->handler);
  entry->run_on = options.run_on;
  entry->interceptors = within(core_->options(), options).interceptors;
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
  struct awaited {
    core::blocking_event ended;
    std::vector<std::string> left;
  };
  const auto stopping = std::make_shared<awaited>();  // a loop that is held up may come to it later
  const auto report = core_->stop(
      options,
      [stopping](std::vector<std::string> names) {
        stopping->left = std::move(names);
        stopping->ended.set();
      },
      server_side::server_core::stop_start::at_once);
  const bool lent = core_->runtime().is_lent();
  const auto grace_end = core::saturating_add(core::clock::now(), options.grace);
  const auto end = core::saturating_add(core::saturating_add(grace_end, options.kill),
                                        lent ? patience_with_lent : patience);
  if (!stopping->ended.wait_until(core_->runtime(), end)) {
    if (lent) core_->give_up_stop(report);
    if (auto left = report->give_up()) return std::move(*left);
  }
  stopping->ended.wait(core_->runtime());
  return std::move(stopping->left);
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
