// Algorithm 1 with several drafters on the virtual clock, against a recursion over the text alone,
// against the chain that decodes, and against what the DSI paper proves.
#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <stdexcept>
#include <vector>

#include "core/simulate.h"
#include "core/simulate_tree.h"
#include "support/effort.h"

using namespace dsi;
using namespace dsi::test;

namespace {

using Random = std::mt19937_64;

int pick(Random &random, std::uint64_t n) { return static_cast<int>(random() % n); }

Latency constant(Nanos time) { return {time, time}; }

std::vector<std::vector<bool>> random_rights(Random &random, std::size_t drafters,
                                             std::int64_t tokens) {
  std::vector<std::vector<bool>> rights(drafters);
  for (auto &right : rights) {
    const int percent = pick(random, 101);
    for (std::int64_t i = 0; i < tokens; ++i)
      right.push_back(pick(random, 100) < percent);
  }
  return rights;
}

TreeSimulation random_tree(Random &random) {
  TreeSimulation made;
  made.tokens = 1 + pick(random, 30);
  made.prompt_tokens = 1 + pick(random, 4);
  made.seed = random();
  made.target = constant(200 + pick(random, 300));
  std::vector<Nanos> times;
  for (int j = 1 + pick(random, 3); j > 0; --j)
    times.push_back(made.target.tpot / 6 + pick(random, 500));
  std::sort(times.begin(), times.end());
  for (const Nanos time : times)
    made.drafters.push_back(constant(time));
  made.right = random_rights(random, made.drafters.size(), made.tokens);
  made.run_ahead = pick(random, 3) == 0 ? 1 + pick(random, 8) : 64;
  made.max_nodes = 1'000'000;
  return made;
}

void add_ttft_and_jitter(Random &random, TreeSimulation &tree) {
  const bool jitters = pick(random, 2) == 0;
  const auto change = [&](Latency &latency) {
    latency.ttft = latency.tpot + (pick(random, 2) == 0 ? pick(random, 1000) : 0);
    latency.jitter = jitters ? 0.01 * pick(random, 60) : 0.0;
  };
  change(tree.target);
  std::for_each(tree.drafters.begin(), tree.drafters.end(), change);
}

// What `drafter` alone makes of the same sequences.
TreeSimulation alone(const TreeSimulation &tree, std::size_t drafter) {
  TreeSimulation made = tree;
  made.drafters = {tree.drafters[drafter]};
  made.right = {(*tree.right)[drafter]};
  return made;
}

// When each token is committed, from the text alone. Node i is the path with i new tokens that are
// the target's; only these can delay a commit. It exists once a drafter that is right there has
// said its last token, or the target has. The jitter is that of simulate_tree, seen from outside.
class Recursion {
public:
  explicit Recursion(const TreeSimulation &tree) : tree_(tree) {}

  Nanos total() {
    std::vector<Nanos> committed{0}; // [k]: when k tokens are
    Nanos made = 0;
    for (std::int64_t i = 0; i < tree_.tokens; ++i) {
      const Nanos verdict = end(-1, i, made);
      committed.push_back(std::max(verdict, committed.back()));
      if (i == tree_.tokens - 1)
        break;
      const std::int64_t needed = std::max<std::int64_t>(0, i - tree_.run_ahead + 1);
      const Nanos may_go_on = std::max(made, committed[static_cast<std::size_t>(needed)]);
      Nanos next = std::max(verdict, may_go_on);
      for (std::size_t j = 0; j < tree_.drafters.size() && i < tree_.tokens - 1; ++j) {
        if ((*tree_.right)[j][static_cast<std::size_t>(i)])
          next = std::min(next, end(static_cast<int>(j), i, may_go_on));
      }
      made = next;
    }
    return committed.back();
  }

private:
  Nanos end(int drafter, std::int64_t node, Nanos due) const {
    const Latency &latency =
        drafter < 0 ? tree_.target : tree_.drafters[static_cast<std::size_t>(drafter)];
    const std::uint64_t key =
        mix(tree_.seed) ^ mix(mix(static_cast<std::uint64_t>(drafter + 1)) +
                              static_cast<std::uint64_t>(tree_.prompt_tokens + node));
    const Nanos prefilled = node == 0 ? 0 : latency.ttft - latency.tpot;
    return std::max(due, prefilled) + forward_ns(latency, node == 0, 0, key);
  }

