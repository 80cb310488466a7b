// Nested parallel channels against the model: the same scripts as for the tree and the verdicts alone, in
// virtual time.

#include <braid/combo_channel.hpp>
#include <braid/coroutine.hpp>
#include <braid/parallel_channel.hpp>
#include <braid/runtime.hpp>
#include <braid/testing/simulation.hpp>

#include "call_tree_runner.hpp"
#include "golden.pb.h"

#include <catch2/catch.hpp>

#include <chrono>
#include <cstddef>
#include <iostream>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#if defined(__SANITIZE_THREAD__)
constexpr std::uint64_t random_trees =
    1500;  // each coroutine is a fiber that ThreadSanitizer makes and destroys
#else
constexpr std::uint64_t random_trees = 6000;
#endif

namespace {

using namespace std::chrono_literals;
using braid::cancel_cause;
using braid::combo_call;
using braid::combo_channel;
using braid::outcome;
using braid::testing::simulation;
using call_tree::cause;
using call_tree::ending;
using call_tree::event;
using call_tree::merging;
using call_tree::node;
using call_tree::script;
using call_tree::slot;

// The two enumerations have the same order; the first test holds them to it.
cancel_cause to_library(cause why) { return static_cast<cancel_cause>(why); }
cause to_model(cancel_cause why) { return static_cast<cause>(why); }

outcome to_library(const ending& how) {
  if (how.code == 0) return outcome::success(how.partial);
  const auto code = braid::from_wire(how.code);
  return how.from_peer ? outcome::peer_failure(code) : outcome::local_failure(code);
}

ending to_model(const outcome& how) {
  return {.code = braid::to_wire(how.code),
          .from_peer = how.origin == braid::outcome_origin::peer,
          .why = to_model(how.cause),
          .retryable = how.retryable,
          .partial = how.partial};
}

// Event k of a script happens so long after its start, each in a turn of its own.
constexpr auto step = 10ms;
using instant = simulation::time_point;

/// Sleeps until an instant and ends as it is told. What it does when it is cancelled is one of what users do:
/// let the exception go, or return without a word.
class scripted_leaf final : public combo_channel::behaviour {
 public:
  scripted_leaf(const simulation& time, instant at, outcome result, bool catches)
      : time_(time), at_(at), result_(result), catches_(catches) {}

  void run(combo_call& call, braid::yield_context yield) override {
    braid::error_code ec;
    if (catches_) {
      braid::sleep_for(at_ - time_.now(), yield[ec]);
      if (ec) return;
    } else {
      braid::sleep_for(at_ - time_.now(), yield);
    }
    if (result_.succeeded()) static_cast<golden::EchoResponse&>(call.response()).set_message("x");
    call.finish(result_, "as the script says");
  }

 private:
  const simulation& time_;
  instant at_;
  outcome result_;
  bool catches_;
};

/// A combo over one channel that cancels its call at an instant: how a cause comes to a node from outside.
class canceller final : public combo_channel::behaviour {
 public:
  canceller(std::shared_ptr<braid::channel_base> on, std::shared_ptr<braid::channel_base> alarm,
            cancel_cause why)
      : on_(std::move(on)), alarm_(std::move(alarm)), why_(why) {}

  void run(combo_call& call, braid::yield_context yield) override {
    braid::call_group subs(call, 2);
    subs.launch(0, *on_);
    subs.launch(1, *alarm_);
    const braid::finished_sub_call* first = subs.next(yield);
    const bool rang = first && first->index == 1;
    subs.cancel_rest(rang ? why_ : cancel_cause::sibling_won, yield);
    const auto ended = subs.at(0);
    if (ended.result.succeeded()) call.response().CopyFrom(ended.response);
    call.finish(ended.result, ended.control.ErrorText());
  }

 private:
  std::shared_ptr<braid::channel_base> on_;
  std::shared_ptr<braid::channel_base> alarm_;
  cancel_cause why_;
};

class scripted_mapper final : public braid::call_mapper {
 public:
  scripted_mapper(slot::kind what, std::optional<instant> deadline) : what_(what), deadline_(deadline) {}

