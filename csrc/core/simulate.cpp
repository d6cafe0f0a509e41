#include "core/simulate.h"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>

namespace dsi {

namespace {

class SyntheticModel final : public VirtualModel {
public:
  explicit SyntheticModel(SyntheticText &text) : text_(text) {}

  Draft draft(std::span<const Token> path) override {
    return Draft{text_.at(static_cast<Position>(path.size())).draft, nullptr};
  }
  void drafts(Position first, std::size_t count, std::vector<Draft> &drafts) {
    drafts.resize(count);
    for (Draft &draft : drafts) {
      draft.id = text_.at(first++).draft;
    }
  }

  std::vector<JudgedRow> judge(std::span<const Token> path, Position first,
                               const Draft * /*frontier*/, const Session & /*session*/) override {
    return rows(first, static_cast<Position>(path.size()) - first);
  }
  std::vector<JudgedRow> rows(Position first, Position window) {
    std::vector<JudgedRow> rows(static_cast<std::size_t>(window) + 1);
    for (JudgedRow &row : rows) {
      row.token = text_.at(first++).target;
    }
    return rows;
  }

private:
  SyntheticText &text_;
};

struct VirtualServer {
  int index = 0; // -1: the drafter, whose span is the first of the drafts in hand
  bool warm = false;
  bool busy = false;
  SpanRecord span;
  JobId job = 0;
  std::vector<Token> path;
  Nanos freed_at = -1;
};

class VirtualClock {
public:
  // `synthetic`: the model itself where it is one.
  VirtualClock(const Simulation &simulation, VirtualModel &model, SyntheticModel *synthetic)
      : simulation_(simulation), model_(model), synthetic_(synthetic),
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
      complete_drafts();
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
    result_.metrics.draft_jobs = draft_forwards_;
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
      task_ = session_.take_draft();
      start(drafter_, 'd', task_.job, task_.from, 0);
    }
    if (now_ == 0 && session_.policy().prefill && session_.policy().mode == Mode::kDSI) {
      for (VirtualServer &server : targets_) {
        if (!server.busy && !server.warm) {
          start(server, 'p', 0, 0, 0);
        }
      }
    }
    drafts_in_hand_ = drafter_.busy ? drafts_at_once() : 0;
  }

  // Drafts that may be reported together at the end of the last one: nobody would have acted on the
  // others. The Session gets a window when it is full, or when a server comes free, and that is an
  // event of its own.
  Position drafts_at_once() {
    const Latency &latency = simulation_.drafter;
    const bool alike = synthetic_ != nullptr && simulation_.session.vocab_size < 0 &&
                       latency.jitter == 0 &&
                       drafter_.span.end - drafter_.span.start == latency.tpot;
    if (!alike || session_.committed() > task_.from) {
      return 1;
    }
    const Position most =
        std::clamp<Position>(task_.max_drafts, 1, std::max<Nanos>(1, latest_ / latency.tpot));
    return freest() == nullptr ? most : std::clamp<Position>(session_.drafts_to_window(), 1, most);
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
    ++forwards_;
    draft_forwards_ += kind == 'd' ? 1 : 0;
    const std::uint64_t key = mix(simulation_.seed) ^ mix(forwards_);
    Nanos length = forward_ns(latency(server), !server.warm, window, key);
    if (kind == 'p') {
      length = std::max<Nanos>(0, length - latency(server).tpot);
    }
    if (length > latest_ - now_) {
      throw std::invalid_argument("latencies: the run takes longer than the clock can count");
    }
    server.busy = true;
    server.warm = true;
    server.job = job;
    server.span = SpanRecord{server.index, kind, now_, now_ + length, first, window, Fate::kUsed};
    if (kind == 'v' && synthetic_ == nullptr) { // ids of the clock's own are a matter of positions
      const auto path = session_.path().first(static_cast<std::size_t>(first + window));
      server.path.assign(path.begin(), path.end());
    }
  }

  Nanos next_end() const {
    Nanos end = drafter_.busy ? drafter_.span.end + (drafts_in_hand_ - 1) * simulation_.drafter.tpot
                              : std::numeric_limits<Nanos>::max();
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
    if (server.span.kind == 'v') {
      session_.judged(server.job, rows(server));
    }
    const bool in_vain =
        session_.metrics().wasted_verifies > wasted && session_.metrics().emitted == emitted;
    free(server, in_vain ? Fate::kWasted : Fate::kUsed);
    follow();
  }

