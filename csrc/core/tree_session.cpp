#include "core/tree_session.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace dsi {

TreeSession::TreeSession(const TreeConfig &config, std::span<const Token> prompt)
    : config_(config), end_(static_cast<Position>(prompt.size()) + config.max_new_tokens),
      path_(prompt.begin(), prompt.end()), committed_(static_cast<Position>(prompt.size())) {
  const auto check = [](bool ok, const std::string &what) {
    if (!ok) {
      throw std::invalid_argument(what);
    }
  };
  check(!prompt.empty(), "prompt: at least one token is needed, got none");
  check(config.drafters >= 1, "drafters: at least one is needed");
  check(config.max_new_tokens >= 1,
        "max_new_tokens: at least 1 is needed, got " + std::to_string(config.max_new_tokens));
  check(config.run_ahead >= 1,
        "run_ahead: at least 1 is needed, got " + std::to_string(config.run_ahead));
  check(config.max_nodes > config.run_ahead,
        "max_nodes: more than run_ahead = " + std::to_string(config.run_ahead) +
            " are needed, got " + std::to_string(config.max_nodes));
  drafts_due_.resize(static_cast<std::size_t>(config.drafters));
  metrics_.drafters.resize(static_cast<std::size_t>(config.drafters));
  current_ = make_node(kNone, path_.back(), kTarget);
  join_line(current_);
}

// -- what is due ------------------------------------------------------------------------------

// Room for the line is kept back; of the rest drafter j of k may fill (k-j)/k.
std::int64_t TreeSession::crowd_limit(int drafter) const {
  const std::int64_t budget = config_.max_nodes - config_.run_ahead - 1;
  return budget * (config_.drafters - drafter) / config_.drafters;
}

std::optional<TreeTask> TreeSession::try_take_verify() {
  while (!verifies_due_.empty()) {
    const Reference next = verifies_due_.front();
    verifies_due_.pop_front();
    if (alive(next)) {
      return start(next.index, kTarget);
    }
  }
  return std::nullopt;
}

std::optional<TreeTask> TreeSession::try_take_draft() {
  for (int drafter = 0; drafter < config_.drafters; ++drafter) {
    auto &due = drafts_due_[static_cast<std::size_t>(drafter)];
    while (!due.empty()) {
      const Reference next = due.front();
      const Node &node = at(next.index);
      if (alive(next) && !node.verdict.has_value() &&
          node.drafts[static_cast<std::size_t>(drafter)].state == DraftState::kWaiting) {
        if (counts_as_open(node, drafter) && crowd() >= crowd_limit(drafter)) {
          metrics_.crowded = true;
          return std::nullopt; // the limits of later drafters are lower still
        }
        due.pop_front();
        return start(next.index, drafter);
      }
      due.pop_front();
    }
  }
  return std::nullopt;
}

TreeTask TreeSession::start(Index index, int drafter) {
  Node &node = at(index);
  const TreeTask task{next_job_++, drafter, node.length};
  running_.emplace(task.job, Running{index, drafter, false});
  if (drafter == kTarget) {
    node.verify = task.job;
    ++metrics_.verifies;
  } else {
    node.drafts[static_cast<std::size_t>(drafter)] = {DraftState::kRunning, task.job};
    open_drafts_ += counts_as_open(node, drafter) ? 1 : 0;
    ++metrics_.drafters[static_cast<std::size_t>(drafter)].drafts;
  }
  return task;
}

std::span<const Token> TreeSession::path_of(JobId job) {
  Index index = running_.at(job).node;
  path_.resize(static_cast<std::size_t>(at(index).length));
  for (; index != current_; index = at(index).parent) {
    path_[static_cast<std::size_t>(at(index).length - 1)] = at(index).token;
  }
  return path_;
}

// -- what came of it --------------------------------------------------------------------------

std::optional<TreeSession::Running> TreeSession::answered(JobId job) {
  const auto found = running_.find(job);
  if (found == running_.end()) {
    return std::nullopt;
  }
  const Running task = found->second;
  running_.erase(found);
  return task;
}

