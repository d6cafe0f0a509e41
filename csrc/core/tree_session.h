// Algorithm 1 of the DSI paper (arXiv 2405.14105) with any number of drafters (m > 2), as a pure
// state machine: events in, work and tokens out. It knows no thread, no clock, no tensor.
//
// A node is a path: a prompt and the tokens behind it. Every node is continued by all m models at
// once: one verify on the target, one draft per drafter; servers are taken to be unlimited. Each
// answer is a token, and with it a longer path. The current node is the committed prefix. Once the
// target has spoken at the current node, its child with the target's token is current.
//
// One node for one path: where two siblings say the same token, the later one adds nothing, since
// the path is being continued already and under coupled verification a continuation depends on the
// path only. So the paper's j*, the smallest index among the siblings that match, becomes: the
// first to exist lives. With drafters ordered by latency that is the smallest index, and in a tie a
// driver delivers the smaller index first.
//
// Lookahead is 1, as in Algorithm 1: a larger one saves servers, which are not short here. Text is
// the target's own (coupled verification), so rows need no draft's law, and a tree has no failures:
// requests on real servers are decoded by Session.
//
// Not thread-safe. Every task taken must be answered exactly once.
#pragma once

#include <deque>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "core/types.h"

namespace dsi {

struct TreeConfig {
  int drafters = 1;                // m-1, >= 1; ordered by latency, the fastest first
  std::int64_t max_new_tokens = 1; // >= 1
  // Nodes stand at most so far ahead of the committed prefix, >= 1.
  int run_ahead = 64;
  // Nodes that may live at once, > run_ahead: a tree grows exponentially. Where they run short the
  // last drafters pause first. The first drafter's chain behind the current node never pauses, so
  // the time is never above its own alone. The text does not depend on it.
  std::int64_t max_nodes = 4096;
};

// Say the token at `position`, given the path of `job`, which has `position` tokens.
struct TreeTask {
  JobId job = 0;
  int drafter = -1; // -1: the target
  Position position = 0;
};

struct TreeMetrics {
  std::int64_t emitted = 0; // tokens committed
  std::int64_t own = 0;     // of these: no drafter had said it in time
  std::int64_t nodes = 0;   // made in total
  std::int64_t peak_nodes = 0;
  bool crowded = false; // a draft had to wait for max_nodes

  std::int64_t verifies = 0;         // handed out
  std::int64_t wasted_verifies = 0;  // ran to their end, and their token was not committed
  std::int64_t stopped_verifies = 0; // stopped before their end

  struct Drafter {
    std::int64_t drafts = 0;   // handed out
    std::int64_t accepted = 0; // committed tokens that it was the first to say
    std::int64_t stopped = 0;  // drafts stopped before their end
  };
  std::vector<Drafter> drafters; // emitted = own + the sum of accepted
};

class TreeSession {
public:
  // Throws std::invalid_argument naming the input.
  TreeSession(const TreeConfig &config, std::span<const Token> prompt);

  // -- what is due: tasks of older nodes first, of earlier drafters first -----------------------
  std::optional<TreeTask> try_take_verify();
  std::optional<TreeTask> try_take_draft();
  // The path behind which a task speaks. Valid until the next call of any member; not for stale
  // jobs. Costs its length.
  std::span<const Token> path_of(JobId job);

  // -- what came of it; answers to stale tasks change nothing but counters ------------------------
  void drafted(JobId job, Token token); // < 0: nothing to propose
  void judged(JobId job, JudgedRow row);
  void stopped(JobId job); // a task of take_stale() did not run to its end

  // -- what follows -----------------------------------------------------------------------------
  std::vector<JudgedRow> take_emitted(); // since the last call, in order, each once
  std::vector<JobId> take_stale();       // tasks whose answer will change nothing
  bool finished() const { return committed_ == end_; }
  Position committed() const { return committed_; } // tokens that are final, prompt included
  std::int64_t live_nodes() const { return live_; }
  const TreeMetrics &metrics() const { return metrics_; }

private:
  using Index = std::int32_t;
  static constexpr Index kNone = -1;
  static constexpr int kTarget = -1;
  enum class DraftState : std::uint8_t { kWaiting, kRunning, kDone };

  struct Node {
    std::uint64_t serial = 0; // an index is used again, a serial is not; 0: not alive
    Token token = -1;
    Position length = 0;    // tokens of the path
    int proposer = kTarget; // who said `token` first
    Index parent = kNone, first_child = kNone, next_sibling = kNone;
    // The line is the chain of what the first drafter says behind the current node, corrected where
    // the target has spoken.
    bool on_line = false;
    Index line_child = kNone; // where it would go on from here
    std::optional<JudgedRow> verdict;
    JobId verify = 0; // running; 0: none
    struct Drafting {
      DraftState state = DraftState::kWaiting;
      JobId job = 0;
    };
    std::vector<Drafting> drafts; // by drafter
  };
  struct Reference {
    Index index = kNone;
    std::uint64_t serial = 0;
  };
  struct Running {
    Index node = kNone; // of a task that is not stale
    int drafter = kTarget;
    bool stale = false;
  };

  Node &at(Index index) { return nodes_[static_cast<std::size_t>(index)]; }
  const Node &at(Index index) const { return nodes_[static_cast<std::size_t>(index)]; }
  Reference reference(Index index) const { return {index, at(index).serial}; }
  bool alive(Reference node) const { return at(node.index).serial == node.serial; }
  bool may_draft_behind(const Node &node) const { return node.length <= end_ - 2; }
  bool at_the_edge(const Node &node) const { return node.length - committed_ >= config_.run_ahead; }
  std::int64_t crowd() const { return off_line_ + open_drafts_; }
  std::int64_t crowd_limit(int drafter) const;
  bool counts_as_open(const Node &node, int drafter) const { return drafter > 0 || !node.on_line; }

  TreeTask start(Index index, int drafter);
  std::optional<Running> answered(JobId job); // nothing for an unknown job
  Index child_of(Index parent, Token token) const;
  Index make_node(Index parent, Token token, int proposer);
  void offer_drafts(Index index);
  void offer_line_draft(Index index);
  void go_on_from(Index index);
  void join_line(Index index);
  void keep_only(Index parent, Token token);
  void end_subtree(Index root);
  void let_go_of_drafts(Node &node);
  void let_go(JobId job);
  void commit();
  void release_edge();
  void drop_ended_offers();

  TreeConfig config_;
  Position end_;            // first position that will not be produced
  std::vector<Token> path_; // committed tokens, and behind them whatever path_of() put there
  Position committed_;
  std::vector<Node> nodes_;
  std::vector<Index> free_;
  Index current_ = kNone;
  std::uint64_t next_serial_ = 1;
  std::int64_t live_ = 0;
  std::int64_t off_line_ = 0;    // live nodes beside the line
  std::int64_t open_drafts_ = 0; // running ones that may add one
  std::deque<Reference> verifies_due_;
  std::vector<std::deque<Reference>> drafts_due_; // by drafter; may hold what has ended since
  std::vector<Reference> edge_;                   // nodes that wait for run_ahead
  std::unordered_map<JobId, Running> running_;
  JobId next_job_ = 1;
  std::vector<JudgedRow> emitted_;
  std::vector<JobId> newly_stale_;
  std::vector<Index> doomed_; // of end_subtree()
  TreeMetrics metrics_;
};

} // namespace dsi
