#include <braid/cancellation.hpp>
#include <braid/outcome.hpp>

#include "call_tree_runner.hpp"
#include "combo/parallel_verdict.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <deque>
#include <iostream>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace {

using braid::cancel_cause;
using braid::errc;
using braid::outcome;
using braid::combo::parallel_verdict;
using call_tree::cause;
using call_tree::ending;
using call_tree::event;
using call_tree::merging;
using call_tree::node;
using call_tree::script;
using call_tree::slot;

cancel_cause to_library(cause why) {
  switch (why) {
    case cause::none:
      return cancel_cause::none;
    case cause::deadline:
      return cancel_cause::deadline;
    case cause::user:
      return cancel_cause::user;
    case cause::fail_limit:
      return cancel_cause::fail_limit;
    case cause::success_limit:
      return cancel_cause::success_limit;
    case cause::sibling_won:
      return cancel_cause::sibling_won;
    case cause::peer_gone:
      return cancel_cause::peer_gone;
    case cause::shutdown:
      return cancel_cause::shutdown;
  }
  return cancel_cause::none;
}

cause to_model(cancel_cause why) {
  for (std::size_t i = 0; i < call_tree::cause_count; ++i)
    if (to_library(static_cast<cause>(i)) == why) return static_cast<cause>(i);
  return cause::none;
}

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

// Cancellation tree, outcomes and verdicts put together as a parallel call does it, without coroutines: a
// parallel call goes on when step() is called, and nothing happens between the steps.
class synchronous_stage final : public call_tree::stage {
 public:
  std::vector<std::optional<ending>> play(const script& of) override {
    script_ = &of;
    calls_.clear();
    for (std::size_t i = 0; i < of.nodes.size(); ++i) calls_.push_back(std::make_unique<call>(*this, i));
    start(0);
    settle_all();
    for (const event& each : of.events) {
      call& on = *calls_[each.node];
      if (!on.started || on.end) continue;
      if (each.what == event::kind::ends) {
        settle(on, to_library(of.nodes[each.node].script));
      } else {
        on.cancel(to_library(each.why));
      }
      settle_all();
    }
    std::vector<std::optional<ending>> all;
    for (const auto& each : calls_)
      all.push_back(each->end ? std::optional(to_model(*each->end)) : std::nullopt);
    return all;
  }

 private:
  struct call final : braid::cancel_node {
    call(synchronous_stage& of, std::size_t number) : owner(of), self(number) {}
    void on_cancel(cancel_cause) noexcept override { owner.cancelled(*this); }

    synchronous_stage& owner;
    std::size_t self;
    bool started = false;
    bool finished_early = false;  // its parent has what it needs
    std::optional<outcome> end{};
    // Of a parallel call.
    std::optional<parallel_verdict> verdict{};
    std::size_t running = 0;
    std::deque<std::size_t> to_judge{};  // slots, in the order in which their calls ended
  };

  const node& spec(const call& of) const { return script_->nodes[of.self]; }
  call& sub(const call& of, std::size_t index) { return *calls_[spec(of).slots[index].node]; }

  void start(std::size_t number) {
    call& started = *calls_[number];
    const node& own = script_->nodes[number];
    started.started = true;
    if (number != 0) started.attach(*calls_[own.parent]);
    if (own.is_leaf) return;
    std::size_t n = 0;
    bool any_bad = false;
    for (const slot& each : own.slots) {
      if (each.what == slot::kind::sub) ++n;
      any_bad |= each.what == slot::kind::bad;
    }
    const braid::combo::parallel_limits limits{own.fail_limit, own.success_limit};
    if (const auto refused = parallel_verdict::check(own.slots.size(), any_bad, n, limits)) {
      settle(started, outcome{.code = refused});
      return;
    }
    started.verdict.emplace(n, limits);
    started.running = n;
    for (const slot& each : own.slots)
      if (each.what == slot::kind::sub) start(each.node);
  }

  void cancelled(call& which) noexcept {
    if (which.end || !spec(which).is_leaf) return;  // a parallel call goes on in step()
    settle(which, cancelled_outcome(which));
  }

  static outcome cancelled_outcome(const call& which) noexcept {
    outcome result = outcome::cancelled(which.cause());
    if (which.finished_early) result.code = errc::parallel_finished;
    return result;
  }

  void settle(call& which, const outcome& how) noexcept {
    which.end = how;
    which.detach();
    if (which.self == 0) return;
    call& parent = *calls_[spec(which).parent];
    --parent.running;
    parent.to_judge.push_back(spec(which).slot_of_parent);
  }

  // Deepest first: numbers grow from parent to child.
  void settle_all() {
    for (bool moved = true; std::exchange(moved, false);) {
      for (std::size_t i = calls_.size(); i-- > 0;) moved |= step(*calls_[i]);
    }
  }