void TreeSession::drafted(JobId job, Token token) {
  const std::optional<Running> task = answered(job);
  if (!task.has_value() || task->stale) {
    return;
  }
  Node &node = at(task->node);
  node.drafts[static_cast<std::size_t>(task->drafter)].state = DraftState::kDone;
  open_drafts_ -= counts_as_open(node, task->drafter) ? 1 : 0;
  if (token < 0) {
    return;
  }
  const bool on_line = node.on_line; // making a node may move this one
  Index child = child_of(task->node, token);
  if (child == kNone) {
    child = make_node(task->node, token, task->drafter);
  }
  if (task->drafter == 0) {
    at(task->node).line_child = child;
    if (on_line) {
      join_line(child);
    }
  }
}

// The paper ends siblings when their parent is current. They may end as soon as the target has
// spoken behind them: where the parent lives, they cannot. That saves servers and costs nothing.
void TreeSession::judged(JobId job, JudgedRow row) {
  const std::optional<Running> task = answered(job);
  if (!task.has_value()) {
    return;
  }
  if (task->stale) {
    ++metrics_.wasted_verifies;
    return;
  }
  Node &node = at(task->node);
  const Token token = row.token;
  node.verify = 0;
  node.verdict = std::move(row);
  let_go_of_drafts(node);
  keep_only(task->node, token);
  go_on_from(task->node);
  while (!finished() && at(current_).verdict.has_value()) {
    commit();
  }
}

void TreeSession::stopped(JobId job) {
  const std::optional<Running> task = answered(job);
  if (!task.has_value()) {
    return;
  }
  if (!task->stale) {
    throw std::logic_error("stopped: nobody asked to stop this task");
  }
  ++(task->drafter == kTarget ? metrics_.stopped_verifies
                              : metrics_.drafters[static_cast<std::size_t>(task->drafter)].stopped);
}

// -- the tree -----------------------------------------------------------------------------------

TreeSession::Index TreeSession::child_of(Index parent, Token token) const {
  Index child = at(parent).first_child;
  while (child != kNone && at(child).token != token) {
    child = at(child).next_sibling;
  }
  return child;
}

TreeSession::Index TreeSession::make_node(Index parent, Token token, int proposer) {
  if (free_.empty()) {
    free_.push_back(static_cast<Index>(nodes_.size()));
    nodes_.emplace_back();
  }
  const Index index = free_.back();
  free_.pop_back();
  Node &node = at(index);
  node.serial = next_serial_++;
  node.token = token;
  node.proposer = proposer;
  node.parent = parent;
  node.first_child = node.next_sibling = node.line_child = kNone;
  node.on_line = false;
  node.verdict.reset();
  node.verify = 0;
  node.drafts.assign(static_cast<std::size_t>(config_.drafters), {});
  node.length = committed_;
  if (parent != kNone) {
    node.length = at(parent).length + 1;
    node.next_sibling = at(parent).first_child;
    at(parent).first_child = index;
  }
  ++off_line_;
  ++metrics_.nodes;
  metrics_.peak_nodes = std::max(metrics_.peak_nodes, ++live_);
  verifies_due_.push_back(reference(index));
  if (at_the_edge(node)) {
    edge_.push_back(reference(index));
  } else {
    offer_drafts(index);
  }
  return index;
}

void TreeSession::offer_drafts(Index index) {
  if (may_draft_behind(at(index))) {
    for (auto &due : drafts_due_) {
      due.push_back(reference(index));
    }
    offer_line_draft(index);
  }
}

// To the front, past all that may have to wait for room.
void TreeSession::offer_line_draft(Index index) {
  const Node &node = at(index);
  if (node.on_line && !at_the_edge(node) && may_draft_behind(node) &&
      node.drafts.front().state == DraftState::kWaiting) {
    drafts_due_.front().push_front(reference(index));
  }
}

// The target is one of the m models: its token continues the path whether or not its turn to commit
// has come.
void TreeSession::go_on_from(Index index) {
  const Token token = at(index).verdict->token;
  Index child = child_of(index, token);
  const Node &node = at(index);
  const bool room = node.on_line || crowd() < crowd_limit(0);
  if (child == kNone && node.length + 1 < end_ && !at_the_edge(node) && room) {
    child = make_node(index, token, kTarget);
  }
  at(index).line_child = child;
  if (child != kNone && at(index).on_line) {
    join_line(child);
  }
}

