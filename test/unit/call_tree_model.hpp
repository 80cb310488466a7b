#pragma once

/// \file
/// A model of nested parallel calls, written from the contract alone: it includes nothing of the library.
///
/// A script is a tree of calls and a list of events; expected() says how each call of the tree ends.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace call_tree {

enum class cause { none, deadline, user, fail_limit, success_limit, sibling_won, peer_gone, shutdown };
inline constexpr std::size_t cause_count = 8;

const char* name(cause why);

/// How a call ends.
struct ending {
  int code = 0;
  bool from_peer = false;
  cause why = cause::none;
  bool retryable = false;
  bool partial = false;

  bool operator==(const ending&) const = default;
};

std::string describe(const std::optional<ending>& how);

enum class merging { accept, refuse, give_up };

/// What a parallel call has on one of its channels.
struct slot {
  enum class kind { sub, skip, bad };
  kind what = kind::sub;
  std::size_t node = 0;  // of a sub call
  merging merge = merging::accept;
};

struct node {
  bool is_leaf = true;
  ending script{};  // how a leaf ends by itself
  std::optional<int> fail_limit{};
  std::optional<int> success_limit{};
  std::vector<slot> slots{};
  std::size_t parent = 0;
  std::size_t slot_of_parent = 0;
  std::size_t depth = 0;
};

struct event {
  enum class kind {
    ends,       ///< A leaf ends by itself.
    cancelled,  ///< A call is cancelled from outside. Below the root: by its user, or by a deadline of its
                ///< own.
  };
  kind what;
  std::size_t node;
  cause why = cause::none;
};

/// Node 0 is the root; a node's number is above its parent's. Every leaf ends in some event, so every call
/// does.
struct script {
  std::vector<node> nodes;
  std::vector<event> events;
};

/// How each call ends; nothing for one that is never started.
std::vector<std::optional<ending>> expected(const script& of);

/// The same seed gives the same script on every machine. Depth up to 6. Calls that are refused before
/// anything is sent have one parent, since the contract does not say in which order two that end in the same
/// instant are looked at.
class script_maker {
 public:
  explicit script_maker(std::uint64_t seed) : state_(seed) {}

  script make();
  /// The script with its cancellations replaced by one of the root before event `step`.
  static script cancelled_at(const script& of, std::size_t step, cause why);

 private:
  std::uint64_t next();
  std::size_t below(std::size_t limit) { return static_cast<std::size_t>(next() % limit); }
  bool chance(std::size_t percent) { return below(100) < percent; }
  std::size_t grow(script& into, std::size_t parent, std::size_t slot, std::size_t depth);
  std::optional<int> limit(std::size_t n, std::size_t percent);
  ending leaf_ending();
  void repair_refusals(script& of);
  void add_events(script& into);

  std::uint64_t state_;
  std::size_t generosity_ = 0;  // in percent of leaves that succeed
};

/// The script as text, for the report of a difference.
std::string describe(const script& of);

}  // namespace call_tree