  braid::sub_call map(std::size_t, std::size_t, const google::protobuf::MethodDescriptor& method,
                      const google::protobuf::Message&, google::protobuf::Message&) override {
    if (what_ == slot::kind::bad) return braid::sub_call::bad();
    if (what_ == slot::kind::skip) return braid::sub_call::skip();
    braid::sub_call made(method, static_cast<const google::protobuf::Message*>(nullptr));
    if (deadline_) made.set_deadline(*deadline_);
    return made;
  }

 private:
  slot::kind what_;
  std::optional<instant> deadline_;
};

class scripted_merger final : public braid::response_merger {
 public:
  explicit scripted_merger(merging how) : how_(how) {}

  braid::merge_result merge(google::protobuf::Message& into, const google::protobuf::Message& sub) override {
    if (how_ == merging::refuse) return braid::merge_result::fail;
    if (how_ == merging::give_up) return braid::merge_result::fail_all;
    into.MergeFrom(sub);
    return braid::merge_result::merged;
  }

 private:
  merging how_;
};

// What the script's cancellations mean for one node: the first deadline and the first of the others count.
struct cancellations {
  std::optional<instant> deadline{};
  std::optional<instant> at{};
  cancel_cause why = cancel_cause::none;
};

/// Real parallel channels, with scripted leaves, in a simulated process.
class channel_stage final : public call_tree::stage {
 public:
  std::vector<std::optional<ending>> play(const script& of) override {
    script_ = &of;
    read_events();
    const auto root = channel_for(0);
    braid::controller control;
    control.set_timeout(plan_[0].deadline ? *plan_[0].deadline - time_.now() : -1ns);
    golden::EchoRequest request;
    request.set_message("q");
    golden::EchoResponse response;
    int completions = 0;
    root->async_call(*method(), control, request, response, [&](braid::error_code) { ++completions; });
    const bool idle = time_.run_until_idle();
    if (!idle || completions != 1) FAIL(completions << " completions");
    std::vector<std::optional<ending>> all(of.nodes.size());
    collect(0, control, all);
    forgive_cancelled_at_launch(all);
    return all;
  }

 private:
  static const google::protobuf::MethodDescriptor* method() {
    return golden::EchoService::descriptor()->method(0);
  }

  instant when(std::size_t index) const { return time_.now() + (static_cast<int>(index) + 1) * step; }

  void read_events() {
    ends_.assign(script_->nodes.size(), {});
    plan_.assign(script_->nodes.size(), {});
    at_launch_ = call_tree::expected({script_->nodes, {}});
    for (std::size_t i = 0; i < script_->events.size(); ++i) {
      const event& each = script_->events[i];
      cancellations& plan = plan_[each.node];
      if (each.what == event::kind::ends) {
        ends_[each.node] = when(i);
      } else if (at_launch_[each.node]) {
        continue;  // it has ended by then, and a canceller before it would delay that
      } else if (each.why == cause::deadline) {
        if (!plan.deadline) plan.deadline = when(i);
      } else if (!plan.at) {
        plan.at = when(i);
        plan.why = to_library(each.why);
      }
    }
  }

  std::shared_ptr<braid::channel_base> leaf(instant at, const outcome& result, bool catches) {
    return std::make_shared<combo_channel>(process_,
                                           std::make_shared<scripted_leaf>(time_, at, result, catches), -1ns);
  }

  std::shared_ptr<braid::channel_base> channel_for(std::size_t index) {
    const node& own = script_->nodes[index];
    auto made = own.is_leaf ? leaf(ends_[index], to_library(own.script), index % 2 == 0) : parallel(own);
    const cancellations& plan = plan_[index];
    if (!plan.at) return made;
    auto alarm = leaf(*plan.at, outcome::success(), true);
    return std::make_shared<combo_channel>(
        process_, std::make_shared<canceller>(std::move(made), std::move(alarm), plan.why), -1ns);
  }