  const TreeSimulation &tree_;
};

std::vector<Token> text_of(const TreeSimulation &tree) {
  std::vector<Token> text;
  const SyntheticIds ids(tree.seed, 0.0);
  for (std::int64_t i = 0; i < tree.tokens; ++i)
    text.push_back(ids.target(tree.prompt_tokens + i));
  return text;
}

} // namespace

TEST_CASE("tree: time and text are those of the recursion over the true path") {
  Random random(31);
  int ahead_matters = 0;
  for (int i = 0; i < effort(1500); ++i) {
    CAPTURE(i);
    TreeSimulation tree = random_tree(random);
    if (i % 2 == 1)
      add_ttft_and_jitter(random, tree);
    for (Latency &drafter : tree.drafters)
      drafter.stoppable = pick(random, 2) == 0;
    tree.target.stoppable = pick(random, 2) == 0; // servers are unlimited: costs no time
    const TreeResult result = simulate_tree(tree);
    REQUIRE(result.total == Recursion(tree).total());
    REQUIRE(result.tokens == text_of(tree));
    tree.run_ahead = 64;
    ahead_matters += Recursion(tree).total() < result.total ? 1 : 0;
  }
  CHECK(ahead_matters > 0);
}

TEST_CASE("tree: with one drafter it is the chain that decodes, to the nanosecond") {
  Random random(32);
  for (int i = 0; i < effort(2000); ++i) {
    CAPTURE(i);
    TreeSimulation tree = random_tree(random);
    tree = alone(tree, 0);
    if (pick(random, 3) == 0) {
      tree.right.reset();
      tree.acceptance = {0.01 * pick(random, 101)};
    }
    // Else drafts may come too late: a chain's one drafter ends them before it begins the next.
    if (pick(random, 2) == 0 && tree.drafters[0].tpot < tree.target.tpot) {
      tree.run_ahead = 64;
      tree.target.ttft += pick(random, 2000);
      tree.drafters[0].ttft +=
          pick(random, static_cast<std::uint64_t>(tree.target.ttft - tree.drafters[0].ttft) + 1);
    }
    Simulation chain;
    chain.session.policy.lookahead = 1;
    chain.session.policy.run_ahead = tree.run_ahead;
    chain.session.policy.prefill = true;
    chain.session.max_new_tokens = tree.tokens;
    chain.sp = 64; // enough
    chain.target = tree.target;
    chain.drafter = tree.drafters[0];
    chain.prompt_tokens = tree.prompt_tokens;
    chain.seed = tree.seed;
    if (tree.right.has_value())
      chain.right = tree.right->front();
    else
      chain.acceptance = tree.acceptance.front();
    const TreeResult one = simulate_tree(tree);
    const SimulationResult other = simulate(chain);
    REQUIRE(one.tokens == other.tokens);
    REQUIRE(one.total == other.total);
    REQUIRE(one.first_token == other.first_token);
  }
}

TEST_CASE("tree: never slower than any drafter alone, nor than non-SI, on the same sequences") {
  Random random(33);
  int faster = 0;
  for (int i = 0; i < effort(2000); ++i) {
    CAPTURE(i);
    TreeSimulation tree = random_tree(random);
    if (i % 2 == 1)
      add_ttft_and_jitter(random, tree);
    for (Latency &drafter : tree.drafters)
      drafter.jitter =
          0.0; // depends on the drafter's index, which is another one where it is alone
    const TreeResult together = simulate_tree(tree);
    Nanos best = std::numeric_limits<Nanos>::max();
    for (std::size_t j = 0; j < tree.drafters.size(); ++j) {
      const TreeResult single = simulate_tree(alone(tree, j));
      REQUIRE(single.tokens == together.tokens);
      REQUIRE(together.total <= single.total);
      best = std::min(best, single.total);
    }
    faster += together.total < best ? 1 : 0;
    TreeSimulation plain = alone(tree, 0);
    plain.right->front().assign(static_cast<std::size_t>(tree.tokens), false);
    const TreeResult non_si = simulate_tree(plain);
    REQUIRE(non_si.metrics.own == tree.tokens);
    REQUIRE(together.total <= non_si.total);
    if (tree.target.jitter == 0.0)
      REQUIRE(non_si.total == tree.target.ttft + (tree.tokens - 1) * tree.target.tpot);
  }
  CHECK(faster > effort(2000) / 10);
}