  std::vector<JudgedRow> rows(const VirtualServer &server) {
    return synthetic_ != nullptr ? synthetic_->rows(server.span.first, server.span.window)
                                 : model_.judge(server.path, server.span.first,
                                                session_.frontier_draft(server.job), session_);
  }

  // The drafts that exist by now. If another one is being made, it began with the Session as it is.
  void complete_drafts() {
    SpanRecord &span = drafter_.span;
    if (!drafter_.busy || span.end > now_) {
      return;
    }
    if (drafts_in_hand_ == 1) {
      drafts_.assign(1, model_.draft(draft_path()));
      account(span);
    } else {
      complete_several(span);
    }
    session_.drafted(drafter_.job, drafts_);
    drafter_.busy = span.end > now_;
    if (drafter_.busy) {
      task_ = session_.take_draft();
      drafter_.job = task_.job;
    }
    follow();
  }

  // Leaves `span` at the last of them, or at the one being made.
  void complete_several(SpanRecord &span) {
    const Nanos tpot = simulation_.drafter.tpot;
    const Position more = (now_ - span.end) / tpot; // behind the first one
    synthetic_->drafts(span.first, static_cast<std::size_t>(more) + 1, drafts_);
    const Position begun = more + (span.end + more * tpot < now_ ? 1 : 0);
    forwards_ += static_cast<std::uint64_t>(begun);
    draft_forwards_ += begun;
    if (simulation_.record) {
      for (Position i = 0; i <= more; ++i) {
        result_.record.spans.push_back(span);
        result_.record.spans.back().start += i * tpot;
        result_.record.spans.back().end += i * tpot;
        result_.record.spans.back().first += i;
      }
    }
    result_.drafter_busy += span.end - span.start + more * tpot;
    if (begun > 0) {
      span.start = span.end + (begun - 1) * tpot;
      span.end = span.start + tpot;
      span.first += begun;
    }
  }

  // A draft is made behind the path as it was when its task began; drafts alone may have been
  // replaced by equal committed tokens since.
  std::span<const Token> draft_path() const {
    const auto path = session_.path();
    return path.first(std::min(path.size(), static_cast<std::size_t>(task_.from)));
  }

  void free(VirtualServer &server, Fate fate) {
    server.busy = false;
    server.freed_at = now_;
    server.span.fate = fate;
    server.span.end = now_;
    account(server.span);
  }

  void account(const SpanRecord &span) {
    (span.server < 0 ? result_.drafter_busy : result_.target_busy) += span.end - span.start;
    if (simulation_.record) {
      result_.record.spans.push_back(span);
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
      if (job == task_.job) {
        task_.max_drafts = 1; // the one being made, where it cannot be stopped
      }
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
  SyntheticModel *synthetic_;
  Session session_;
  std::vector<VirtualServer> targets_;
  VirtualServer drafter_;
  DraftTask task_;              // the drafter's latest
  Position drafts_in_hand_ = 0; // drafts of it that are reported together
  std::vector<Draft> drafts_;
  Nanos now_ = 0;
  // With drafts in hand a run may last twice as long, and all servers may be busy all the time.
  const Nanos latest_ = std::numeric_limits<Nanos>::max() / 4 / simulation_.sp;
  std::uint64_t forwards_ = 0; // begun, prefills included
  std::int64_t draft_forwards_ = 0;
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
  if (simulation.model != nullptr) {
    return VirtualClock(simulation, *simulation.model, nullptr).run();
  }
  std::optional<SyntheticText> own;
  if (simulation.text == nullptr) {
    own.emplace(simulation.right.has_value()
                    ? SyntheticIds(simulation.seed, *simulation.right, simulation.prompt_tokens)
                    : SyntheticIds(simulation.seed, simulation.acceptance),
                simulation.prompt_tokens);
  }
  SyntheticModel synthetic(simulation.text != nullptr ? *simulation.text : *own);
  return VirtualClock(simulation, synthetic, &synthetic).run();
}

} // namespace dsi
