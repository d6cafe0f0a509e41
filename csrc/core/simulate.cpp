#include "core/simulate.h"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>

namespace dsi {

namespace {

class SyntheticModel final : public VirtualModel {
public:
  explicit SyntheticModel(SyntheticIds ids) : ids_(std::move(ids)) {}

  Draft draft(std::span<const Token> path) override {
    return Draft{ids_.draft(static_cast<Position>(path.size())), nullptr};
  }

  std::vector<JudgedRow> judge(std::span<const Token> path, Position first,
                               const Draft * /*frontier*/, const Session & /*session*/) override {
    std::vector<JudgedRow> rows;
    rows.reserve(path.size() - static_cast<std::size_t>(first) + 1);
    for (Position position = first; position <= static_cast<Position>(path.size()); ++position) {
      rows.push_back(JudgedRow{ids_.target(position), 0.0F, {}});
    }
    return rows;
  }

private:
  SyntheticIds ids_;
};

struct VirtualServer {
  int index = 0; // -1: the drafter
  bool warm = false;
  bool busy = false;
  SpanRecord span;
  JobId job = 0;
  std::vector<Token> path;
  Nanos freed_at = -1;
};

class VirtualClock {
public:
  VirtualClock(const Simulation &simulation, VirtualModel &model)
      : simulation_(simulation), model_(model),
        session_(simulation.session,
                 std::vector<Token>(static_cast<std::size_t>(simulation.prompt_tokens), 0)),
        targets_(static_cast<std::size_t>(simulation.sp)) {
    for (std::size_t i = 0; i < targets_.size(); ++i) {
      targets_[i].index = static_cast<int>(i);
    }
    drafter_.index = -1;
  }

  SimulationResult run() {
    while (true) {
      give_work();
      if (session_.finished()) {
        break;
      }
      now_ = next_end();
      // A draft that exists by the time a forward ends is judged by it, so drafts come first.
      complete(drafter_);
      for (VirtualServer &server : targets_) {
        complete(server);
      }
    }
    result_.total = now_;
    if (simulation_.record) {
      unfinished(drafter_);
      for (VirtualServer &server : targets_) {
        unfinished(server);
      }
    }
    result_.metrics = session_.metrics();
    return std::move(result_);
  }

private:
  const Latency &latency(const VirtualServer &server) const {
    return server.index < 0 ? simulation_.drafter : simulation_.target;
  }

  void give_work() {
    while (session_.verify_urgency() != Urgency::kNone) {
      VirtualServer *server = freest();
      if (server == nullptr) {
        break;
      }
      const VerifyTask task = session_.take_verify();
      start(*server, 'v', task.job, task.first, task.window);
    }
    if (!drafter_.busy && session_.wants_draft()) {
      const DraftTask task = session_.take_draft();
      start(drafter_, 'd', task.job, task.from, 0);
    }
    if (now_ == 0 && session_.policy().prefill && session_.policy().mode == Mode::kDSI) {
      for (VirtualServer &server : targets_) {
        if (!server.busy && !server.warm) {
          start(server, 'p', 0, 0, 0);
        }
      }
    }
  }

  // The server that came free last has the longest cached prefix.
  VirtualServer *freest() {
    VirtualServer *best = nullptr;
    for (VirtualServer &server : targets_) {
      if (!server.busy && (best == nullptr || server.freed_at > best->freed_at)) {
        best = &server;
      }
    }
    return best;
  }

  void start(VirtualServer &server, char kind, JobId job, Position first, Position window) {
    const std::uint64_t key = mix(simulation_.seed) ^ mix(++forwards_);
    Nanos length = forward_ns(latency(server), !server.warm, window, key);
    if (kind == 'p') {
      length = std::max<Nanos>(0, length - latency(server).tpot);
    }
    server.busy = true;
    server.warm = true;
    server.job = job;
    server.span = SpanRecord{server.index, kind, now_, now_ + length, first, window, Fate::kUsed};
    if (kind == 'v') {
      const auto path = session_.path().first(static_cast<std::size_t>(first + window));
      server.path.assign(path.begin(), path.end());
    }
  }