TEST_CASE("tree: one more drafter never costs time, also where everything jitters") {
  Random random(36);
  for (int i = 0; i < effort(600); ++i) {
    CAPTURE(i);
    TreeSimulation tree = random_tree(random);
    add_ttft_and_jitter(random, tree);
    const Nanos with = simulate_tree(tree).total;
    if (tree.drafters.size() == 1)
      continue;
    tree.drafters.pop_back();
    tree.right->pop_back();
    REQUIRE(with <= simulate_tree(tree).total);
  }
}

TEST_CASE("tree: however few nodes there may be, never slower than the first drafter alone") {
  Random random(34);
  int crowded = 0, behind_the_second = 0;
  for (int i = 0; i < effort(2000); ++i) {
    CAPTURE(i);
    TreeSimulation tree = random_tree(random);
    tree.max_nodes = tree.run_ahead + 1 + pick(random, 60);
    tree.target.stoppable = tree.drafters[0].stoppable = pick(random, 2) == 0;
    const TreeResult together = simulate_tree(tree);
    REQUIRE(together.metrics.peak_nodes <= tree.max_nodes);
    REQUIRE(together.tokens == text_of(tree));
    REQUIRE(together.total <= simulate_tree(alone(tree, 0)).total);
    if (tree.target.stoppable)
      REQUIRE(together.peak_target_servers <= tree.max_nodes);
    crowded += together.metrics.crowded ? 1 : 0;
    if (tree.drafters.size() > 1)
      behind_the_second += together.total > simulate_tree(alone(tree, 1)).total ? 1 : 0;
  }
  CHECK(crowded > 0);
  CHECK(behind_the_second > 0); // which is why the promise is about the first one
}

TEST_CASE("tree: all wrong takes what non-SI takes, all right hides every verify but the last") {
  TreeSimulation tree;
  tree.tokens = 40;
  tree.target = constant(1000);
  tree.drafters = {constant(140), constant(300)};
  tree.acceptance = {0.0, 0.0};
  const TreeResult worst = simulate_tree(tree);
  CHECK(worst.total == 40 * 1000);
  CHECK(worst.metrics.own == 40);
  CHECK(worst.target_busy <= worst.peak_target_servers * worst.total);
  tree.acceptance = {1.0, 1.0};
  const TreeResult best = simulate_tree(tree);
  CHECK(best.total == 39 * 140 + 1000);
  CHECK(best.metrics.drafters[0].accepted == 39);
  CHECK(best.metrics.drafters[1].accepted == 0);
  CHECK(best.metrics.verifies == 40);
  CHECK(best.peak_target_servers == 8); // ceil(T / d): a verify starts as another one ends
  tree.acceptance = {0.0, 1.0};
  CHECK(simulate_tree(tree).total == 39 * 300 + 1000);
}

TEST_CASE("tree: in a tie of two drafters the earlier one's draft lives") {
  TreeSimulation tree;
  tree.tokens = 20;
  tree.target = constant(1000);
  tree.drafters = {constant(200), constant(200)};
  tree.acceptance = {1.0, 1.0};
  const TreeResult result = simulate_tree(tree);
  CHECK(result.metrics.drafters[0].accepted == 19);
  CHECK(result.metrics.drafters[1].accepted == 0);
}

TEST_CASE("tree: wrong drafts of two drafters differ, right ones are one node") {
  TreeSimulation tree;
  tree.tokens = 20;
  tree.target = constant(1000);
  tree.drafters = {constant(400), constant(400)};
  tree.acceptance = {0.0, 0.0};
  CHECK(simulate_tree(tree).metrics.peak_nodes == 1 + 2 + 4);
  tree.acceptance = {1.0, 1.0};
  CHECK(simulate_tree(tree).metrics.peak_nodes == 1 + 1 + 1);
}

TEST_CASE("tree: room that is given back is used again, however long the text") {
  TreeSimulation tree;
  tree.target = constant(1000);
  tree.drafters = {constant(150), constant(250)};
  tree.acceptance = {0.5, 0.6};
  tree.run_ahead = 8;
  tree.max_nodes = 40;
  const auto drafts_per_token = [&](std::int64_t tokens) {
    tree.tokens = tokens;
    const TreeResult result = simulate_tree(tree);
    CHECK(result.metrics.crowded);
    return static_cast<double>(result.metrics.drafters[1].drafts) / static_cast<double>(tokens);
  };
  CHECK(drafts_per_token(2000) > 0.9 * drafts_per_token(200));
}

