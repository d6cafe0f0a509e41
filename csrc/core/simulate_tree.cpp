#include "core/simulate_tree.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <queue>
#include <stdexcept>
#include <string>
#include <tuple>
#include <unordered_map>

namespace dsi {

namespace {

// A fortnight: thousands of servers that are busy all the time add up to less than Nanos hold.
constexpr Nanos kLatest = std::numeric_limits<Nanos>::max() / 8192;

class SyntheticTree final : public TreeModel {
public:
  explicit SyntheticTree(const TreeSimulation &simulation) : target_(simulation.seed, 0.0) {
    for (std::size_t j = 0; j < simulation.drafters.size(); ++j) {
      const std::uint64_t seed = j == 0 ? simulation.seed : mix(simulation.seed) + j;
      drafters_.push_back(simulation.right.has_value()
                              ? SyntheticIds(seed, (*simulation.right)[j], simulation.prompt_tokens)
                              : SyntheticIds(seed, simulation.acceptance[j]));
    }
  }

  bool is_right(std::size_t drafter, Position position) const {
    return drafters_[drafter].draft(position) == drafters_[drafter].target(position);
  }
  Token draft(int drafter, std::span<const Token> path) override {
    const auto position = static_cast<Position>(path.size());
    const Token right = target_.target(position);
    return is_right(static_cast<std::size_t>(drafter), position)
               ? right
               : (right + 1 + drafter) % SyntheticIds::kVocabSize;
  }
  JudgedRow judge(std::span<const Token> path) override {
    return JudgedRow{target_.target(static_cast<Position>(path.size())), 0.0F, {}};
  }

private:
  SyntheticIds target_;
  std::vector<SyntheticIds> drafters_;
};

// The servers of one model: as many as are asked for, the lowest free one first.
class ServerRow {
public:
  int take() {
    if (free_.empty()) {
      return count_++;
    }
    const int server = free_.top();
    free_.pop();
    return server;
  }
  void give_back(int server) { free_.push(server); }
  int count() const { return count_; } // the most that were busy at once

private:
  std::priority_queue<int, std::vector<int>, std::greater<>> free_;
  int count_ = 0;
};

struct Flight {
  TreeSpan span;
  JobId job = 0;
  Token draft = -1;
  JudgedRow row;
};

class TreeClock {
public:
  TreeClock(const TreeSimulation &simulation, TreeModel &model)
      : simulation_(simulation), model_(model),
        session_({static_cast<int>(simulation.drafters.size()), simulation.tokens,
                  simulation.run_ahead, simulation.max_nodes},
                 std::vector<Token>(static_cast<std::size_t>(simulation.prompt_tokens), 0)),
        servers_(simulation.drafters.size() + 1) {
    result_.drafter_busy.resize(simulation.drafters.size());
  }

  TreeResult run() {
    give_work();
    while (!session_.finished()) {
      if (ends_.empty()) {
        throw std::logic_error("virtual clock: a token is wanted and nothing is running");
      }
      now_ = ends_.top().time;
      while (!ends_.empty() && ends_.top().time == now_) {
        const JobId job = ends_.top().job;
        ends_.pop();
        complete(job);
      }
      give_work();
    }
    cut_off_flights();
    result_.total = now_;
    result_.metrics = session_.metrics();
    result_.peak_target_servers = servers_.front().count();
    for (std::size_t row = 1; row < servers_.size(); ++row) {
      result_.peak_drafter_servers.push_back(servers_[row].count());
    }
    return std::move(result_);
  }

private:
  // A draft that exists when a forward ends is judged by it, so drafts come first; of drafts at one
  // time the earlier drafter's lives.
  struct End {
    Nanos time = 0;
    int rank = 0; // the drafter; behind all of them the target
    JobId job = 0;
    bool operator>(const End &other) const {
      return std::tie(time, rank, job) > std::tie(other.time, other.rank, other.job);
    }
  };

  const Latency &latency(int drafter) const {
    return drafter < 0 ? simulation_.target
                       : simulation_.drafters[static_cast<std::size_t>(drafter)];
  }
  ServerRow &servers(int drafter) { return servers_[static_cast<std::size_t>(drafter + 1)]; }
  Nanos &busy(int drafter) {
    return drafter < 0 ? result_.target_busy
                       : result_.drafter_busy[static_cast<std::size_t>(drafter)];
  }

  void give_work() {
    while (const std::optional<TreeTask> task = session_.try_take_verify()) {
      start(*task);
    }
    while (const std::optional<TreeTask> task = session_.try_take_draft()) {
      start(*task);
    }
  }

