#include "call_tree_model.hpp"

#include <algorithm>
#include <set>
#include <sstream>
#include <utility>

namespace call_tree {
namespace {

using endings = std::vector<ending>;

bool succeeded(const ending& how) { return how.code == 0; }

int successes_in(const endings& of) {
  return static_cast<int>(std::count_if(of.begin(), of.end(), succeeded));
}
int failures_in(const endings& of) { return static_cast<int>(of.size()) - successes_in(of); }

/// The limits of one parallel call, as the row "limits" says.
struct limits {
  int n;
  int fail;
  int needed;
  bool early;

  explicit limits(const node& of) {
    n = static_cast<int>(std::count_if(of.slots.begin(), of.slots.end(),
                                       [](const slot& s) { return s.what == slot::kind::sub; }));
    fail = std::clamp(of.fail_limit.value_or(n), 1, std::max(1, n));
    needed = std::max(1, of.success_limit.value_or(1));
    early = of.success_limit.has_value();
  }

  bool row(int successes, int failures) const { return successes >= needed && failures < fail; }

  /// After how many of the endings, in this order, the call is decided; nothing: not yet.
  std::optional<std::size_t> decided_after(const endings& in_order) const {
    endings seen;
    for (std::size_t i = 0; i < in_order.size(); ++i) {
      seen.push_back(in_order[i]);
      const int left = n - static_cast<int>(seen.size());
      const bool enough = early && row(successes_in(seen), failures_in(seen));
      if (enough || failures_in(seen) >= fail || successes_in(seen) + left < needed || left == 0)
        return i + 1;
    }
    return std::nullopt;
  }
};

int refusal(const node& of) {
  if (of.slots.empty()) return 1;
  for (const slot& each : of.slots)
    if (each.what == slot::kind::bad) return 1003;
  const limits bounds(of);
  if (bounds.n == 0) return 125;
  return bounds.needed > bounds.n ? 22 : 0;
}

class player {
 public:
  explicit player(const script& of) : script_(of), calls_(of.nodes.size()) {}

  std::vector<std::optional<ending>> play() {
    start(0);
    for (const event& each : script_.events) {
      const bool alive = calls_[each.node].started && !calls_[each.node].end;
      if (!alive) continue;
      if (each.what == event::kind::ends) {
        end(each.node, script_.nodes[each.node].script);
      } else if (each.why == cause::deadline) {
        end(each.node, expire(each.node));
      } else {
        stop(each.node, each.why, 125);
        tell_parent(each.node);
      }
    }
    std::vector<std::optional<ending>> all;
    for (const call& each : calls_) all.push_back(each.end);
    return all;
  }

 private:
  struct call {
    bool started = false;
    bool launching = false;
    std::optional<ending> end{};
    std::vector<std::size_t> arrived{};  // slots whose sub calls ended by themselves, in that order
  };

  // A call's sub calls are all launched before any of them is looked at.
  void start(std::size_t i) {
    const node& own = script_.nodes[i];
    calls_[i].started = true;
    if (own.is_leaf) return;
    if (const int code = refusal(own)) {
      end(i, {.code = code});
      return;
    }
    calls_[i].launching = true;
    for (const slot& each : own.slots)
      if (each.what == slot::kind::sub) start(each.node);
    calls_[i].launching = false;
    look(i);
  }

  void end(std::size_t i, const ending& how) {
    calls_[i].end = how;
    tell_parent(i);
  }

  void tell_parent(std::size_t i) {
    if (i == 0) return;
    const node& own = script_.nodes[i];
    call& parent = calls_[own.parent];
    parent.arrived.push_back(own.slot_of_parent);
    if (!parent.launching) look(own.parent);
  }

  endings arrivals(std::size_t i) const {
    endings all;
    for (const std::size_t each : calls_[i].arrived)
      all.push_back(*calls_[script_.nodes[i].slots[each].node].end);
    return all;
  }

  void look(std::size_t i) {
    if (calls_[i].end) return;
    const limits bounds(script_.nodes[i]);
    const endings in_order = arrivals(i);
    const auto decided = bounds.decided_after(in_order);
    if (!decided) return;
    const endings until(in_order.begin(), in_order.begin() + static_cast<std::ptrdiff_t>(*decided));
    const bool ok = bounds.row(successes_in(until), failures_in(until));
    for (const slot& each : script_.nodes[i].slots) {
      if (each.what != slot::kind::sub || calls_[each.node].end) continue;
      stop(each.node, ok ? cause::success_limit : cause::fail_limit, ok ? 1006 : 125);
    }
    end(i, ok ? merged(i, in_order) : failed(in_order));
  }

  // Ends a call and all below it; `code` is for the call itself.
  void stop(std::size_t i, cause why, int code) {
    if (!calls_[i].started || calls_[i].end) return;
    for (const slot& each : script_.nodes[i].slots)
      if (each.what == slot::kind::sub) stop(each.node, why, 125);
    calls_[i].end = ending{.code = code, .why = why};
  }

