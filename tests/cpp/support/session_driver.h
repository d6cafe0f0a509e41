// Drives one Session with whatever a pool of unreliable servers could do to it, in random order,
// and checks after every event what a Session promises. Reproducible from its seed.
#pragma once

#include <algorithm>
#include <numeric>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/session.h"
#include "toy_model.h"

namespace dsi::test {

// How unreliable the servers are: the share of answers of each kind.
struct Mischief {
  double verify_fails = 0.0;
  double rows_missing = 0.2; // rows cut off, also where the drafts were right
  double gives_up = 0.02;    // an unasked-for kStopped
  double draft_fails = 0.0;  // the drafter dies for this request
  double draft_empty = 0.1;
  double draft_outside = 0.0; // an id outside the vocabulary
  double too_many_drafts = 0.1;
  double cancels = 0.0; // per step
  double answers_twice = 0.1;
};

// What the text must be, found without a Session.
struct Expected {
  std::vector<Token> tokens;
  FinishReason reason = FinishReason::kLength;
  std::int64_t stop_bytes = -1;
};

class RandomDriver {
public:
  RandomDriver(SessionConfig config, std::vector<Token> prompt, ToyModel model, Expected expected,
               Mischief mischief, std::uint64_t seed)
      : session_(config, prompt),
        run_ahead_(std::max(config.policy.run_ahead, config.policy.lookahead)),
        mode_(config.policy.mode), max_window_(config.policy.max_window),
        end_(session_.prompt_tokens() + config.max_new_tokens),
        drafter_context_(config.drafter_context), model_(model), expected_(std::move(expected)),
        mischief_(mischief), random_(seed), servers_(1 + pick(8)) {
    if (config.target_context >= 0)
      end_ = std::min(end_, config.target_context);
  }

  // Throws std::logic_error naming the broken promise.
  void run() {
    for (int step = 0; !session_.finished(); ++step) {
      require(step < 20000, "the session does not end");
      act();
      follow();
    }
    const auto reason = session_.reason();
    while (!verifies_.empty() || !drafts_.empty()) {
      answer_any();
      follow();
      require(session_.reason() == reason, "the reason changes after the end");
    }
    check_end();
  }

  const Session &session() const { return session_; }
  std::int64_t stale_answers() const { return stale_answers_; }

private:
  struct Verify {
    VerifyTask task;
    std::vector<Token> path;
    bool stale = false;
  };
  struct Drafting {
    DraftTask task;
    std::vector<Token> path;
    bool stale = false;
  };
  struct Snapshot {
    std::vector<Token> path;
    Position committed;
    Epoch epoch;
    Urgency urgency;
    bool wants_draft;
    bool operator==(const Snapshot &) const = default;
  };

  static void require(bool ok, const std::string &what) {
    if (!ok)
      throw std::logic_error(what);
  }
  int pick(std::size_t n) { return static_cast<int>(random_() % n); }
  bool chance(double share) { return std::uniform_real_distribution<>(0.0, 1.0)(random_) < share; }
  Snapshot snapshot() const {
    return {std::vector<Token>(session_.path().begin(), session_.path().end()),
            session_.committed(), session_.epoch(), session_.verify_urgency(),
            session_.wants_draft()};
  }

  // -- actions ------------------------------------------------------------------------------------
  void act() {
    if (chance(mischief_.cancels)) {
      session_.cancel(FinishReason::kCancelled, {});
      cancelled_ = true;
      return;
    }
    if (chance(0.01)) {
      const int lookahead = 1 + pick(6);
      run_ahead_ = lookahead + pick(12);
      max_window_ = lookahead + pick(12);
      session_.set_lookahead(lookahead, run_ahead_, static_cast<int>(max_window_));
      return;
    }
    const bool can_verify = verifies_.size() < static_cast<std::size_t>(servers_) &&
                            session_.verify_urgency() != Urgency::kNone;
    // A drafter that cannot be stopped goes on with its stale job; another one takes over, or none.
    const bool can_draft = session_.wants_draft() && drafts_.size() < 2;
    require(can_verify || can_draft || !verifies_.empty() || !drafts_.empty(),
            "nothing runs and nothing is offered");
    const int choice = pick(4);
    if (can_verify && choice < 2) {
      take_verify();
    } else if (can_draft && choice < 3) {
      take_draft();
    } else if (!verifies_.empty() || !drafts_.empty()) {
      answer_any();
    }
  }