  Nanos next_end() const {
    Nanos end = drafter_.busy ? drafter_.span.end : std::numeric_limits<Nanos>::max();
    for (const VirtualServer &server : targets_) {
      if (server.busy) {
        end = std::min(end, server.span.end);
      }
    }
    if (end == std::numeric_limits<Nanos>::max()) {
      throw std::logic_error("virtual clock: a token is wanted and nothing is running");
    }
    return end;
  }

  void complete(VirtualServer &server) {
    if (!server.busy || server.span.end != now_) {
      return;
    }
    const std::int64_t wasted = session_.metrics().wasted_verifies;
    const std::int64_t emitted = session_.metrics().emitted;
    if (server.span.kind == 'd') {
      const Draft draft = model_.draft(draft_path(server));
      session_.drafted(server.job, {&draft, 1});
    } else if (server.span.kind == 'v') {
      session_.judged(server.job, model_.judge(server.path, server.span.first,
                                               session_.frontier_draft(server.job), session_));
    }
    const bool in_vain =
        session_.metrics().wasted_verifies > wasted && session_.metrics().emitted == emitted;
    free(server, in_vain ? Fate::kWasted : Fate::kUsed);
    follow();
  }

  // A draft is made behind the path as it was when its task began; drafts alone may have been
  // replaced by equal committed tokens since.
  std::span<const Token> draft_path(const VirtualServer &server) const {
    const auto path = session_.path();
    return path.first(std::min(path.size(), static_cast<std::size_t>(server.span.first)));
  }

  void free(VirtualServer &server, Fate fate) {
    server.busy = false;
    server.freed_at = now_;
    server.span.fate = fate;
    server.span.end = now_;
    (server.index < 0 ? result_.drafter_busy : result_.target_busy) += now_ - server.span.start;
    if (simulation_.record) {
      result_.record.spans.push_back(server.span);
    }
  }

  void unfinished(VirtualServer &server) {
    if (server.busy) {
      server.span.end = now_;
      server.span.fate = Fate::kUnfinished;
      result_.record.spans.push_back(server.span);
    }
  }

  void follow() {
    if (simulation_.record) {
      result_.record.commit(session_.metrics(), now_, simulation_.prompt_tokens);
    }
    for (JudgedRow &row : session_.take_emitted()) {
      if (result_.tokens.empty()) {
        result_.first_token = now_;
      }
      result_.tokens.push_back(row.token);
    }
    for (const JobId job : session_.take_stale()) {
      stop(drafter_, job);
      for (VirtualServer &server : targets_) {
        stop(server, job);
      }
    }
  }

  void stop(VirtualServer &server, JobId job) {
    if (server.busy && server.job == job && latency(server).stoppable) {
      session_.stopped(job);
      free(server, Fate::kStopped);
    }
  }

  const Simulation &simulation_;
  VirtualModel &model_;
  Session session_;
  std::vector<VirtualServer> targets_;
  VirtualServer drafter_;
  Nanos now_ = 0;
  std::uint64_t forwards_ = 0;
  SimulationResult result_;
};

void check(bool ok, const char *what) {
  if (!ok) {
    throw std::invalid_argument(what);
  }
}

void check(const Latency &latency, const char *what) {
  check(latency.tpot > 0 && latency.ttft >= 0 && latency.growth >= 0 && latency.jitter >= 0 &&
            latency.jitter < 1,
        what);
}

} // namespace

SimulationResult simulate(const Simulation &simulation) {
  check(simulation.sp >= 1, "sp: at least 1 target server is needed");
  check(simulation.prompt_tokens >= 1, "prompt_tokens: at least 1 is needed");
  check(simulation.session.policy.lookahead >= 1, "lookahead: at least 1 is needed");
  check(simulation.acceptance >= 0 && simulation.acceptance <= 1, "acceptance: between 0 and 1");
  check(simulation.target, "target: needs tpot > 0, ttft >= 0, growth >= 0, 0 <= jitter < 1");
  check(simulation.drafter, "drafter: needs tpot > 0, ttft >= 0, growth >= 0, 0 <= jitter < 1");
  SyntheticModel synthetic(
      simulation.right.has_value()
          ? SyntheticIds(simulation.seed, *simulation.right, simulation.prompt_tokens)
          : SyntheticIds(simulation.seed, simulation.acceptance));
  VirtualModel &model = simulation.model != nullptr ? *simulation.model : synthetic;
  return VirtualClock(simulation, model).run();
}

} // namespace dsi
