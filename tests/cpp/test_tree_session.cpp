// Algorithm 1 by hand: what a TreeSession offers, keeps and lets go.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <stdexcept>
#include <vector>

#include "core/tree_session.h"

using namespace dsi;

namespace {

using Path = std::vector<Token>;

// Takes all that is due and knows it by what it was asked for.
class Tree {
public:
  explicit Tree(const TreeConfig &config) : session(config, Path{0}) { take(); }

  void take() {
    while (const auto task = session.try_take_verify())
      keep(*task);
    while (const auto task = session.try_take_draft())
      keep(*task);
  }
  bool has(int drafter, const Path &path) const { return jobs.contains({drafter, path}); }
  void say(int drafter, const Path &path, Token token) {
    const auto found = jobs.find({drafter, path});
    REQUIRE(found != jobs.end());
    const JobId job = found->second;
    jobs.erase(found);
    if (drafter < 0)
      session.judged(job, JudgedRow{token, 0.0F, {}});
    else
      session.drafted(job, token);
    const std::vector<JobId> ended = session.take_stale();
    std::erase_if(jobs, [&](const auto &entry) {
      const bool stale = std::find(ended.begin(), ended.end(), entry.second) != ended.end();
      if (stale)
        session.stopped(entry.second);
      return stale;
    });
    take();
    for (const JudgedRow &row : session.take_emitted())
      text.push_back(row.token);
  }

  TreeSession session;
  std::map<std::pair<int, Path>, JobId> jobs;
  Path text;

private:
  void keep(const TreeTask &task) {
    const auto path = session.path_of(task.job);
    REQUIRE(static_cast<Position>(path.size()) == task.position);
    REQUIRE(jobs.emplace(std::pair{task.drafter, Path(path.begin(), path.end())}, task.job).second);
  }
};

TreeConfig config(int drafters, std::int64_t tokens, int run_ahead = 64,
                  std::int64_t max_nodes = 4096) {
  return {drafters, tokens, run_ahead, max_nodes};
}

} // namespace

TEST_CASE("tree: every model continues every path, and equal siblings are one node") {
  Tree tree(config(2, 10));
  CHECK(tree.jobs.size() == 3);
  tree.say(0, {0}, 7);
  CHECK(tree.has(-1, {0, 7}));
  CHECK(tree.has(0, {0, 7}));
  CHECK(tree.has(1, {0, 7}));
  tree.say(0, {0, 7}, 8);
  tree.say(1, {0}, 7); // what is there already goes on as it was
  CHECK(tree.session.live_nodes() == 3);
  tree.say(-1, {0}, 7);
  CHECK(tree.text == Path{7});
  CHECK(tree.session.metrics().drafters[0].accepted == 1);
  CHECK(tree.session.metrics().drafters[1].accepted == 0);
  CHECK(tree.has(-1, {0, 7, 8}));
}

TEST_CASE("tree: the target's token keeps one child and ends the others with all behind them") {
  Tree tree(config(2, 10));
  tree.say(0, {0}, 7);
  tree.say(0, {0, 7}, 8);
  tree.say(1, {0}, 5);
  tree.say(1, {0, 5}, 6);
  CHECK(tree.session.live_nodes() == 5);
  tree.say(-1, {0}, 5);
  CHECK(tree.text == Path{5});
  CHECK(tree.session.live_nodes() == 2); // {0,5} and {0,5,6}
  CHECK(tree.session.metrics().drafters[1].accepted == 1);
  CHECK(!tree.has(-1, {0, 7}));
  CHECK(!tree.has(-1, {0, 7, 8}));
  CHECK(tree.has(0, {0, 5}));
  CHECK(tree.session.metrics().stopped_verifies == 2);
  CHECK(tree.session.metrics().drafters[0].stopped == 1); // behind {0,7,8}
  CHECK(tree.session.metrics().drafters[1].stopped == 2); // and behind {0,7}
}

TEST_CASE("tree: without a match the target's token is the next node, and late drafts are let go") {
  Tree tree(config(2, 10));
  tree.say(0, {0}, 7);
  tree.say(-1, {0}, 3);
  CHECK(tree.text == Path{3});
  CHECK(tree.session.metrics().own == 1);
  CHECK(!tree.has(1, {0})); // could only repeat 3, or be wrong
  CHECK(tree.has(-1, {0, 3}));
  CHECK(tree.has(0, {0, 3}));
  CHECK(tree.has(1, {0, 3}));
}