  // The deadline of this call has come: what is below ends first, then it judges once, in index order.
  ending expire(std::size_t i) {
    const node& own = script_.nodes[i];
    if (own.is_leaf) return {.code = 1008, .why = cause::deadline};
    const std::size_t in_time = calls_[i].arrived.size();
    for (std::size_t s = 0; s < own.slots.size(); ++s) {
      const slot& each = own.slots[s];
      if (each.what != slot::kind::sub || calls_[each.node].end) continue;
      calls_[each.node].end = expire(each.node);
      calls_[i].arrived.push_back(s);
    }
    const limits bounds(own);
    const endings in_order = arrivals(i);
    const auto decided = static_cast<std::ptrdiff_t>(bounds.decided_after(in_order).value());
    const endings until(in_order.begin(), in_order.begin() + decided);
    if (bounds.row(successes_in(until), failures_in(until))) return merged(i, in_order);
    endings otherwise = in_order;
    for (std::size_t k = in_time; k < otherwise.size(); ++k)
      if (otherwise[k].why == cause::deadline) otherwise[k] = {};
    if (bounds.row(successes_in(otherwise), failures_in(otherwise)))
      return {.code = 1008, .why = cause::deadline};
    return failed(in_order);
  }

  ending merged(std::size_t i, const endings& arrived) const {
    const node& own = script_.nodes[i];
    const limits bounds(own);
    int successes = successes_in(arrived);
    int failures = failures_in(arrived);
    for (const slot& each : own.slots) {
      if (each.what != slot::kind::sub) continue;
      if (!succeeded(*calls_[each.node].end)) continue;
      if (each.merge == merging::give_up) return {.code = 2002};
      if (each.merge == merging::accept) continue;
      if (!bounds.row(--successes, ++failures)) return {.code = 2002};
    }
    const bool inner = std::any_of(arrived.begin(), arrived.end(), [](const ending& e) { return e.partial; });
    return {.partial = failures > 0 || inner};
  }

  static ending failed(const endings& arrived) {
    std::set<int> codes;
    bool retryable = true;
    for (const ending& each : arrived) {
      if (succeeded(each)) continue;
      retryable = retryable && each.retryable;
      if (each.code != 125 || each.from_peer) codes.insert(each.code);
    }
    const int code = codes.empty() ? 125 : codes.size() > 1 ? 1005 : *codes.begin();
    return {.code = code, .retryable = retryable};
  }

