#include <braid/cancellation.hpp>

#include <boost/asio/cancellation_type.hpp>
#include <catch2/catch.hpp>

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace {

using braid::cancel_cause;
using braid::cancel_node;

constexpr cancel_cause all_causes[] = {
    cancel_cause::deadline,    cancel_cause::user,      cancel_cause::fail_limit, cancel_cause::success_limit,
    cancel_cause::sibling_won, cancel_cause::peer_gone, cancel_cause::shutdown};

struct reached {
  std::string name;
  cancel_cause cause;
  bool operator==(const reached&) const = default;
};
using log = std::vector<reached>;

class test_node final : public cancel_node {
 public:
  test_node(log& seen, std::string name) : seen_(seen), name_(std::move(name)) {}
  test_node(log& seen, std::string name, cancel_node& parent) : test_node(seen, std::move(name)) {
    attach(parent);
  }

  using cancel_node::reset_cause;

  std::function<void()> then;

 private:
  void on_cancel(cancel_cause cause) noexcept override {
    seen_.push_back({name_, cause});
    // Moved to the stack first, because it may destroy this node.
    if (const auto action = std::exchange(then, nullptr)) action();
  }

  log& seen_;
  std::string name_;
};

std::vector<std::string> names(const log& seen) {
  std::vector<std::string> all;
  for (const auto& one : seen) all.push_back(one.name);
  return all;
}

TEST_CASE("the causes have names of their own", "[cancellation]") {
  std::set<std::string_view> seen{braid::to_string(cancel_cause::none)};
  for (const auto cause : all_causes) seen.insert(braid::to_string(cause));
  CHECK(seen.size() == 8);
  CHECK(braid::to_string(cancel_cause::peer_gone) == "peer_gone");
  CHECK(braid::to_string(static_cast<cancel_cause>(99)) == "unknown");
}

TEST_CASE("a cancel reaches the nodes below in the order of attachment, then the node itself",
          "[cancellation]") {
  log seen;
  test_node root{seen, "root"};
  test_node a{seen, "a", root};
  test_node b{seen, "b", root};
  test_node b1{seen, "b1", b};
  test_node b2{seen, "b2", b};
  test_node a1{seen, "a1", a};
  test_node c{seen, "c", root};
  CHECK(root.cancel(cancel_cause::user));
  CHECK(names(seen) == std::vector<std::string>{"a1", "a", "b1", "b2", "b", "c", "root"});
}

TEST_CASE("a cause is copied unchanged to every node below, whatever it is", "[cancellation]") {
  for (const auto cause : all_causes) {
    log seen;
    test_node root{seen, "root"};
    test_node mid{seen, "mid", root};
    test_node leaf{seen, "leaf", mid};
    CHECK(root.cancel(cause));
    CHECK(seen == log{{"leaf", cause}, {"mid", cause}, {"root", cause}});
    for (const auto* node : {&root, &mid, &leaf}) {
      CHECK(node->cancelled());
      CHECK(node->cause() == cause);
    }
  }
}

TEST_CASE("a cancel does not reach the nodes above and beside", "[cancellation]") {
  log seen;
  test_node root{seen, "root"};
  test_node a{seen, "a", root};
  test_node b{seen, "b", root};
  CHECK(a.cancel(cancel_cause::user));
  CHECK(names(seen) == std::vector<std::string>{"a"});
  CHECK_FALSE(root.cancelled());
  CHECK_FALSE(b.cancelled());
}

TEST_CASE("the first cause wins, at every depth", "[cancellation]") {
  log seen;
  test_node root{seen, "root"};
  test_node mid{seen, "mid", root};
  test_node leaf{seen, "leaf", mid};
  CHECK(mid.cancel(cancel_cause::fail_limit));
  CHECK(root.cancel(cancel_cause::deadline));
  CHECK_FALSE(root.cancel(cancel_cause::user));
  CHECK_FALSE(mid.cancel(cancel_cause::user));
  CHECK(seen == log{{"leaf", cancel_cause::fail_limit},
                    {"mid", cancel_cause::fail_limit},
                    {"root", cancel_cause::deadline}});
}

TEST_CASE("a cancel for no cause does nothing", "[cancellation]") {
  log seen;
  test_node root{seen, "root"};
  CHECK_FALSE(root.cancel(cancel_cause::none));
  CHECK_FALSE(root.cancelled());
  CHECK(seen.empty());
}

TEST_CASE("a node attached below a cancelled one is cancelled at once, with all below it", "[cancellation]") {
  log seen;
  test_node root{seen, "root"};
  root.cancel(cancel_cause::shutdown);
  seen.clear();
  test_node mid{seen, "mid"};
  test_node leaf{seen, "leaf", mid};
  CHECK(seen.empty());
  mid.attach(root);
  CHECK(seen == log{{"leaf", cancel_cause::shutdown}, {"mid", cancel_cause::shutdown}});
  CHECK_FALSE(root.cancel(cancel_cause::user));
  CHECK(seen.size() == 2);
}

TEST_CASE("a node that was cancelled before it is attached keeps its cause", "[cancellation]") {
  log seen;
  test_node root{seen, "root"};
  test_node node{seen, "node"};
  node.cancel(cancel_cause::user);
  root.cancel(cancel_cause::deadline);
  node.attach(root);
  CHECK(node.cause() == cancel_cause::user);
  CHECK(names(seen) == std::vector<std::string>{"node", "root"});
}

TEST_CASE("a detached node is a root with its own below it", "[cancellation]") {
  log seen;
  test_node root{seen, "root"};
  test_node mid{seen, "mid", root};
  test_node leaf{seen, "leaf", mid};
  CHECK_FALSE(mid.is_root());
  mid.detach();
  CHECK(mid.is_root());
  CHECK_FALSE(leaf.is_root());
  root.cancel(cancel_cause::user);
  CHECK(names(seen) == std::vector<std::string>{"root"});
  mid.cancel(cancel_cause::shutdown);
  CHECK(names(seen) == std::vector<std::string>{"root", "leaf", "mid"});
  mid.detach();
}

TEST_CASE("attaching moves a node from where it was", "[cancellation]") {
  log seen;
  test_node one{seen, "one"};
  test_node two{seen, "two"};
  test_node node{seen, "node", one};
  node.attach(two);
  one.cancel(cancel_cause::user);
  CHECK_FALSE(node.cancelled());
  two.cancel(cancel_cause::deadline);
  CHECK(node.cause() == cancel_cause::deadline);
}

TEST_CASE("detached children are roots", "[cancellation]") {
  log seen;
  test_node root{seen, "root"};
  test_node a{seen, "a", root};
  test_node b{seen, "b", root};
  test_node b1{seen, "b1", b};
  root.detach_children();
  CHECK(a.is_root());
  CHECK(b.is_root());
  CHECK_FALSE(b1.is_root());
  root.cancel(cancel_cause::user);
  CHECK(names(seen) == std::vector<std::string>{"root"});
}

TEST_CASE("a destroyed node leaves the tree and the nodes below it become roots", "[cancellation]") {
  log seen;
  test_node root{seen, "root"};
  auto mid = std::make_unique<test_node>(seen, "mid", root);
  test_node leaf{seen, "leaf", *mid};
  mid.reset();
  CHECK(leaf.is_root());
  root.cancel(cancel_cause::user);
  CHECK(names(seen) == std::vector<std::string>{"root"});
  CHECK_FALSE(leaf.cancelled());
}

TEST_CASE("a node may be destroyed inside its own cancel, as a root and below one", "[cancellation]") {
  log seen;
  auto root = std::make_unique<test_node>(seen, "root");
  auto a = std::make_unique<test_node>(seen, "a", *root);
  auto b = std::make_unique<test_node>(seen, "b", *root);
  root->then = [&] { root.reset(); };
  a->then = [&] { a.reset(); };
  b->then = [&] { b.reset(); };
  CHECK(root->cancel(cancel_cause::user));
  CHECK(names(seen) == std::vector<std::string>{"a", "b", "root"});
  CHECK_FALSE(root);
  CHECK_FALSE(a);
  CHECK_FALSE(b);
}

TEST_CASE("siblings may be destroyed during the walk, before and after the one being cancelled",
          "[cancellation]") {
  for (std::size_t killer = 0; killer < 5; ++killer) {
    for (std::size_t victim = 0; victim < 5; ++victim) {
      log seen;
      test_node root{seen, "root"};
      std::vector<std::unique_ptr<test_node>> nodes;
      for (int i = 0; i < 5; ++i) nodes.push_back(std::make_unique<test_node>(seen, std::to_string(i), root));
      nodes[killer]->then = [&] { nodes[victim].reset(); };
      root.cancel(cancel_cause::user);
      std::vector<std::string> expected;
      for (std::size_t i = 0; i < 5; ++i) {
        if (i != victim || i <= killer) expected.push_back(std::to_string(i));
      }
      expected.emplace_back("root");
      CHECK(names(seen) == expected);
    }
  }
}

TEST_CASE("a whole subtree may be destroyed during the walk", "[cancellation]") {
  log seen;
  test_node root{seen, "root"};
  test_node first{seen, "first", root};
  auto mid = std::make_unique<test_node>(seen, "mid", root);
  auto leaf = std::make_unique<test_node>(seen, "leaf", *mid);
  test_node last{seen, "last", root};
  first.then = [&] {
    leaf.reset();
    mid.reset();
  };
  root.cancel(cancel_cause::user);
  CHECK(names(seen) == std::vector<std::string>{"first", "last", "root"});
}

TEST_CASE("a node attached during the walk is reached once", "[cancellation]") {
  log seen;
  test_node root{seen, "root"};
  test_node a{seen, "a", root};
  test_node b{seen, "b", root};
  std::unique_ptr<test_node> late;
  std::unique_ptr<test_node> last;
  a.then = [&] { late = std::make_unique<test_node>(seen, "late", root); };
  root.then = [&] { last = std::make_unique<test_node>(seen, "last", root); };
  root.cancel(cancel_cause::user);
  CHECK(names(seen) == std::vector<std::string>{"a", "late", "b", "root", "last"});
}

TEST_CASE("a node detached during the walk, alone or with its siblings, is not reached any more",
          "[cancellation]") {
  log seen;
  test_node root{seen, "root"};
  test_node a{seen, "a", root};
  test_node b{seen, "b", root};
  test_node c{seen, "c", root};
  test_node d{seen, "d", root};
  a.then = [&] { b.detach(); };
  c.then = [&] { root.detach_children(); };
  root.cancel(cancel_cause::user);
  CHECK(names(seen) == std::vector<std::string>{"a", "c", "root"});
  CHECK_FALSE(b.cancelled());
  CHECK_FALSE(d.cancelled());
  CHECK(d.is_root());
}

TEST_CASE("a cancel from inside a cancel has no effect on what is being cancelled", "[cancellation]") {
  log seen;
  test_node root{seen, "root"};
  test_node a{seen, "a", root};
  test_node b{seen, "b", root};
  bool again = true;
  a.then = [&] { again = root.cancel(cancel_cause::shutdown); };
  root.cancel(cancel_cause::deadline);
  CHECK_FALSE(again);
  CHECK(seen ==
        log{{"a", cancel_cause::deadline}, {"b", cancel_cause::deadline}, {"root", cancel_cause::deadline}});
}

TEST_CASE("a sibling may be cancelled with another cause during the walk, which it keeps", "[cancellation]") {
  log seen;
  test_node root{seen, "root"};
  test_node a{seen, "a", root};
  test_node b{seen, "b", root};
  a.then = [&] { b.cancel(cancel_cause::sibling_won); };
  root.cancel(cancel_cause::user);
  CHECK(seen ==
        log{{"a", cancel_cause::user}, {"b", cancel_cause::sibling_won}, {"root", cancel_cause::user}});
}

TEST_CASE("the nodes below stay below after a cancel, for those attached to them later", "[cancellation]") {
  log seen;
  test_node root{seen, "root"};
  test_node a{seen, "a", root};
  test_node b{seen, "b", root};
  root.cancel(cancel_cause::user);
  CHECK_FALSE(a.is_root());
  CHECK_FALSE(b.is_root());
  a.reset_cause();
  b.reset_cause();
  root.reset_cause();
  seen.clear();
  root.cancel(cancel_cause::deadline);
  CHECK(seen ==
        log{{"a", cancel_cause::deadline}, {"b", cancel_cause::deadline}, {"root", cancel_cause::deadline}});
}

TEST_CASE("a chain of 1,000 nodes is cancelled from the bottom up", "[cancellation]") {
  log seen;
  std::vector<std::unique_ptr<test_node>> chain;
  for (int i = 0; i < 1000; ++i) {
    chain.push_back(std::make_unique<test_node>(seen, std::to_string(i)));
    if (i > 0) chain.back()->attach(*chain[chain.size() - 2]);
  }
  chain.front()->cancel(cancel_cause::peer_gone);
  REQUIRE(seen.size() == 1000);
  CHECK(seen.front() == reached{"999", cancel_cause::peer_gone});
  CHECK(seen.back() == reached{"0", cancel_cause::peer_gone});
}

TEST_CASE("a signal node emits terminal once to what is connected to its slot", "[cancellation]") {
  log seen;
  test_node root{seen, "root"};
  braid::signal_node node;
  node.attach(root);
  std::vector<boost::asio::cancellation_type_t> emitted;
  node.slot().assign([&](boost::asio::cancellation_type_t type) { emitted.push_back(type); });
  root.cancel(cancel_cause::deadline);
  root.cancel(cancel_cause::user);
  CHECK(emitted == std::vector<boost::asio::cancellation_type_t>{boost::asio::cancellation_type::terminal});
  CHECK(node.cause() == cancel_cause::deadline);
}

TEST_CASE("a signal node without anything connected may be cancelled, and asked to emit again",
          "[cancellation]") {
  braid::signal_node node;
  CHECK(node.cancel(cancel_cause::user));
  int emitted = 0;
  node.slot().assign([&](boost::asio::cancellation_type_t) { ++emitted; });
  CHECK(emitted == 0);
  node.emit();
  CHECK(emitted == 1);
}

}  // namespace