void TreeSession::join_line(Index index) {
  while (index != kNone && !at(index).on_line) {
    Node &node = at(index);
    open_drafts_ -= node.drafts.front().state == DraftState::kRunning ? 1 : 0;
    node.on_line = true;
    --off_line_;
    offer_line_draft(index);
    if (node.verdict.has_value() && node.line_child == kNone) {
      go_on_from(index); // there was no room for it beside the line
    }
    index = at(index).line_child;
  }
}

void TreeSession::keep_only(Index parent, Token token) {
  Index kept = kNone;
  for (Index child = at(parent).first_child; child != kNone;) {
    const Index next = at(child).next_sibling;
    if (at(child).token == token) {
      kept = child;
    } else {
      end_subtree(child);
    }
    child = next;
  }
  at(parent).first_child = kept;
  if (kept != kNone) {
    at(kept).next_sibling = kNone;
  }
}

void TreeSession::end_subtree(Index root) {
  doomed_.assign(1, root);
  while (!doomed_.empty()) {
    const Index index = doomed_.back();
    doomed_.pop_back();
    Node &node = at(index);
    for (Index child = node.first_child; child != kNone; child = at(child).next_sibling) {
      doomed_.push_back(child);
    }
    if (node.verify != 0) {
      let_go(node.verify);
    }
    metrics_.wasted_verifies += node.verdict.has_value() ? 1 : 0;
    let_go_of_drafts(node);
    off_line_ -= node.on_line ? 0 : 1;
    --live_;
    node.serial = 0;
    free_.push_back(index);
  }
}

void TreeSession::let_go_of_drafts(Node &node) {
  for (int drafter = 0; drafter < config_.drafters; ++drafter) {
    Node::Drafting &draft = node.drafts[static_cast<std::size_t>(drafter)];
    if (draft.state == DraftState::kRunning) {
      let_go(draft.job);
      draft.state = DraftState::kDone;
      open_drafts_ -= counts_as_open(node, drafter) ? 1 : 0;
    }
  }
}

void TreeSession::let_go(JobId job) {
  running_.at(job).stale = true;
  newly_stale_.push_back(job);
}

// -- how tokens become final ----------------------------------------------------------------------

void TreeSession::commit() {
  const Index old = current_;
  path_.resize(static_cast<std::size_t>(committed_));
  path_.push_back(at(old).verdict->token);
  emitted_.push_back(*std::move(at(old).verdict));
  at(old).verdict.reset();
  ++committed_;
  ++metrics_.emitted;
  const Index child = at(old).line_child; // none behind the last token alone
  const int proposer = child != kNone ? at(child).proposer : kTarget;
  ++(proposer == kTarget ? metrics_.own
                         : metrics_.drafters[static_cast<std::size_t>(proposer)].accepted);
  at(old).first_child = kNone;
  current_ = child;
  end_subtree(old);
  if (!finished()) {
    release_edge();
    drop_ended_offers();
  }
}

void TreeSession::release_edge() {
  for (const Reference node : std::exchange(edge_, {})) {
    if (!alive(node)) {
      continue;
    }
    if (at_the_edge(at(node.index))) {
      edge_.push_back(node);
    } else if (at(node.index).verdict.has_value()) {
      go_on_from(node.index);
    } else {
      offer_drafts(node.index);
    }
  }
}

// What waits for room is looked at from the front only; behind it, what has ended piles up.
void TreeSession::drop_ended_offers() {
  for (auto &due : drafts_due_) {
    if (static_cast<std::int64_t>(due.size()) > 4 * config_.max_nodes) {
      std::erase_if(due, [&](Reference node) { return !alive(node); });
    }
  }
}

std::vector<JudgedRow> TreeSession::take_emitted() { return std::exchange(emitted_, {}); }

std::vector<JobId> TreeSession::take_stale() { return std::exchange(newly_stale_, {}); }

} // namespace dsi