TEST_CASE("tree: verdicts ahead of their turn wait, continue the path, and commit in a row") {
  Tree tree(config(1, 10));
  tree.say(0, {0}, 7);
  tree.say(0, {0, 7}, 8);
  tree.say(-1, {0, 7}, 4); // the draft 8 is wrong, if 7 is right
  CHECK(tree.text.empty());
  CHECK(!tree.has(-1, {0, 7, 8}));
  CHECK(tree.has(-1, {0, 7, 4}));
  CHECK(tree.has(0, {0, 7, 4}));
  tree.say(-1, {0, 7, 4}, 2);
  tree.say(-1, {0}, 7);
  CHECK(tree.text == Path{7, 4, 2});
  CHECK(tree.session.metrics().own == 2);
  CHECK(tree.session.metrics().wasted_verifies == 0);
}

TEST_CASE("tree: a verdict that turns out to stand behind a wrong draft is wasted") {
  Tree tree(config(1, 10));
  tree.say(0, {0}, 7);
  tree.say(-1, {0, 7}, 4);
  tree.say(-1, {0}, 6);
  CHECK(tree.text == Path{6});
  CHECK(tree.session.metrics().wasted_verifies == 1);
}

TEST_CASE("tree: no draft for the last position, which the target fills, and none beyond it") {
  Tree tree(config(2, 3));
  tree.say(0, {0}, 7);
  tree.say(0, {0, 7}, 8);
  CHECK(tree.has(-1, {0, 7, 8}));
  CHECK(!tree.has(0, {0, 7, 8}));
  tree.say(-1, {0, 7, 8}, 9);
  CHECK(tree.session.live_nodes() == 3);
  tree.say(-1, {0, 7}, 8);
  tree.say(-1, {0}, 7);
  CHECK(tree.text == Path{7, 8, 9});
  CHECK(tree.session.finished());
  CHECK(tree.session.live_nodes() == 0);
  CHECK(tree.jobs.empty());

  Tree one(config(3, 1));
  CHECK(one.jobs.size() == 1); // a single token is the target's alone
}

TEST_CASE("tree: run_ahead counts from the committed prefix, and what waited goes on") {
  Tree tree(config(1, 10, 2));
  tree.say(0, {0}, 1);
  tree.say(0, {0, 1}, 2);
  CHECK(tree.has(-1, {0, 1, 2}));
  CHECK(!tree.has(0, {0, 1, 2}));
  tree.say(-1, {0, 1, 2}, 3); // also the target's own token waits
  CHECK(tree.session.live_nodes() == 3);
  tree.say(-1, {0}, 1);
  CHECK(tree.has(-1, {0, 1, 2, 3}));
  CHECK(!tree.has(0, {0, 1, 2})); // known by now
}

TEST_CASE("tree: where nodes run short the last drafter pauses, the first one's chain never") {
  Tree tree(config(2, 20, 4, 5)); // the line alone fits
  CHECK(tree.session.metrics().crowded);
  CHECK(!tree.has(1, {0}));
  tree.say(0, {0}, 1);
  tree.say(0, {0, 1}, 2);
  tree.say(0, {0, 1, 2}, 3);
  tree.say(0, {0, 1, 2, 3}, 4);
  CHECK(tree.session.live_nodes() == 5);
  CHECK(!tree.has(0, {0, 1, 2, 3, 4}));
  tree.say(-1, {0}, 1);
  CHECK(tree.has(0, {0, 1, 2, 3, 4}));

  Tree wider(config(2, 20, 2, 7)); // 4 beside the line: 2 of them for the second drafter
  CHECK(wider.has(1, {0}));
  wider.say(1, {0}, 9);
  CHECK(wider.has(0, {0, 9})); // so that {0,9} and this one are 2
  CHECK(!wider.has(1, {0, 9}));
  wider.say(0, {0}, 1);
  CHECK(!wider.has(1, {0, 1}));
  wider.say(-1, {0}, 9); // and the room is back
  CHECK(wider.has(1, {0, 9}));
}

TEST_CASE("tree: answers that nobody waits for change nothing") {
  Tree tree(config(1, 5));
  tree.session.judged(999, JudgedRow{3, 0.0F, {}});
  tree.session.drafted(999, 3);
  tree.session.stopped(999);
  CHECK(tree.session.live_nodes() == 1);
  CHECK(tree.session.metrics().emitted == 0);
  tree.say(0, {0}, -1); // nothing to propose
  CHECK(tree.session.live_nodes() == 1);
  CHECK_THROWS_AS(tree.session.stopped(tree.jobs.at({-1, {0}})), std::logic_error);
}

TEST_CASE("tree: what cannot work is refused by name") {
  const Path prompt{0};
  CHECK_THROWS_WITH_AS(TreeSession(config(0, 5), prompt), doctest::Contains("drafters"),
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(TreeSession(config(1, 0), prompt), doctest::Contains("max_new_tokens"),
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(TreeSession(config(1, 5, 0), prompt), doctest::Contains("run_ahead"),
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(TreeSession(config(1, 5, 8, 8), prompt), doctest::Contains("max_nodes"),
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(TreeSession(config(1, 5), {}), doctest::Contains("prompt"),
                       std::invalid_argument);
}