  bool step(call& which) {
    if (!which.verdict || which.end || which.to_judge.empty()) return false;
    if (which.cancelled()) {
      if (which.running != 0) return false;
      std::sort(which.to_judge.begin(), which.to_judge.end());
    }
    judge(which);
    if (which.verdict->state() == parallel_verdict::decision::undecided) return true;
    cancel_rest(which);
    if (which.running == 0) finish(which);
    return true;
  }

  static void note_cancellation(call& which) {
    if (which.cancelled()) which.verdict->parent_cancelled(which.cause());
  }

  void judge(call& which) {
    note_cancellation(which);
    while (!which.to_judge.empty()) {
      const std::size_t index = which.to_judge.front();
      which.to_judge.pop_front();
      if (which.verdict->add(*sub(which, index).end) != parallel_verdict::decision::undecided) return;
    }
  }

  void cancel_rest(call& which) {
    for (std::size_t i = 0; i < spec(which).slots.size(); ++i) {
      if (spec(which).slots[i].what != slot::kind::sub) continue;
      call& rest = sub(which, i);
      if (rest.end || rest.cancelled()) continue;
      rest.finished_early = which.verdict->cause() == cancel_cause::success_limit;
      rest.cancel(which.verdict->cause());
    }
  }

  void finish(call& which) {
    judge_the_rest(which);
    if (which.verdict->state() == parallel_verdict::decision::succeeded) merge(which);
    const bool ended_by_cause = which.cancelled() && which.cause() != cancel_cause::deadline;
    settle(which, ended_by_cause ? cancelled_outcome(which) : which.verdict->result());
  }

  void judge_the_rest(call& which) {
    note_cancellation(which);
    for (const std::size_t index : std::exchange(which.to_judge, {}))
      which.verdict->add(*sub(which, index).end);
  }

  void merge(call& which) {
    for (std::size_t i = 0; i < spec(which).slots.size(); ++i) {
      const slot& own = spec(which).slots[i];
      if (own.what != slot::kind::sub || !sub(which, i).end->succeeded()) continue;
      if (own.merge == merging::refuse) which.verdict->add_merge_failure();
      if (own.merge == merging::give_up) which.verdict->merge_failed_all();
      if (which.verdict->state() == parallel_verdict::decision::failed) return;
    }
  }

  const script* script_ = nullptr;
  std::vector<std::unique_ptr<call>> calls_;
};

// Scripts by hand, for the model itself.

node leaf(ending how = {}) { return {.script = how}; }

node parallel(std::size_t subs, std::optional<int> fail_limit = {}, std::optional<int> success_limit = {}) {
  node made{.is_leaf = false, .fail_limit = fail_limit, .success_limit = success_limit};
  made.slots.resize(subs);
  return made;
}

constexpr ending app{.code = 5001, .from_peer = true};
constexpr ending late{.code = 1008, .why = cause::deadline};

event ends(std::size_t which) { return {event::kind::ends, which}; }
event cancelled(std::size_t which, cause why) { return {event::kind::cancelled, which, why}; }

// A root with leaves below it.
script flat(node root, std::vector<ending> how, std::vector<event> events) {
  script made{{std::move(root)}, std::move(events)};
  for (std::size_t i = 0; i < how.size(); ++i) {
    made.nodes[0].slots[i].node = i + 1;
    made.nodes.push_back({.script = how[i], .slot_of_parent = i, .depth = 1});
  }
  return made;
}

// A root over leaf 1 and a parallel call 2 over leaves 3 and 4.
script nested(node root, node inner, std::vector<event> events) {
  script made{{std::move(root), leaf(), std::move(inner), leaf(), leaf()}, std::move(events)};
  for (std::size_t i = 0; i < 2; ++i) {
    made.nodes[0].slots[i].node = i + 1;
    made.nodes[i + 1].slot_of_parent = i;
    made.nodes[2].slots[i].node = i + 3;
    made.nodes[i + 3].parent = 2;
    made.nodes[i + 3].slot_of_parent = i;
  }
  return made;
}

TEST_CASE("the model: limits, early ends, and what the rest ends with", "[call_tree][model]") {
  CHECK(expected(flat(parallel(2), {{}, app}, {ends(1), ends(2)}))[0] == ending{.partial = true});
  CHECK(expected(flat(parallel(2), {app, app}, {ends(1), ends(2)}))[0] == ending{.code = 5001});
  const auto failed = expected(flat(parallel(3, 1), {app, {}, {}}, {ends(1), ends(2), ends(3)}));
  CHECK(failed[0] == ending{.code = 5001});
  CHECK(failed[2] == ending{.code = 125, .why = cause::fail_limit});
  const auto succeeded = expected(flat(parallel(3, {}, 1), {app, {}, {}}, {ends(2), ends(1), ends(3)}));
  CHECK(succeeded[0] == ending{});
  CHECK(succeeded[1] == ending{.code = 1006, .why = cause::success_limit});
}

