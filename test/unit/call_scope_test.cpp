// The calls that belong to a server call, wherever they are made.
#include "core/call_scope.hpp"

#include <braid/testing/simulation.hpp>

#include "core/loop.hpp"
#include "core/runtime_core.hpp"

#include <catch2/catch.hpp>

using braid::cancel_cause;
using braid::core::call_scope;
using braid::core::scope_link;

namespace {

struct call : braid::cancel_node {
  void on_cancel(cancel_cause) noexcept override {}
};

}  // namespace

TEST_CASE("call scope: a call of it on another loop is cancelled with it, before and after its start") {
  braid::testing::simulation sim(1);
  braid::runtime here(sim.node_options());
  braid::runtime there(sim.node_options());
  const auto scope = std::make_shared<call_scope>(braid::core::time_point::max(), &here.core()->at(0));
  call before;
  call after;
  scope_link first(scope);
  scope_link second(scope);
  auto& loop = there.core()->at(0);
  loop.post([&] { first.attach(before, loop); });
  sim.run_until_idle();
  CHECK_FALSE(before.cancelled());
  scope->cancel(cancel_cause::peer_gone);
  loop.post([&] { second.attach(after, loop); });
  sim.run_until_idle();
  CHECK(before.cause() == cancel_cause::peer_gone);
  CHECK(after.cause() == cancel_cause::peer_gone);
}

TEST_CASE("call scope: a call made for it after its end goes on, on its own loop and on another") {
  braid::testing::simulation sim(1);
  braid::runtime here(sim.node_options());
  braid::runtime there(sim.node_options());
  auto& home = here.core()->at(0);
  const auto scope = std::make_shared<call_scope>(braid::core::time_point::max(), &home);
  braid::core::loop& loop = GENERATE(false, true) ? home : there.core()->at(0);
  scope->cancel(cancel_cause::peer_gone);
  scope->end();
  call late;
  scope_link link(scope);
  loop.post([&] { link.attach(late, loop); });
  sim.run_until_idle();
  CHECK_FALSE(late.cancelled());
}
