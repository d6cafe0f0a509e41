// Who works on what: the free servers, the sessions' wishes, and the jobs made of them.
#include <algorithm>

#include "runtime/engine.h"
#include "runtime/engine_state.h"

namespace dsi {

namespace {

constexpr std::uint64_t kReplanEvery = 8; // completions between two looks at the latencies

} // namespace

void Engine::dispatch(Retired &retired) {
  if (closing_ || failed_) {
    if (failed_) {
      while (!waiting_.empty()) {
        fail(*waiting_.front(), Trouble::kEngineFailed, failure_);
        retired.push_back(std::move(waiting_.front()));
        waiting_.pop_front();
      }
    }
    follow_all(retired);
    return;
  }
  expire(retired);
  choose_lookahead();
  while (give_verify()) {
  }
  while (give_draft()) {
  }
  give_prefills();
}

// The reader's own wait ends on time too; this is for requests that nobody waits for.
void Engine::expire(Retired &retired) {
  const Nanos now = now_ns();
  const JobError error{"the request ran out of time", nullptr};
  std::erase_if(waiting_, [&](std::unique_ptr<Active> &active) {
    const bool late = active->deadline != 0 && now > active->deadline;
    if (late) {
      fail(*active, Trouble::kTimeout, error);
      retired.push_back(std::move(active));
    }
    return late;
  });
  std::vector<Active *> late;
  for (const auto &[id, active] : actives_) {
    if (!active->ended && active->deadline != 0 && now > active->deadline) {
      late.push_back(active.get());
    }
  }
  for (Active *active : late) {
    fail(*active, Trouble::kTimeout, error);
    follow(*active, retired);
  }
}

void Engine::choose_lookahead() {
  if (completions_ % kReplanEvery != 0 || !estimate_.ready()) {
    return;
  }
  const int sp = static_cast<int>(targets_);
  auto_si_ = estimate_.lookahead(Mode::kSI, sp);
  auto_window_ = estimate_.window();
  auto_dsi_ = std::min(estimate_.lookahead(Mode::kDSI, sp), auto_window_);
  auto_run_ahead_ =
      default_run_ahead(estimate_.target_ms(auto_dsi_), estimate_.drafter_ms(), auto_dsi_, sp);
  for (Session *session : dispatcher_.sessions()) {
    apply_lookahead(owner(session));
  }
}

void Engine::apply_lookahead(Active &active) {
  if (active.auto_lookahead) {
    const bool si = active.session.policy().mode == Mode::kSI;
    const int lookahead = std::min(si ? auto_si_ : auto_dsi_, active.max_window);
    active.session.set_lookahead(lookahead, si ? lookahead : auto_run_ahead_,
                                 std::min(auto_window_, active.max_window));
  }
}

// Of the idle servers, the one whose cache is closest to the request's path; then the one that came
// free last. A retry goes to another server than the one that failed, and waits for it if need be.
Engine::Slot *Engine::best_slot(const Active &active) {
  const int avoid = active.session.retrying() ? active.avoid : -1;
  const auto others = std::count_if(slots_.begin(), slots_.end(), [&](const auto &slot) {
    return slot->verifies && slot->alive && static_cast<int>(slot->index()) != avoid;
  });
  Slot *best = nullptr;
  const auto cached = [&](const Slot &slot) {
    return std::min(active.cached[slot.index()], active.session.committed());
  };
  for (const auto &slot : slots_) {
    const bool barred = others > 0 && static_cast<int>(slot->index()) == avoid;
    if (!slot->verifies || !slot->idle() || barred) {
      continue;
    }
    if (best == nullptr || cached(*slot) > cached(*best) ||
        (cached(*slot) == cached(*best) && slot->freed_at > best->freed_at)) {
      best = slot.get();
    }
  }
  return best;
}

bool Engine::give_verify() {
  Session *session = dispatcher_.next_verify(
      [&](const Session &candidate) { return best_slot(owner(&candidate)) != nullptr; });
  if (session == nullptr) {
    return false;
  }
  Active &active = owner(session);
  Slot &slot = *best_slot(active);
  const VerifyTask task = session->take_verify();
  std::shared_ptr<Job> job =
      make_job(active, JobKind::kVerify, task.job, task.first + task.window, slot);
  job->first = task.first;
  if (active.context->sampling.verification == Verification::kRejection) {
    for (Position position = task.first; position < job->length; ++position) {
      const Draft *draft = session->draft_at(position);
      job->laws.push_back(draft != nullptr ? draft->law : nullptr);
    }
    job->frontier = [this, request = active.id, id = task.job]() -> std::optional<Draft> {
      const std::scoped_lock lock(mutex_);
      const Draft *draft = actives_.at(request)->session.frontier_draft(id);
      return draft != nullptr ? std::optional<Draft>(*draft) : std::nullopt;
    };
  }
  ++active.verifies_out;
  assign(active, slot, std::move(job));
  return true;
}

bool Engine::give_draft() {
  if (drafter_ == nullptr || !drafter_->idle()) {
    return false;
  }
  Slot &slot = *drafter_;
  Session *session = dispatcher_.next_draft();
  if (session == nullptr) {
    return false;
  }
  Active &active = owner(session);
  const DraftTask task = session->take_draft();
  std::shared_ptr<Job> job = make_job(active, JobKind::kDraft, task.job, task.from, slot);
  job->max_drafts = task.max_drafts;
  job->committed = session->committed();
  assign(active, slot, std::move(job));
  return true;
}

// Rule 5 of the dispatch policy: servers without work fill their caches while the first forward
// runs.
void Engine::give_prefills() {
  for (Session *session : dispatcher_.sessions()) {
    Active &active = owner(session);
    if (!session->policy().prefill || session->policy().mode != Mode::kDSI ||
        session->committed() > session->prompt_tokens()) {
      continue;
    }
    for (const auto &slot : slots_) {
      if (slot->verifies && slot->idle() && active.cached[slot->index()] < 0) {
        std::shared_ptr<Job> job =
            make_job(active, JobKind::kPrefill, 0, session->prompt_tokens(), *slot);
        assign(active, *slot, std::move(job));
      }
    }
  }
}

std::shared_ptr<Job> Engine::make_job(Active &active, JobKind kind, JobId id, Position length,
                                      const Slot &slot) {
  auto job = std::make_shared<Job>();
  job->kind = kind;
  job->id = id;
  job->request = active.context;
  job->length = length;
  if (slot.worker->server().needs_tokens())
    job->tokens = active.session.path_of(length);
  return job;
}

void Engine::assign(Active &active, Slot &slot, std::shared_ptr<Job> job) {
  ++active.jobs_out;
  slot.assigned = active.record != nullptr ? now_ns() : 0;
  slot.job = job;
  slot.worker->assign(std::move(job));
}

} // namespace dsi