TEST_CASE("the model: refusals before anything is sent", "[call_tree][model]") {
  CHECK(expected(flat(parallel(0), {}, {}))[0] == ending{.code = 1});
  CHECK(expected(flat(parallel(1, {}, 2), {{}}, {ends(1)}))[0] == ending{.code = 22});
  auto with_bad = flat(parallel(2), {{}}, {ends(1)});
  with_bad.nodes[0].slots[1].what = slot::kind::bad;
  CHECK(expected(with_bad)[0] == ending{.code = 1003});
  CHECK_FALSE(expected(with_bad)[1].has_value());
  auto skipped = flat(parallel(2), {}, {});
  for (auto& each : skipped.nodes[0].slots) each.what = slot::kind::skip;
  CHECK(expected(skipped)[0] == ending{.code = 125});
}

TEST_CASE("the model: a deadline, and what had succeeded deep down", "[call_tree][model]") {
  const auto all = expected(nested(parallel(2), parallel(2), {ends(3), cancelled(0, cause::deadline)}));
  CHECK(all[1] == late);
  CHECK(all[2] == ending{.partial = true});
  CHECK(all[4] == late);
  CHECK(all[0] == ending{.partial = true});
  const auto strict =
      expected(nested(parallel(2, 1), parallel(2, 1), {ends(3), cancelled(0, cause::deadline)}));
  CHECK(strict[2] == late);
  CHECK(strict[0] == late);
}

TEST_CASE("the model: a cause is copied to every node below, 1006 only to the direct sub calls",
          "[call_tree][model]") {
  const auto won = expected(nested(parallel(2, {}, 1), parallel(2), {ends(1)}));
  CHECK(won[2] == ending{.code = 1006, .why = cause::success_limit});
  CHECK(won[3] == ending{.code = 125, .why = cause::success_limit});
  const auto gone = expected(nested(parallel(2), parallel(2), {ends(1), cancelled(0, cause::peer_gone)}));
  CHECK(gone[1] == ending{});
  for (const std::size_t i : {0, 2, 3, 4}) CHECK(gone[i] == ending{.code = 125, .why = cause::peer_gone});
}

TEST_CASE("the model: merging", "[call_tree][model]") {
  auto refused = flat(parallel(2), {{}, {}}, {ends(1), ends(2)});
  refused.nodes[0].slots[0].merge = merging::refuse;
  CHECK(expected(refused)[0] == ending{.partial = true});
  refused.nodes[0].slots[1].merge = merging::refuse;
  CHECK(expected(refused)[0] == ending{.code = 2002});
  refused.nodes[0].slots[1].merge = merging::accept;
  refused.nodes[0].success_limit = 2;
  CHECK(expected(refused)[0] == ending{.code = 2002});
}

TEST_CASE("the model: the same seed makes the same script", "[call_tree][model]") {
  const auto first = describe(call_tree::script_maker(7).make());
  CHECK(first == describe(call_tree::script_maker(7).make()));
  CHECK(first != describe(call_tree::script_maker(8).make()));
}

TEST_CASE("outcomes of 6,000 random trees are those of the model, with every cause and code", "[call_tree]") {
  synchronous_stage stage;
  call_tree::tally seen;
  std::size_t different = 0;
  std::size_t deepest = 0;
  for (std::uint64_t seed = 1; seed <= 6000 && different < 3; ++seed) {
    const auto script = call_tree::script_maker(seed).make();
    for (const auto& each : script.nodes) deepest = std::max(deepest, each.depth);
    if (!same_as_model(stage, script, seed, seen)) ++different;
  }
  CHECK(different == 0);
  CHECK(deepest == 6);
  check_that_all_occurred(seen);
  std::cout << "# " << seen.text() << std::endl;  // a comment to TAP
}

TEST_CASE("a tree cancelled at each of its steps, by each cause, ends as the model says", "[call_tree]") {
  synchronous_stage stage;
  call_tree::tally seen;
  std::size_t different = 0;
  for (std::uint64_t seed = 1; seed <= 150 && different < 3; ++seed) {
    const auto script = call_tree::script_maker(seed * 1000).make();
    for (std::size_t step = 0; step <= script.events.size(); ++step) {
      for (const auto why :
           {cause::user, cause::deadline, cause::sibling_won, cause::peer_gone, cause::shutdown}) {
        const auto changed = call_tree::script_maker::cancelled_at(script, step, why);
        if (!same_as_model(stage, changed, seed, seen)) ++different;
      }
    }
  }
  CHECK(different == 0);
  for (const auto why : {cause::user, cause::deadline, cause::sibling_won, cause::peer_gone, cause::shutdown})
    CHECK(seen.of_cause(why) >= 1000);
  std::cout << "# " << seen.text() << std::endl;  // a comment to TAP
}

}  // namespace