  std::shared_ptr<braid::channel_base> parallel(const node& own) {
    auto made = std::make_shared<braid::parallel_channel>(
        process_, braid::parallel_channel_options{
                      .timeout = -1ns, .fail_limit = own.fail_limit, .success_limit = own.success_limit});
    for (const slot& each : own.slots) {
      const bool sub = each.what == slot::kind::sub;
      auto on = sub ? channel_for(each.node) : leaf(time_.now(), outcome::success(), true);
      made->add_channel(std::move(on),
                        std::make_shared<scripted_mapper>(
                            each.what, sub ? plan_[each.node].deadline : std::optional<instant>()),
                        std::make_shared<scripted_merger>(each.merge));
    }
    return made;
  }

  // The controllers follow the tree, with one more level where a canceller stands.
  void collect(std::size_t index, const braid::controller& control,
               std::vector<std::optional<ending>>& all) const {
    all[index] = to_model(control.result());
    const braid::controller* own = &control;
    if (plan_[index].at) own = control.sub(0);
    if (!own) return;
    const auto& slots = script_->nodes[index].slots;
    for (std::size_t i = 0; i < slots.size(); ++i)
      if (const auto* sub = own->sub(i); sub && slots[i].what == slot::kind::sub)
        collect(slots[i].node, *sub, all);
  }

  // A sub call that its parent cancels while it launches the rest has a coroutine that has not run yet. It
  // then starts nothing below its own sub calls, where the model has started and cancelled all.
  void forgive_cancelled_at_launch(std::vector<std::optional<ending>>& all) const {
    const auto cancelled = [&](std::size_t i) { return at_launch_[i] && at_launch_[i]->why != cause::none; };
    for (std::size_t i = 1; i < all.size(); ++i)
      if (!all[i] && cancelled(i) && cancelled(script_->nodes[i].parent)) all[i] = at_launch_[i];
  }

  simulation time_{1};
  braid::runtime process_{time_.node_options()};
  const script* script_ = nullptr;
  std::vector<instant> ends_;
  std::vector<cancellations> plan_;
  std::vector<std::optional<ending>> at_launch_;  // of calls that end before any event
};

TEST_CASE("the model's causes are the library's", "[call_tree][channels]") {
  for (std::size_t i = 0; i < call_tree::cause_count; ++i) {
    const auto why = static_cast<cause>(i);
    CHECK(braid::to_string(to_library(why)) == call_tree::name(why));
  }
}

TEST_CASE("nested parallel channels end as the model says, with every cause and code",
          "[call_tree][channels]") {
  channel_stage stage;
  call_tree::tally seen;
  std::size_t different = 0;
  for (std::uint64_t seed = 1; seed <= random_trees && different < 3; ++seed) {
    const auto script = call_tree::script_maker(seed).make();
    if (!same_as_model(stage, script, seed, seen)) ++different;
  }
  CHECK(different == 0);
  check_that_all_occurred(seen);
  std::cout << "# " << seen.text() << std::endl;  // a comment to TAP
}

TEST_CASE("nested parallel channels cancelled at each step, by each cause, end as the model says",
          "[call_tree][channels]") {
  channel_stage stage;
  call_tree::tally seen;
  std::size_t different = 0;
  for (std::uint64_t seed = 1; seed <= random_trees / 60 && different < 3; ++seed) {
    const auto script = call_tree::script_maker(seed * 1000).make();
    for (std::size_t at = 0; at <= script.events.size(); ++at) {
      for (const auto why :
           {cause::user, cause::deadline, cause::sibling_won, cause::peer_gone, cause::shutdown}) {
        const auto changed = call_tree::script_maker::cancelled_at(script, at, why);
        if (!same_as_model(stage, changed, seed, seen)) ++different;
      }
    }
  }
  CHECK(different == 0);
  std::cout << "# " << seen.text() << std::endl;
}

}  // namespace