  void start(const TreeTask &task) {
    const Latency &model = latency(task.drafter);
    const std::uint64_t key =
        mix(simulation_.seed) ^ mix(mix(static_cast<std::uint64_t>(task.drafter + 1)) +
                                    static_cast<std::uint64_t>(task.position));
    const bool first = task.position == simulation_.prompt_tokens;
    const Nanos prefilled = first ? 0 : std::max<Nanos>(0, model.ttft - model.tpot);
    Flight flight;
    flight.job = task.job;
    flight.span.drafter = task.drafter;
    flight.span.server = servers(task.drafter).take();
    flight.span.kind = task.drafter < 0 ? 'v' : 'd';
    flight.span.start = std::max(now_, prefilled);
    const Nanos length = forward_ns(model, first, 0, key);
    if (length > kLatest - flight.span.start) {
      throw std::invalid_argument("latencies: the run takes longer than the clock can count");
    }
    flight.span.end = flight.span.start + length;
    flight.span.position = task.position;
    // A model's answer depends on the path only, so it may be asked for now.
    const std::span<const Token> path = session_.path_of(task.job);
    if (task.drafter < 0) {
      flight.row = model_.judge(path);
    } else {
      flight.draft = model_.draft(task.drafter, path);
    }
    const int rank =
        task.drafter < 0 ? static_cast<int>(simulation_.drafters.size()) : task.drafter;
    ends_.push({flight.span.end, rank, task.job});
    flights_.emplace(task.job, std::move(flight));
  }

  void complete(JobId job) {
    const auto found = flights_.find(job);
    if (found == flights_.end()) {
      return; // stopped
    }
    Flight flight = std::move(found->second);
    flights_.erase(found);
    if (flight.span.drafter < 0) {
      session_.judged(job, std::move(flight.row));
    } else {
      session_.drafted(job, flight.draft);
    }
    free(flight);
    follow();
  }

  void free(Flight &flight) {
    servers(flight.span.drafter).give_back(flight.span.server);
    flight.span.end = std::max(now_, flight.span.start); // it may have waited for the prefill
    busy(flight.span.drafter) += flight.span.end - flight.span.start;
    if (simulation_.record) {
      result_.spans.push_back(flight.span);
    }
  }

  void follow() {
    for (const JudgedRow &row : session_.take_emitted()) {
      if (result_.tokens.empty()) {
        result_.first_token = now_;
      }
      result_.tokens.push_back(row.token);
    }
    for (const JobId job : session_.take_stale()) {
      const auto found = flights_.find(job);
      if (latency(found->second.span.drafter).stoppable) {
        session_.stopped(job);
        found->second.span.fate = Fate::kStopped;
        free(found->second);
        flights_.erase(found);
      } else {
        found->second.span.fate = Fate::kWasted;
      }
    }
  }

  // What could not be stopped outlives the last token.
  void cut_off_flights() {
    std::vector<JobId> jobs;
    for (const auto &[job, flight] : flights_) {
      jobs.push_back(job);
    }
    std::sort(jobs.begin(), jobs.end());
    for (const JobId job : jobs) {
      flights_.at(job).span.fate = Fate::kUnfinished;
      free(flights_.at(job));
    }
  }

  const TreeSimulation &simulation_;
  TreeModel &model_;
  TreeSession session_;
  std::vector<ServerRow> servers_; // the target's, then each drafter's
  std::unordered_map<JobId, Flight> flights_;
  std::priority_queue<End, std::vector<End>, std::greater<>> ends_;
  Nanos now_ = 0;
  TreeResult result_;
};

void check(bool ok, const std::string &what) {
  if (!ok) {
    throw std::invalid_argument(what);
  }
}

void check(const Latency &latency, const std::string &whose) {
  check(latency.tpot > 0 && latency.ttft > 0 && latency.jitter >= 0 && latency.jitter < 1,
        whose + ": needs tpot > 0, ttft > 0, 0 <= jitter < 1");
  check(latency.growth == 0.0,
        whose + ": growth must be 0: a forward of a tree judges one position");
}

} // namespace

TreeResult simulate_tree(const TreeSimulation &simulation) {
  check(simulation.prompt_tokens >= 1, "prompt_tokens: at least 1 is needed");
  check(!simulation.drafters.empty(), "drafters: at least one is needed");
  check(simulation.target, "target");
  for (const Latency &drafter : simulation.drafters) {
    check(drafter, "drafters");
  }
  if (simulation.model != nullptr) {
    return TreeClock(simulation, *simulation.model).run();
  }
  const std::size_t drafters = simulation.drafters.size();
  if (simulation.right.has_value()) {
    check(simulation.right->size() == drafters, "right: one sequence per drafter is needed");
  } else {
    check(simulation.acceptance.size() == drafters, "acceptance: one per drafter is needed");
  }
  for (const double acceptance : simulation.acceptance) {
    check(acceptance >= 0 && acceptance <= 1, "acceptance: between 0 and 1");
  }
  SyntheticTree synthetic(simulation);
  TreeResult result = TreeClock(simulation, synthetic).run();
  for (std::size_t j = 0; j < drafters; ++j) {
    std::vector<bool> &right = result.right.emplace_back();
    for (std::int64_t i = 0; i < simulation.tokens - 1; ++i) {
      right.push_back(synthetic.is_right(j, simulation.prompt_tokens + i));
    }
  }
  return result;
}

} // namespace dsi