  void take_verify() {
    const bool covered = next_is_running();
    const bool urgent = session_.verify_urgency() == Urgency::kUrgent;
    const VerifyTask task = session_.take_verify();
    const auto size = static_cast<Position>(session_.path().size());
    require(task.urgent == urgent, "urgency differs between offer and task");
    require(ids_.insert(task.job).second && task.job != 0, "a job id is used twice");
    require(task.first >= session_.committed() && task.window >= 0, "a window starts too early");
    require(!task.urgent || task.first == session_.committed(),
            "urgent, but not the next position");
    require(task.first + task.window <= size, "a window has drafts that do not exist");
    require(task.first + task.window <= end_ - 1, "judged past the end");
    require(task.window <= max_window_, "a window is too long");
    require(mode_ == Mode::kDSI || !covered, "two verifies at once without DSI");
    require(mode_ != Mode::kNonSI || task.window == 0, "non-SI judges a draft");
    const auto path = session_.path().first(static_cast<std::size_t>(task.first + task.window));
    verifies_.push_back({task, {path.begin(), path.end()}, false});
    ++taken_;
  }

  void take_draft() {
    const DraftTask task = session_.take_draft();
    const auto size = static_cast<Position>(session_.path().size());
    require(ids_.insert(task.job).second && task.job != 0, "a job id is used twice");
    require(mode_ != Mode::kNonSI, "non-SI drafts");
    require(task.from == size && task.max_drafts >= 1,
            "a draft task does not start behind the path");
    require(task.from + task.max_drafts <= end_ - 1, "drafts past the last usable position");
    require(task.from + task.max_drafts - session_.committed() <= run_ahead_,
            "run-ahead cap passed");
    require(drafter_context_ < 0 || task.from + task.max_drafts <= drafter_context_,
            "drafts past the drafter's context");
    drafts_.push_back({task, {session_.path().begin(), session_.path().end()}, false});
  }

  void answer_any() {
    const auto index = static_cast<std::size_t>(pick(verifies_.size() + drafts_.size()));
    if (index < verifies_.size()) {
      const Verify verify = verifies_[index];
      verifies_.erase(verifies_.begin() + static_cast<std::ptrdiff_t>(index));
      const Snapshot before = snapshot();
      answer(verify);
      require(!verify.stale || snapshot() == before, "a stale verify changes something");
      stale_answers_ += verify.stale ? 1 : 0;
      answered_.push_back(verify);
    } else {
      const auto at = drafts_.begin() + static_cast<std::ptrdiff_t>(index - verifies_.size());
      const Drafting drafting = *at;
      drafts_.erase(at);
      const Snapshot before = snapshot();
      answer(drafting);
      require(!drafting.stale || dead_ || snapshot() == before, "a stale draft changes something");
    }
    if (!answered_.empty() && chance(mischief_.answers_twice)) {
      const Snapshot before = snapshot();
      session_.judged(answered_[static_cast<std::size_t>(pick(answered_.size()))].task.job,
                      {JudgedRow{0, 0.0F, {}}});
      require(snapshot() == before, "a second answer changes something");
    }
  }

