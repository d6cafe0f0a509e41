// The decode loop of one request, as a pure state machine: events in, work and tokens out.
//
// A Session knows no thread, no clock, no tensor and no device. A driver (virtual clock, real
// threads) asks it what a free server should do (verify_urgency/take_verify,
// wants_draft/take_draft), tells it what came of each task (drafted, judged, failed, stopped), and
// then reads what follows: tokens emitted, tasks whose result will not be read any more, the end.
// Work is pulled, not pushed, so that several Sessions can share one pool of servers; see
// Dispatcher.
//
// Not thread-safe: the driver serialises the calls. Every task taken must be answered exactly once.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/metrics.h"
#include "core/policy.h"
#include "core/stop.h"
#include "core/token_sequence.h"
#include "core/types.h"

namespace dsi {

struct SessionConfig {
  Policy policy;
  std::int64_t max_new_tokens = 1;   // >= 1
  std::int64_t target_context = -1;  // positions of prompt and output together; -1: no limit
  std::int64_t drafter_context = -1; // drafts stop at this position; -1: no limit
  std::vector<Token> stop_ids;       // emitted, then the request ends
  std::int64_t vocab_size = -1;      // drafts outside it end the drafting; -1: unchecked
  std::optional<StopMatcher> stop_strings;
};

// Judge positions first .. first+window (one row more than drafts), given path()[0, first+window).
struct VerifyTask {
  JobId job = 0;
  Position first = 0;
  Position window = 0; // drafts judged; 0 is the empty window
  bool urgent = false; // its first position is the next one to commit
};

// Draft up to max_drafts tokens behind path()[0, from).
struct DraftTask {
  JobId job = 0;
  Position from = 0;
  int max_drafts = 1;
};

enum class Urgency : std::uint8_t { kNone, kSpeculative, kUrgent };

class Session {
public:
  // Throws std::invalid_argument where the prompt is empty or leaves no room in the target's
  // context.
  Session(SessionConfig config, std::span<const Token> prompt);

  // -- what a free server may do --------------------------------------------------------------
  Urgency verify_urgency() const;
  VerifyTask take_verify(); // verify_urgency() is not kNone
  // Drafts that a window of `lookahead` drafts still lacks; 0 or less: it is full.
  Position drafts_to_window() const;
  bool wants_draft() const;
  DraftTask take_draft(); // wants_draft()

  // -- what came of it. Answers to tasks of an older epoch change nothing but the counters -----
  void drafted(JobId job,
               std::span<const Draft> drafts); // none: nothing to propose behind this prefix
  void draft_failed(JobId job, const JobError &error); // drafting ends, the request goes on
  void judged(JobId job, std::vector<JudgedRow> rows); // at least one row
  void verify_failed(JobId job, JobError error);       // tried once more, then the request fails
  void stopped(JobId job);                          // a task of take_stale() did not run to its end
  void cancel(FinishReason reason, JobError error); // kCancelled or kError
  void end_drafting(const std::string &why);        // no drafter (any more): goes on as non-SI
  void pause_drafting(bool paused) { drafting_paused_ = paused; } // drafts there are still count
  void set_lookahead(int lookahead, int run_ahead,
                     int max_window); // from now on; never changes the text

  // -- what follows ---------------------------------------------------------------------------
  // Tokens committed since the last call, in order, each once.
  std::vector<JudgedRow> take_emitted();
  // Tasks whose answer will change nothing. The driver may stop them or let them run.
  std::vector<JobId> take_stale();
  bool finished() const { return reason_ != FinishReason::kNone; }
  FinishReason reason() const { return reason_; }
  bool retrying() const {
    return failures_in_a_row_ > 0;
  }                                                // the verify of the next position failed once
  const JobError &error() const { return error_; } // with kError
  std::int64_t stop_bytes() const {
    return stop_bytes_;
  } // with kStopString: output bytes before it

  // -- what the driver needs to build a job -----------------------------------------------------
  std::span<const Token> path() const { return path_; } // prompt, committed tokens, drafts
  // path()[0, length) for a task, which it may keep.
  TokenPrefix path_of(Position length) { return path_.prefix(static_cast<std::size_t>(length)); }
  Position committed() const { return committed_; } // tokens of path() that are final
  Position prompt_tokens() const { return prompt_tokens_; }
  Epoch epoch() const { return epoch_; }
  const Draft *draft_at(Position position) const; // null where no draft is waiting there
  // Late binding: the draft at the frontier of `job`, null where there is none or the job is stale.
  const Draft *frontier_draft(JobId job) const;
  const Metrics &metrics() const { return metrics_; }
  const Policy &policy() const { return config_.policy; }

private:
  struct Window {
    enum class State : std::uint8_t { kRunning, kJudged, kFailed } state = State::kRunning;
    JobId job = 0;
    Position first = 0;
    Position window = 0;
    std::vector<JudgedRow> rows;
    JobError error;
    bool used = false;                               // a row of it was committed
    Position last() const { return first + window; } // its frontier
    bool covers(Position position) const { return first <= position && position <= last(); }
  };

  Position chain_size() const { return static_cast<Position>(path_.size()) - committed_; }
  bool covered(Position position) const;
  Position covered_end() const; // first position no window in flight judges a draft for
  bool may_draft_on() const;    // apart from the run-ahead cap
  bool drafter_is_dry() const;
  void advance();
  bool retire_failed_windows(); // true where something changed
  Window *running(JobId job);   // null: none of this epoch
  Window *judged_next();        // one that has the next position's row; null: none
  void commit(JudgedRow row);
  void bump_epoch();
  void drop_spent_windows();
  void let_go(const Window &window);
  void let_go_of_draft();
  void count_judged(bool accepted);
  void finish(FinishReason reason);

  SessionConfig config_;
  Position prompt_tokens_;
  Position end_; // first position that will not be produced
  TokenSequence path_;
  Position committed_;
  std::deque<Draft> chain_; // the drafts of path_ behind committed_
  Epoch epoch_ = 0;
  Position epoch_start_;
  std::vector<Window> windows_;       // of the current epoch, running or waiting for their turn
  std::optional<DraftTask> draft_;    // of the current epoch
  std::vector<JobId> stale_verifies_; // still to be answered
  std::vector<JobId> stale_drafts_;
  std::vector<JobId> newly_stale_;
  Position dry_length_ = -1; // nothing to propose behind a path of this length ...
  Epoch dry_epoch_ = 0;      // ... in this epoch
  bool drafting_ended_ = false;
  bool drafting_paused_ = false;
  int failures_in_a_row_ = 0; // without a commit between them
  JobError first_failure_;
  JobId next_job_ = 1;
  std::vector<JudgedRow> emitted_;
  FinishReason reason_ = FinishReason::kNone;
  JobError error_;
  std::int64_t stop_bytes_ = -1;
  Metrics metrics_;
};

} // namespace dsi
