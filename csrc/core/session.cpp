#include "core/session.h"

#include <algorithm>
#include <stdexcept>

namespace dsi {

namespace {

bool take(std::vector<JobId> &jobs, JobId job) {
  const auto found = std::find(jobs.begin(), jobs.end(), job);
  if (found == jobs.end()) {
    return false;
  }
  jobs.erase(found);
  return true;
}

} // namespace

Session::Session(SessionConfig config, std::span<const Token> prompt)
    : config_(std::move(config)), prompt_tokens_(static_cast<Position>(prompt.size())),
      end_(prompt_tokens_ + config_.max_new_tokens), path_(prompt), committed_(prompt_tokens_),
      epoch_start_(prompt_tokens_) {
  if (prompt.empty()) {
    throw std::invalid_argument("prompt: at least one token is needed, got none");
  }
  if (config_.max_new_tokens < 1) {
    throw std::invalid_argument("max_new_tokens: at least 1 is needed, got " +
                                std::to_string(config_.max_new_tokens));
  }
  if (config_.policy.lookahead < 1 || config_.policy.max_window < 1) {
    throw std::invalid_argument("lookahead, max_window: at least 1 is needed, got " +
                                std::to_string(config_.policy.lookahead) + " and " +
                                std::to_string(config_.policy.max_window));
  }
  config_.policy.run_ahead = std::max(config_.policy.run_ahead, config_.policy.lookahead);
  if (config_.target_context >= 0) {
    if (prompt_tokens_ >= config_.target_context) {
      throw std::invalid_argument("prompt: " + std::to_string(prompt_tokens_) +
                                  " tokens leave no room in the target's context of " +
                                  std::to_string(config_.target_context));
    }
    end_ = std::min(end_, config_.target_context);
  }
}

// -- what a free server may do ----------------------------------------------------------------

bool Session::covered(Position position) const {
  return std::any_of(windows_.begin(), windows_.end(),
                     [&](const Window &window) { return window.covers(position); });
}

Position Session::covered_end() const {
  Position end = committed_;
  for (const Window &window : windows_) {
    end = std::max(end, window.last());
  }
  return end;
}

bool Session::drafter_is_dry() const {
  return dry_length_ == static_cast<Position>(path_.size()) && dry_epoch_ == epoch_;
}

bool Session::may_draft_on() const {
  const auto next = static_cast<Position>(path_.size());
  if (finished() || drafting_ended_ || drafting_paused_ || config_.policy.mode == Mode::kNonSI ||
      drafter_is_dry()) {
    return false;
  }
  // The target's own token fills end_-1, so a draft there could not save a forward.
  const bool usable = next <= end_ - 2;
  const bool inside = config_.drafter_context < 0 || next < config_.drafter_context;
  return usable && inside;
}

Urgency Session::verify_urgency() const {
  if (finished()) {
    return Urgency::kNone;
  }
  const bool next_is_covered = covered(committed_);
  switch (config_.policy.mode) {
  case Mode::kNonSI:
    return next_is_covered ? Urgency::kNone : Urgency::kUrgent;
  case Mode::kSI: {
    const bool drafting = draft_.has_value() || may_draft_on();
    const bool ready = chain_size() >= config_.policy.lookahead || !drafting;
    return !next_is_covered && ready ? Urgency::kUrgent : Urgency::kNone;
  }
  case Mode::kDSI: {
    if (!next_is_covered) {
      return Urgency::kUrgent;
    }
    const bool uncovered = static_cast<Position>(path_.size()) > covered_end();
    const bool flush = uncovered && !draft_.has_value() && !may_draft_on();
    return drafts_to_window() <= 0 || flush ? Urgency::kSpeculative : Urgency::kNone;
  }
  }
  return Urgency::kNone;
}

Position Session::drafts_to_window() const {
  return config_.policy.lookahead - (static_cast<Position>(path_.size()) - covered_end());
}

VerifyTask Session::take_verify() {
  const bool urgent = !covered(committed_);
  const Position first = urgent ? committed_ : covered_end();
  const Position drafts = static_cast<Position>(path_.size()) - first;
  const VerifyTask task{next_job_++, first, std::min<Position>(drafts, config_.policy.max_window),
                        urgent};
  Window window;
  window.job = task.job;
  window.first = task.first;
  window.window = task.window;
  windows_.push_back(std::move(window));
  ++metrics_.verifies;
  return task;
}

bool Session::wants_draft() const {
  if (draft_.has_value() || !may_draft_on()) {
    return false;
  }
  if (config_.policy.mode == Mode::kSI) {
    return windows_.empty() && chain_size() < config_.policy.lookahead;
  }
  return chain_size() < config_.policy.run_ahead;
}

DraftTask Session::take_draft() {
  const auto from = static_cast<Position>(path_.size());
  const int cap =
      config_.policy.mode == Mode::kSI ? config_.policy.lookahead : config_.policy.run_ahead;
  Position most = std::min<Position>(cap - chain_size(), end_ - 1 - from);
  if (config_.drafter_context >= 0) {
    most = std::min(most, config_.drafter_context - from);
  }
  draft_ = DraftTask{next_job_++, from, static_cast<int>(most)};
  ++metrics_.draft_jobs;
  return *draft_;
}

// -- what came of it --------------------------------------------------------------------------

void Session::drafted(JobId job, std::span<const Draft> drafts) {
  if (take(stale_drafts_, job) || !draft_.has_value() || draft_->job != job) {
    return;
  }
  Position at = draft_->from;
  drafts = drafts.first(std::min(drafts.size(), static_cast<std::size_t>(draft_->max_drafts)));
  draft_.reset();
  if (drafts.empty() && at == static_cast<Position>(path_.size())) {
    dry_length_ = at;
    dry_epoch_ = epoch_;
  }
  for (const Draft &draft : drafts) {
    if (draft.id < 0 || (config_.vocab_size >= 0 && draft.id >= config_.vocab_size)) {
      end_drafting("the drafter proposed the id " + std::to_string(draft.id) +
                   ", outside the vocabulary of " + std::to_string(config_.vocab_size));
      return;
    }
    ++metrics_.drafted;
    // The target may have committed a bonus here while this draft was made: it goes on where they
    // agree, and is out of date where they do not.
    if (at < committed_) {
      if (path_[static_cast<std::size_t>(at)] != draft.id) {
        ++metrics_.drafts_unjudged;
        return;
      }
    } else {
      path_.push_back(draft.id);
      chain_.push_back(draft);
    }
    ++at;
  }
}

void Session::draft_failed(JobId job, const JobError &error) {
  const bool known = take(stale_drafts_, job) || (draft_.has_value() && draft_->job == job);
  if (draft_.has_value() && draft_->job == job) {
    draft_.reset();
  }
  if (known) {
    end_drafting(error.message);
  }
}

void Session::end_drafting(const std::string &why) {
  drafting_ended_ = true;
  if (metrics_.drafter_error.empty()) {
    metrics_.drafter_error = why;
  }
}

Session::Window *Session::running(JobId job) {
  const auto found = std::find_if(windows_.begin(), windows_.end(), [&](const Window &window) {
    return window.job == job && window.state == Window::State::kRunning;
  });
  return found != windows_.end() ? &*found : nullptr;
}

void Session::judged(JobId job, std::vector<JudgedRow> rows) {
  if (take(stale_verifies_, job)) {
    ++metrics_.wasted_verifies;
    return;
  }
  if (Window *window = running(job)) {
    // Rows behind a mismatch may be missing; what is not there is not covered.
    window->window = std::min(window->window, static_cast<Position>(rows.size()) - 1);
    window->state = Window::State::kJudged;
    emitted_.reserve(emitted_.size() + rows.size());
    window->rows = std::move(rows);
    advance();
  }
}

void Session::verify_failed(JobId job, JobError error) {
  if (take(stale_verifies_, job)) {
    ++metrics_.failed_verifies;
    return;
  }
  if (Window *window = running(job)) {
    ++metrics_.failed_verifies;
    window->state = Window::State::kFailed;
    window->error = std::move(error);
    advance();
  }
}

void Session::stopped(JobId job) {
  if (take(stale_drafts_, job)) {
    return;
  }
  if (take(stale_verifies_, job)) {
    ++metrics_.stopped_verifies;
    return;
  }
  // Nobody asked for it: the server gave up by itself. The work is offered again.
  if (draft_.has_value() && draft_->job == job) {
    draft_.reset();
  } else if (const Window *window = running(job)) {
    ++metrics_.stopped_verifies;
    windows_.erase(windows_.begin() + (window - windows_.data()));
    advance(); // a failure may have waited for this one
  }
}

void Session::cancel(FinishReason reason, JobError error) {
  if (!finished()) {
    error_ = std::move(error);
    finish(reason);
  }
}

void Session::set_lookahead(int lookahead, int run_ahead, int max_window) {
  config_.policy.max_window = std::max(max_window, lookahead);
  config_.policy.lookahead = lookahead;
  config_.policy.run_ahead = std::max(run_ahead, lookahead);
}

// -- what follows -----------------------------------------------------------------------------

std::vector<JudgedRow> Session::take_emitted() { return std::exchange(emitted_, {}); }

std::vector<JobId> Session::take_stale() { return std::exchange(newly_stale_, {}); }

const Draft *Session::draft_at(Position position) const {
  const Position index = position - committed_;
  return index >= 0 && index < static_cast<Position>(chain_.size())
             ? &chain_[static_cast<std::size_t>(index)]
             : nullptr;
}

const Draft *Session::frontier_draft(JobId job) const {
  for (const Window &window : windows_) {
    if (window.job == job) {
      return draft_at(window.last());
    }
  }
  return nullptr;
}

} // namespace dsi