  void answer(const Verify &verify) {
    const JobId job = verify.task.job;
    if (chance(verify.stale ? 0.3 : mischief_.gives_up)) {
      session_.stopped(job);
      ++stopped_;
    } else if (chance(mischief_.verify_fails)) {
      errors_.insert("error " + std::to_string(job));
      ++failed_;
      session_.verify_failed(job, {"error " + std::to_string(job), nullptr});
    } else {
      std::vector<JudgedRow> rows;
      const bool cut_at_mismatch = chance(0.5);
      for (Position p = verify.task.first; p <= static_cast<Position>(verify.path.size()); ++p) {
        rows.push_back(
            {model_.target(std::span(verify.path).first(static_cast<std::size_t>(p))), 0.0F, {}});
        const bool last = p == static_cast<Position>(verify.path.size());
        if (cut_at_mismatch && !last &&
            rows.back().token != verify.path[static_cast<std::size_t>(p)])
          break;
      }
      if (chance(mischief_.rows_missing))
        rows.resize(1 + static_cast<std::size_t>(pick(rows.size())));
      session_.judged(job, std::move(rows));
    }
  }

  void answer(const Drafting &drafting) {
    const JobId job = drafting.task.job;
    if (chance(drafting.stale ? 0.3 : mischief_.gives_up)) {
      session_.stopped(job);
      return;
    }
    if (chance(mischief_.draft_fails)) {
      dead_ = true;
      session_.draft_failed(job, {"the drafter died", nullptr});
      return;
    }
    std::vector<Draft> drafts;
    std::vector<Token> path = drafting.path;
    const int most = drafting.task.max_drafts + (chance(mischief_.too_many_drafts) ? 3 : 0);
    const int count = chance(mischief_.draft_empty) ? 0 : 1 + pick(static_cast<std::size_t>(most));
    for (int i = 0; i < count; ++i) {
      const bool outside = chance(mischief_.draft_outside);
      const Token bad = chance(0.5) ? -1 : model_.vocab_size + pick(9);
      drafts.push_back({outside ? bad : model_.draft(path), nullptr});
      path.push_back(drafts.back().id);
    }
    count_late(drafting, drafts);
    const std::size_t before = session_.path().size();
    session_.drafted(job, drafts);
    const auto after = static_cast<Position>(session_.path().size());
    require(after <= std::max<Position>(static_cast<Position>(before),
                                        drafting.task.from + drafting.task.max_drafts),
            "more drafts joined than were asked for");
    dead_ = dead_ || !session_.metrics().drafter_error.empty();
  }

  // Drafts that met an equal token the target had committed meanwhile are neither accepted nor
  // unjudged.
  void count_late(const Drafting &drafting, const std::vector<Draft> &drafts) {
    Position at = drafting.task.from;
    for (const Draft &draft : drafts) {
      if (drafting.stale || at >= session_.committed() ||
          at > drafting.task.from + drafting.task.max_drafts - 1 ||
          draft.id != session_.path()[static_cast<std::size_t>(at)])
        break;
      ++late_equal_;
      ++at;
    }
  }

  // -- promises -----------------------------------------------------------------------------------
  bool next_is_running() const {
    return std::any_of(verifies_.begin(), verifies_.end(), [&](const Verify &verify) {
      return !verify.stale && verify.task.first <= session_.committed() &&
             session_.committed() <= verify.task.first + verify.task.window;
    });
  }