TEST_CASE("tree: spans of one server do not overlap, and their time is the servers' busy time") {
  Random random(35);
  for (int i = 0; i < effort(200); ++i) {
    CAPTURE(i);
    TreeSimulation tree = random_tree(random);
    add_ttft_and_jitter(random, tree);
    tree.target.stoppable = pick(random, 2) == 0;
    tree.record = true;
    tree.max_nodes = 500;
    const TreeResult result = simulate_tree(tree);
    Nanos target_busy = 0;
    std::vector<Nanos> drafter_busy(tree.drafters.size());
    std::map<std::pair<int, int>, std::vector<TreeSpan>> by_server;
    std::set<int> target_servers;
    for (const TreeSpan &span : result.spans) {
      REQUIRE(span.start <= span.end);
      if (span.drafter < 0)
        target_servers.insert(span.server);
      (span.drafter < 0 ? target_busy : drafter_busy[static_cast<std::size_t>(span.drafter)]) +=
          span.end - span.start;
      by_server[{span.drafter, span.server}].push_back(span);
      REQUIRE((span.fate != Fate::kStopped || span.drafter >= 0 || tree.target.stoppable));
    }
    CHECK(target_busy == result.target_busy);
    CHECK(drafter_busy == result.drafter_busy);
    CHECK(static_cast<int>(target_servers.size()) == result.peak_target_servers);
    for (const auto &[server, spans] : by_server) {
      for (std::size_t k = 1; k < spans.size(); ++k)
        REQUIRE((spans[k - 1].end <= spans[k].start || spans[k - 1].start == spans[k - 1].end));
    }
  }
}

TEST_CASE("tree: the sequences met are reported, and lead to the same run") {
  TreeSimulation tree;
  tree.tokens = 60;
  tree.target = constant(1000);
  tree.drafters = {constant(140), constant(300)};
  tree.acceptance = {0.5, 0.8};
  tree.seed = 3;
  const TreeResult drawn = simulate_tree(tree);
  REQUIRE(drawn.right.size() == 2);
  bool only_first = false, only_second = false; // or one drafter would be of no use
  for (std::size_t i = 0; i < 59; ++i) {
    only_first |= drawn.right[0][i] && !drawn.right[1][i];
    only_second |= !drawn.right[0][i] && drawn.right[1][i];
  }
  CHECK(only_first);
  CHECK(only_second);
  CHECK(std::count(drawn.right[0].begin(), drawn.right[0].end(), true) < 45);
  CHECK(std::count(drawn.right[1].begin(), drawn.right[1].end(), true) > 35);
  tree.right = drawn.right;
  CHECK(simulate_tree(tree).total == drawn.total);
}

TEST_CASE("tree: what cannot be simulated is refused by name") {
  TreeSimulation good;
  good.target = constant(10);
  good.drafters = {constant(1)};
  good.acceptance = {0.5};
  const auto refused = [&](const char *name, const auto &change) {
    TreeSimulation bad = good;
    change(bad);
    CHECK_THROWS_WITH_AS(simulate_tree(bad), doctest::Contains(name), std::invalid_argument);
  };
  CHECK_NOTHROW(simulate_tree(good));
  refused("drafters", [](TreeSimulation &x) { x.drafters.clear(); });
  refused("acceptance", [](TreeSimulation &x) { x.acceptance = {0.5, 0.5}; });
  refused("acceptance", [](TreeSimulation &x) { x.acceptance = {1.5}; });
  refused("right", [](TreeSimulation &x) { x.right.emplace(); });
  refused("growth", [](TreeSimulation &x) { x.target.growth = 0.1; });
  refused("target", [](TreeSimulation &x) { x.target.tpot = 0; });
  refused("drafters", [](TreeSimulation &x) { x.drafters[0].jitter = 1.0; });
  refused("prompt_tokens", [](TreeSimulation &x) { x.prompt_tokens = 0; });
  refused("max_new_tokens", [](TreeSimulation &x) { x.tokens = 0; });
  refused("run_ahead", [](TreeSimulation &x) { x.run_ahead = 0; });
  refused("max_nodes", [](TreeSimulation &x) { x.max_nodes = 64; });
}
