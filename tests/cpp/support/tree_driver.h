// Drives one TreeSession with answers in random order, late, twice and unasked for, and checks
// after every event what it promises. Reproducible from its seed.
#pragma once

#include <algorithm>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "core/tree_session.h"
#include "toy_model.h"

namespace dsi::test {

class TreeDriver {
public:
  TreeDriver(const TreeConfig &config, std::vector<Token> prompt, std::vector<ToyModel> models,
             bool never_stops, std::uint64_t seed)
      : session_(config, prompt), config_(config), models_(std::move(models)),
        never_stops_(never_stops), random_(seed),
        expected_(models_.front().continuation(prompt, config.max_new_tokens)),
        end_(static_cast<Position>(prompt.size()) + config.max_new_tokens),
        committed_path_(std::move(prompt)) {}

  // Throws std::logic_error naming the broken promise.
  void run() {
    for (int step = 0; !session_.finished(); ++step) {
      require(step < 50000, "the session does not end");
      act();
      follow();
    }
    while (!tasks_.empty()) {
      answer(pick(tasks_.size()));
      follow();
    }
    check_end();
  }

  const TreeSession &session() const { return session_; }

private:
  struct Task {
    TreeTask task;
    std::vector<Token> path;
    bool stale = false;
  };

  static void require(bool ok, const std::string &what) {
    if (!ok)
      throw std::logic_error(what);
  }
  std::size_t pick(std::size_t n) { return random_() % n; }

  void act() {
    const std::size_t choice = pick(4);
    if (choice == 0) {
      take(session_.try_take_verify());
    } else if (choice == 1) {
      take(session_.try_take_draft());
    } else if (!tasks_.empty()) {
      answer(pick(tasks_.size()));
    } else {
      const bool any = take(session_.try_take_verify()) || take(session_.try_take_draft());
      require(any, "nothing runs and nothing is offered");
    }
  }

  bool take(const std::optional<TreeTask> &task) {
    if (!task.has_value())
      return false;
    require(ids_.insert(task->job).second && task->job != 0, "a job id is used twice");
    const auto span = session_.path_of(task->job);
    const std::vector<Token> path(span.begin(), span.end());
    const auto length = static_cast<Position>(path.size());
    const Position ahead = length - session_.committed();
    require(length == task->position, "the path ends elsewhere than the task");
    require(asked_.emplace(task->drafter, path).second, "a model is asked twice behind one path");
    require(ahead >= 0 && ahead <= config_.run_ahead, "too far ahead");
    require(task->drafter < 0 || ahead < config_.run_ahead, "a draft beyond run_ahead");
    require(length <= (task->drafter < 0 ? end_ - 1 : end_ - 2), "past the last usable position");
    require(std::equal(committed_path_.begin(), committed_path_.end(), path.begin()),
            "a path that does not begin with the committed one");
    tasks_.push_back({*task, path});
    return true;
  }

  Token said(const Task &task) const {
    return task.task.drafter < 0
               ? models_.front().target(task.path)
               : models_[static_cast<std::size_t>(task.task.drafter)].draft(task.path);
  }

  void answer(std::size_t index) {
    const Task task = tasks_[index];
    tasks_.erase(tasks_.begin() + static_cast<std::ptrdiff_t>(index));
    const TreeMetrics before = session_.metrics();
    const std::int64_t live = session_.live_nodes();
    if (task.stale && !never_stops_ && pick(2) == 0) {
      session_.stopped(task.task.job);
    } else {
      tell(task);
    }
    if (task.stale) {
      const TreeMetrics &after = session_.metrics();
      require(session_.live_nodes() == live && after.emitted == before.emitted &&
                  after.nodes == before.nodes && session_.take_emitted().empty() &&
                  session_.take_stale().empty(),
              "a stale answer changes something");
    }
    if (pick(10) == 0) {
      const std::int64_t nodes = session_.metrics().nodes;
      const std::int64_t emitted = session_.metrics().emitted;
      tell(task); // twice
      require(session_.metrics().nodes == nodes && session_.metrics().emitted == emitted,
              "a second answer changes something");
    }
  }

  void tell(const Task &task) {
    if (task.task.drafter < 0) {
      session_.judged(task.task.job, JudgedRow{said(task), 0.0F, {}});
    } else {
      const bool dry = hash_of(17, task.path) % 8 == 0;
      session_.drafted(task.task.job, dry ? -1 : said(task));
    }
  }

  void follow() {
    for (const JudgedRow &row : session_.take_emitted()) {
      require(emitted_ < expected_.size() && row.token == expected_[emitted_],
              "the text is not the target's");
      committed_path_.push_back(row.token);
      ++emitted_;
    }
    require(session_.committed() == static_cast<Position>(committed_path_.size()),
            "committed and emitted differ");
    for (const JobId job : session_.take_stale()) {
      const auto found = std::find_if(tasks_.begin(), tasks_.end(),
                                      [&](const Task &task) { return task.task.job == job; });
      require(found != tasks_.end() && !found->stale, "a job becomes stale that is not running");
      found->stale = true;
    }
    for (const Task &task : tasks_) { // what is out of date is said to be so, and nothing else
      const std::size_t shared = std::min(task.path.size(), committed_path_.size());
      const bool contradicts =
          !std::equal(task.path.begin(), task.path.begin() + static_cast<std::ptrdiff_t>(shared),
                      committed_path_.begin());
      require(task.stale || (!contradicts && !session_.finished()), "a task is not let go");
    }
    require(session_.live_nodes() <= config_.max_nodes, "too many nodes");
  }

  void check_end() const {
    const TreeMetrics &m = session_.metrics();
    require(emitted_ == expected_.size(), "the text is cut short");
    require(session_.live_nodes() == 0, "nodes outlive the request");
    require(m.peak_nodes <= config_.max_nodes, "too many nodes at the peak");
    require(m.verifies == m.emitted + m.wasted_verifies + m.stopped_verifies,
            "metrics: verifies is not the sum");
    std::int64_t accepted = 0;
    for (const TreeMetrics::Drafter &drafter : m.drafters) {
      require(drafter.accepted + drafter.stopped <= drafter.drafts, "metrics: drafts");
      accepted += drafter.accepted;
    }
    require(m.emitted == m.own + accepted, "metrics: emitted is not the sum");
    require(!never_stops_ || m.stopped_verifies == 0, "metrics: stopped");
  }

  TreeSession session_;
  TreeConfig config_;
  std::vector<ToyModel> models_; // one target, seen with the acceptance of each drafter
  bool never_stops_;
  std::mt19937_64 random_;
  std::vector<Token> expected_;
  Position end_;
  std::vector<Token> committed_path_;
  std::size_t emitted_ = 0;
  std::vector<Task> tasks_;
  std::set<JobId> ids_;
  std::set<std::pair<int, std::vector<Token>>> asked_;
};

} // namespace dsi::test