  const script& script_;
  std::vector<call> calls_;
};

}  // namespace

const char* name(cause why) {
  static constexpr std::array<const char*, cause_count> names{
      "none", "deadline", "user", "fail_limit", "success_limit", "sibling_won", "peer_gone", "shutdown"};
  return names[static_cast<std::size_t>(why)];
}

std::vector<std::optional<ending>> expected(const script& of) { return player(of).play(); }

// SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014).
std::uint64_t script_maker::next() {
  std::uint64_t z = state_ += 0x9e3779b97f4a7c15U;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
  return z ^ (z >> 31);
}

ending script_maker::leaf_ending() {
  if (chance(generosity_)) return {.partial = chance(5)};
  static constexpr ending failures[] = {
      {.code = 5001, .from_peer = true},
      {.code = 5001, .from_peer = true},
      {.code = 5002, .from_peer = true},
      {.code = -7, .from_peer = true},
      {.code = 125, .from_peer = true},  // a handler's own number, no cancellation
      {.code = 1008, .from_peer = true},
      {.code = 2001, .from_peer = true},
      {.code = 2003, .from_peer = true, .retryable = true},
      {.code = 2004, .from_peer = true, .retryable = true},
      {.code = 111, .retryable = true},
      {.code = 1014, .retryable = true},
      {.code = 112},
  };
  return failures[below(std::size(failures))];
}

std::optional<int> script_maker::limit(std::size_t n, std::size_t percent) {
  if (!chance(percent)) return std::nullopt;
  return chance(4) ? static_cast<int>(below(n + 3)) - 1
                   : static_cast<int>(1 + below(std::max<std::size_t>(n, 1)));
}

std::size_t script_maker::grow(script& into, std::size_t parent, std::size_t slot_of_parent,
                               std::size_t depth) {
  const std::size_t self = into.nodes.size();
  into.nodes.push_back({.parent = parent, .slot_of_parent = slot_of_parent, .depth = depth});
  const bool full = into.nodes.size() > 60;
  const bool leaf = depth > 0 && (depth == 6 || full || !chance(62));
  if (leaf) {
    into.nodes[self].script = leaf_ending();
    return self;
  }
  into.nodes[self].is_leaf = false;
  const std::size_t count = chance(1) ? 0 : 1 + below(4);
  std::vector<slot> slots;
  for (std::size_t i = 0; i < count; ++i) {
    slot made;
    if (chance(6)) {
      made.what = slot::kind::skip;
    } else if (chance(1)) {
      made.what = slot::kind::bad;
    } else {
      made.node = grow(into, self, i, depth + 1);
      if (chance(5)) made.merge = chance(70) ? merging::refuse : merging::give_up;
    }
    slots.push_back(made);
  }
  into.nodes[self].fail_limit = limit(count, 40);
  into.nodes[self].success_limit = limit(count, 40);
  into.nodes[self].slots = std::move(slots);
  return self;
}

void script_maker::repair_refusals(script& of) {
  std::optional<std::size_t> parent;
  std::vector<bool> never_started(of.nodes.size(), false);
  for (std::size_t i = 0; i < of.nodes.size(); ++i) {
    node& own = of.nodes[i];
    never_started[i] = i != 0 && (never_started[own.parent] ||
                                  (!of.nodes[own.parent].is_leaf && refusal(of.nodes[own.parent]) != 0));
    if (never_started[i] || own.is_leaf || refusal(own) == 0) continue;
    if (!parent) parent = own.parent;
    if (*parent == own.parent) continue;
    for (slot& each : own.slots)
      if (each.what == slot::kind::bad) each.what = slot::kind::skip;
    const int n = limits(own).n;
    if (n == 0)
      own = {.script = leaf_ending(),
             .parent = own.parent,
             .slot_of_parent = own.slot_of_parent,
             .depth = own.depth};
    if (own.success_limit && *own.success_limit > n) own.success_limit = n;
  }
}

void script_maker::add_events(script& into) {
  for (std::size_t i = 0; i < into.nodes.size(); ++i)
    if (into.nodes[i].is_leaf) into.events.push_back({event::kind::ends, i});
  for (std::size_t i = into.events.size(); i > 1; --i) std::swap(into.events[i - 1], into.events[below(i)]);
  const auto insert = [&](event added) {
    const auto at = static_cast<std::ptrdiff_t>(below(into.events.size() + 1));
    into.events.insert(into.events.begin() + at, added);
  };
  if (chance(45)) {
    static constexpr cause of_root[] = {cause::user,        cause::deadline,  cause::deadline,
                                        cause::sibling_won, cause::peer_gone, cause::shutdown};
    insert({event::kind::cancelled, 0, of_root[below(std::size(of_root))]});
  }
  for (std::size_t i = below(4); i > 0 && into.nodes.size() > 1; --i)
    insert({event::kind::cancelled, 1 + below(into.nodes.size() - 1),
            chance(50) ? cause::user : cause::deadline});
}

script script_maker::make() {
  script made;
  generosity_ = 30 + below(65);
  grow(made, 0, 0, 0);
  repair_refusals(made);
  add_events(made);
  return made;
}

script script_maker::cancelled_at(const script& of, std::size_t step, cause why) {
  script changed{of.nodes, {}};
  for (const event& each : of.events)
    if (each.what == event::kind::ends) changed.events.push_back(each);
  const auto at = static_cast<std::ptrdiff_t>(std::min(step, changed.events.size()));
  changed.events.insert(changed.events.begin() + at, {event::kind::cancelled, 0, why});
  return changed;
}

std::string describe(const std::optional<ending>& how) {
  if (!how) return "never started";
  std::ostringstream out;
  out << how->code << (how->from_peer ? " from the peer" : "") << (how->why != cause::none ? " by " : "")
      << (how->why != cause::none ? name(how->why) : "") << (how->retryable ? " retryable" : "")
      << (how->partial ? " partial" : "");
  return out.str();
}

std::string describe(const script& of) {
  std::ostringstream out;
  for (std::size_t i = 0; i < of.nodes.size(); ++i) {
    const node& own = of.nodes[i];
    out << std::string(2 * own.depth, ' ') << i << ": ";
    if (own.is_leaf) {
      out << "leaf " << describe(std::optional(own.script));
    } else {
      out << "parallel";
      if (own.fail_limit) out << " fail_limit " << *own.fail_limit;
      if (own.success_limit) out << " success_limit " << *own.success_limit;
      for (const slot& each : own.slots) {
        if (each.what == slot::kind::skip) out << " skip";
        if (each.what == slot::kind::bad) out << " bad";
        if (each.what == slot::kind::sub) out << ' ' << each.node;
        if (each.merge == merging::refuse) out << "(refused)";
        if (each.merge == merging::give_up) out << "(given up)";
      }
    }
    out << '\n';
  }
  for (const event& each : of.events) {
    if (each.what == event::kind::ends) out << each.node << " ends; ";
    if (each.what == event::kind::cancelled) out << each.node << " cancelled by " << name(each.why) << "; ";
  }
  return out.str();
}

}  // namespace call_tree
