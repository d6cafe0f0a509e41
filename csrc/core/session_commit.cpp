// How tokens become final: the rows in their turn, the failures in theirs, and what both leave
// behind.
#include <algorithm>

#include "core/session.h"

namespace dsi {

Session::Window *Session::judged_next() {
  const auto found = std::find_if(windows_.begin(), windows_.end(), [&](const Window &window) {
    return window.state == Window::State::kJudged && window.covers(committed_);
  });
  return found != windows_.end() ? &*found : nullptr;
}

void Session::advance() {
  while (!finished()) {
    if (Window *window = judged_next()) {
      window->used = true;
      commit(window->rows[static_cast<std::size_t>(committed_ - window->first)]);
    } else if (!retire_failed_windows()) {
      break;
    }
  }
  drop_spent_windows();
}

// A window that failed may have failed over drafts that turn out wrong, so it counts only once
// everything before it is committed and no other forward can still answer for the next position.
// Then the position is uncovered and verified again; failures side by side are one failure, or
// there would be no retry.
bool Session::retire_failed_windows() {
  if (std::any_of(windows_.begin(), windows_.end(), [&](const Window &window) {
        return window.state == Window::State::kRunning && window.covers(committed_);
      })) {
    return false;
  }
  std::optional<JobError> error;
  const auto retired = std::erase_if(windows_, [&](Window &window) {
    const bool due = window.state == Window::State::kFailed && window.first <= committed_;
    if (due && window.covers(committed_) && !error.has_value()) {
      error = std::move(window.error);
    }
    return due;
  });
  if (error.has_value() && ++failures_in_a_row_ == 1) {
    first_failure_ = *std::move(error);
  } else if (error.has_value()) {
    error_ = first_failure_;
    finish(FinishReason::kError);
  }
  return retired != 0;
}

void Session::commit(JudgedRow row) {
  failures_in_a_row_ = 0;
  const bool has_draft = !chain_.empty();
  const bool judged_draft = has_draft && !row.bonus;
  const bool goes_on = has_draft && chain_.front().id == row.token;
  if (judged_draft) {
    count_judged(goes_on);
  } else {
    ++metrics_.bonus;
  }
  if (goes_on) {
    chain_.pop_front();
    ++committed_;
  } else {
    metrics_.drafts_unjudged += chain_size() - (judged_draft ? 1 : 0);
    chain_.clear();
    path_.cut(static_cast<std::size_t>(committed_));
    path_.push_back(row.token);
    ++committed_;
    if (has_draft) {
      bump_epoch();
    }
  }
  if (!judged_draft || !goes_on) {
    epoch_start_ = committed_;
  }
  const Token token = row.token;
  ++metrics_.emitted;
  emitted_.push_back(std::move(row));
  const std::optional<std::int64_t> stop =
      config_.stop_strings.has_value() ? config_.stop_strings->push(token) : std::nullopt;
  if (stop.has_value()) {
    stop_bytes_ = *stop;
    finish(FinishReason::kStopString);
  } else if (std::find(config_.stop_ids.begin(), config_.stop_ids.end(), token) !=
             config_.stop_ids.end()) {
    finish(FinishReason::kStopToken);
  } else if (committed_ == end_) {
    finish(FinishReason::kLength);
  }
}

void Session::count_judged(bool accepted) {
  const auto offset = static_cast<std::size_t>(committed_ - epoch_start_);
  if (metrics_.judged_at.size() <= offset) {
    metrics_.judged_at.resize(offset + 1);
    metrics_.accepted_at.resize(offset + 1);
  }
  ++metrics_.judged_at[offset];
  ++(accepted ? metrics_.accepted : metrics_.rejected);
  metrics_.accepted_at[offset] += accepted ? 1 : 0;
}

// Everything that was asked for on the ground of the drafts behind a rejection is out of date.
void Session::bump_epoch() {
  ++epoch_;
  for (const Window &window : windows_) {
    let_go(window);
  }
  windows_.clear();
  let_go_of_draft();
}

// A window is spent when all its rows are committed, by itself or by another one's frontier.
void Session::drop_spent_windows() {
  std::erase_if(windows_, [&](const Window &window) {
    const bool spent = finished() || window.last() < committed_;
    if (spent) {
      let_go(window);
    }
    return spent;
  });
}

void Session::let_go(const Window &window) {
  if (window.state == Window::State::kRunning) {
    stale_verifies_.push_back(window.job);
    newly_stale_.push_back(window.job);
  } else if (window.state == Window::State::kJudged && !window.used) {
    ++metrics_.wasted_verifies; // judged ahead of its turn, in vain
  }
}

void Session::let_go_of_draft() {
  if (draft_.has_value()) {
    stale_drafts_.push_back(draft_->job);
    newly_stale_.push_back(draft_->job);
    draft_.reset();
  }
}

void Session::finish(FinishReason reason) {
  reason_ = reason;
  metrics_.drafts_unjudged += chain_size();
  chain_.clear();
  path_.cut(static_cast<std::size_t>(committed_));
  drop_spent_windows();
  let_go_of_draft();
}

} // namespace dsi