  void follow() {
    for (const JudgedRow &row : session_.take_emitted())
      emitted_.push_back(row.token);
    require(emitted_.size() <= expected_.tokens.size() &&
                std::equal(emitted_.begin(), emitted_.end(), expected_.tokens.begin()),
            "the text is not the target's own");
    require(session_.committed() ==
                session_.prompt_tokens() + static_cast<Position>(emitted_.size()),
            "committed and emitted differ");
    const auto tail = session_.path().subspan(static_cast<std::size_t>(session_.prompt_tokens()));
    require(std::equal(emitted_.begin(), emitted_.end(), tail.begin()),
            "the path lost what was emitted");
    require(session_.epoch() >= epoch_, "the epoch went back");
    epoch_ = session_.epoch();
    for (const JobId job : session_.take_stale())
      mark_stale(job);
    if (session_.finished()) {
      require(session_.verify_urgency() == Urgency::kNone && !session_.wants_draft(),
              "work after the end");
      require(static_cast<Position>(session_.path().size()) == session_.committed(),
              "drafts after the end");
      for (const Verify &verify : verifies_)
        require(verify.stale, "a verify is not stale after the end");
      return;
    }
    require(static_cast<Position>(session_.path().size()) <= end_ - 1 ||
                session_.committed() == static_cast<Position>(session_.path().size()),
            "a draft behind the last usable position");
    const bool drafting =
        session_.wants_draft() ||
        std::any_of(drafts_.begin(), drafts_.end(), [](const Drafting &d) { return !d.stale; });
    require(next_is_running() || session_.verify_urgency() == Urgency::kUrgent ||
                (mode_ == Mode::kSI && drafting),
            "the next position is neither being judged nor offered");
  }

  void mark_stale(JobId job) {
    int found = 0;
    for (Verify &verify : verifies_) {
      found += verify.task.job == job && !verify.stale ? 1 : 0;
      verify.stale = verify.stale || verify.task.job == job;
    }
    for (Drafting &drafting : drafts_) {
      found += drafting.task.job == job && !drafting.stale ? 1 : 0;
      drafting.stale = drafting.stale || drafting.task.job == job;
    }
    require(found == 1, "a stale job is not running, or is reported twice");
  }

  void check_end() const {
    const Metrics &m = session_.metrics();
    if (cancelled_) {
      require(session_.reason() == FinishReason::kCancelled, "cancelled, but ended otherwise");
    } else if (session_.reason() == FinishReason::kError) {
      require(failed_ >= 2 && errors_.contains(session_.error().message),
              "failed without two failures");
    } else {
      require(emitted_ == expected_.tokens, "the text is cut short");
      require(session_.reason() == expected_.reason, "the wrong reason");
      require(session_.stop_bytes() == expected_.stop_bytes, "the wrong stop_bytes");
    }
    require(m.emitted == static_cast<std::int64_t>(emitted_.size()), "metrics: emitted");
    require(m.emitted == m.accepted + m.rejected + m.bonus, "metrics: emitted is not the sum");
    require(m.drafted == m.accepted + m.rejected + m.drafts_unjudged + late_equal_,
            "metrics: drafted");
    require(m.verifies == taken_ && m.stopped_verifies == stopped_ && m.failed_verifies == failed_,
            "metrics: verifies, stopped, failed");
    const std::int64_t used =
        m.verifies - m.wasted_verifies - m.stopped_verifies - m.failed_verifies;
    require(used <= m.emitted && used >= (m.emitted > 0 ? 1 : 0), "metrics: used verifies");
    require(std::accumulate(m.judged_at.begin(), m.judged_at.end(), std::int64_t{0}) ==
                    m.accepted + m.rejected &&
                std::accumulate(m.accepted_at.begin(), m.accepted_at.end(), std::int64_t{0}) ==
                    m.accepted,
            "metrics: judged_at and accepted_at");
    require(session_.epoch() == static_cast<Epoch>(m.rejected), "an epoch without a rejection");
  }

  Session session_;
  int run_ahead_;
  Mode mode_;
  Position max_window_;
  Position end_;
  Position drafter_context_;
  ToyModel model_;
  Expected expected_;
  Mischief mischief_;
  std::mt19937_64 random_;
  int servers_;
  std::vector<Verify> verifies_;
  std::vector<Drafting> drafts_;
  std::vector<Verify> answered_;
  std::set<JobId> ids_;
  std::set<std::string> errors_;
  std::vector<Token> emitted_;
  Epoch epoch_ = 0;
  bool cancelled_ = false;
  bool dead_ = false;
  std::int64_t taken_ = 0, stopped_ = 0, failed_ = 0, late_equal_ = 0, stale_answers_ = 0;
};

} // namespace dsi::test
