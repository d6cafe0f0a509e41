// The life of a request: submitted, admitted, answered, ended. Who works on what is in
// engine_dispatch.cpp, what is recorded of it in engine_record.cpp.
#include "runtime/engine.h"

#include <algorithm>
#include <stdexcept>

#include "runtime/engine_state.h"
#include "runtime/pair_server.h"

namespace dsi {

namespace {

// A server that failed over this many different requests in a row has no more to give.
constexpr std::size_t kMostFailures = 3;

} // namespace

Engine::Engine(Config config) : targets_(config.targets.size()), max_running_(0) {
  if (config.targets.empty()) {
    throw std::invalid_argument("sp: at least 1 target server is needed");
  }
  if (config.max_running < 1) {
    throw std::invalid_argument("max_running: at least 1 is needed, got " +
                                std::to_string(config.max_running));
  }
  max_running_ = static_cast<std::size_t>(config.max_running);
  const auto add = [this](std::unique_ptr<Server> server, const std::string &name, bool verifies,
                          bool drafts) {
    auto slot = std::make_unique<Slot>();
    slot->verifies = verifies;
    slot->drafts = drafts;
    drafter_ = drafts ? slot.get() : drafter_;
    slot->worker = std::make_unique<Worker>(
        static_cast<int>(slots_.size()), name, std::move(server),
        [this](Worker &worker, Worker::Completed done) { completed(worker, std::move(done)); },
        [this](Worker &worker, const JobError &error) { lost(worker, error); });
    slots_.push_back(std::move(slot));
  };
  const bool paired = config.one_worker && targets_ == 1 && config.drafter != nullptr;
  if (paired) {
    add(std::make_unique<PairServer>(std::move(config.targets[0]), std::move(config.drafter)),
        "dsi-pair", true, true);
  }
  for (std::size_t i = 0; i < targets_ && !paired; ++i) {
    add(std::move(config.targets[i]), "dsi-target-" + std::to_string(i), true, false);
  }
  if (config.drafter != nullptr) {
    add(std::move(config.drafter), "dsi-drafter", false, true);
  }
  for (const auto &slot : slots_) {
    slot->worker->start();
  }
}

Engine::~Engine() { close(); }

Ticket Engine::submit(RequestSpec spec) {
  Retired retired;
  const std::scoped_lock lock(mutex_);
  if (closing_) {
    throw EngineUnusable(Trouble::kClosed, {"the engine is closed", nullptr});
  }
  if (failed_) {
    throw EngineUnusable(Trouble::kEngineFailed, failure_);
  }
  auto active = std::make_unique<Active>(next_request_, std::move(spec));
  active->cached.assign(slots_.size() + 1, -1); // one more for a drafter that shares a worker
  const Ticket ticket{next_request_++, active->channel};
  waiting_.push_back(std::move(active));
  admit();
  dispatch(retired);
  return ticket;
}

void Engine::cancel(RequestId request, Trouble trouble, const std::string &message) {
  Retired retired;
  const std::scoped_lock lock(mutex_);
  const auto waiting =
      std::find_if(waiting_.begin(), waiting_.end(),
                   [&](const std::unique_ptr<Active> &active) { return active->id == request; });
  if (waiting != waiting_.end()) {
    fail(**waiting, trouble, {message, nullptr});
    retired.push_back(std::move(*waiting));
    waiting_.erase(waiting);
    return;
  }
  const auto found = actives_.find(request);
  if (found != actives_.end() && !found->second->ended) {
    fail(*found->second, trouble, {message, nullptr});
    follow(*found->second, retired);
    dispatch(retired);
  }
}

void Engine::close() {
  Retired retired;
  {
    const std::scoped_lock lock(mutex_);
    closing_ = true;
    while (!waiting_.empty()) {
      fail(*waiting_.front(), Trouble::kClosed, {"the engine was closed", nullptr});
      retired.push_back(std::move(waiting_.front()));
      waiting_.pop_front();
    }
    for (const auto &[id, active] : actives_) {
      if (!active->ended) {
        fail(*active, Trouble::kClosed, {"the engine was closed", nullptr});
      }
    }
    follow_all(retired);
  }
  // All are told before the first is waited for, so that they end side by side.
  for (const auto &slot : slots_) {
    slot->worker->ask_to_stop();
  }
  if (on_own_worker()) {
    return; // it cannot wait for itself; whoever closes or destroys the engine later does
  }
  const std::scoped_lock once(close_mutex_);
  for (const auto &slot : slots_) {
    slot->worker->close();
  }
}

bool Engine::on_own_worker() const {
  return std::any_of(slots_.begin(), slots_.end(),
                     [](const auto &slot) { return slot->worker->on_this_thread(); });
}

std::size_t Engine::unfinished() const {
  const std::scoped_lock lock(mutex_);
  return running_ + waiting_.size();
}

// -- on a worker's thread ---------------------------------------------------------------------

void Engine::completed(Worker &worker, Worker::Completed done) {
  Retired retired; // destroyed after the lock: its end may run Python
  const std::scoped_lock lock(mutex_);
  Slot &slot = *slots_[static_cast<std::size_t>(worker.index())];
  slot.job.reset();
  slot.freed_at = ++completions_;
  Active &active = *actives_.at(done.job->request->id);
  done.job->tokens = {}; // nobody reads them any more, and the path need not spare them
  measure(active, slot, done);
  const Metrics before = active.record != nullptr ? active.session.metrics() : Metrics{};
  answer(active, slot, done);
  keep_span(active, slot, done, before);
  if (done.outcome.kind == Outcome::Kind::kDone) {
    slot.failed_for.clear();
  } else if (done.outcome.kind == Outcome::Kind::kFailed && done.outcome.blames_server &&
             (done.job->kind != JobKind::kDraft ||
              !slot.verifies)) { // a drafter takes no target with it
    if (done.outcome.server_lost) {
      lose(slot, done.outcome.error);
    } else {
      blame(slot, active.id, done.outcome.error);
    }
  }
  follow(active, retired);
  dispatch(retired);
}

void Engine::lost(Worker &worker, const JobError &error) {
  Retired retired;
  const std::scoped_lock lock(mutex_);
  lose(*slots_[static_cast<std::size_t>(worker.index())], error);
  follow_all(retired);
  dispatch(retired);
}

void Engine::answer(Active &active, Slot &slot, Worker::Completed &done) {
  const Job &job = *done.job;
  --active.jobs_out;
  active.verifies_out -= job.kind == JobKind::kVerify ? 1 : 0;
  if (job.kind == JobKind::kPrefill) {
    // Asked for once. Whoever needs the cache computes what is missing, and meets the error if
    // there is one.
    active.cached[slot.index()] = std::max<Position>(active.cached[slot.index()], 0);
    return;
  }
  Outcome &outcome = done.outcome;
  switch (outcome.kind) {
  case Outcome::Kind::kStopped:
    active.session.stopped(job.id);
    break;
  case Outcome::Kind::kFailed:
    if (job.kind == JobKind::kDraft) {
      active.session.draft_failed(job.id, outcome.error);
    } else {
      active.avoid = static_cast<int>(slot.index());
      active.session.verify_failed(job.id, outcome.error);
    }
    break;
  case Outcome::Kind::kDone:
    if (job.kind == JobKind::kDraft) {
      active.session.drafted(job.id, outcome.drafts);
    } else {
      const Metrics &metrics = active.session.metrics();
      const std::int64_t accepted = metrics.accepted;
      const std::int64_t rejected = metrics.rejected;
      active.session.judged(job.id, std::move(outcome.rows));
      estimate_.judged(metrics.accepted - accepted, metrics.rejected - rejected);
    }
    break;
  }
}

void Engine::measure(Active &active, Slot &slot, const Worker::Completed &done) {
  const Job &job = *done.job;
  const Nanos length = done.end - done.start;
  const bool drafts = job.kind == JobKind::kDraft;
  (drafts ? active.drafter_busy : active.target_busy) += length;
  Position &cached = active.cached[drafts ? slots_.size() : slot.index()];
  const bool warm = cached >= 0; // the first forward pays for the prompt
  if (warm && done.outcome.kind == Outcome::Kind::kDone) {
    if (job.kind == JobKind::kVerify) {
      estimate_.target_forward(job.length - job.first, length);
    } else if (drafts && !done.outcome.drafts.empty()) {
      estimate_.drafter_forward(length / static_cast<Nanos>(done.outcome.drafts.size()));
    }
  }
  if (done.outcome.kind == Outcome::Kind::kDone) {
    cached = job.length;
  }
}

// -- when things go wrong ---------------------------------------------------------------------

void Engine::blame(Slot &slot, RequestId request, const JobError &error) {
  if (std::find(slot.failed_for.begin(), slot.failed_for.end(), request) == slot.failed_for.end()) {
    slot.failed_for.push_back(request);
  }
  if (slot.failed_for.size() >= kMostFailures) {
    lose(slot, error);
  }
}

void Engine::lose(Slot &slot, const JobError &error) {
  if (!slot.alive) {
    return;
  }
  slot.alive = false;
  slot.loss = error;
  if (slot.drafts) {
    for (Session *session : dispatcher_.sessions()) {
      session->end_drafting(error.message);
    }
  }
  if (!slot.verifies) {
    return;
  }
  const bool any_left = std::any_of(slots_.begin(), slots_.end(), [](const auto &other) {
    return other->verifies && other->alive;
  });
  if (any_left) {
    return;
  }
  failed_ = true;
  failure_ = {"no target server is left: " + error.message, error.cause};
  for (const auto &[id, active] : actives_) {
    if (!active->ended) {
      fail(*active, Trouble::kEngineFailed, failure_);
    }
  }
}

void Engine::fail(Active &active, Trouble trouble, JobError error) {
  active.trouble = trouble;
  active.session.cancel(trouble == Trouble::kCancelled ? FinishReason::kCancelled
                                                       : FinishReason::kError,
                        std::move(error));
  end(active);
}

// -- what a step brings -----------------------------------------------------------------------

void Engine::follow(Active &active, Retired &retired) {
  std::vector<JudgedRow> emitted = active.session.take_emitted();
  if (!emitted.empty() && !active.ended) {
    const Nanos now = now_ns();
    keep_commits(active, now);
    active.first_token = active.first_token == 0 ? now : active.first_token;
    if (active.watches_cost) {
      const double plain_ns = estimate_.ready_target() ? estimate_.target_ms(0) * 1e6 : 0.0;
      const auto count = static_cast<std::int64_t>(emitted.size());
      active.session.pause_drafting(!active.break_even.committed(count, now, plain_ns));
    }
    active.channel->push(std::move(emitted));
  }
  for (const JobId stale : active.session.take_stale()) {
    for (const auto &slot : slots_) {
      if (slot->job != nullptr && slot->job->id == stale && slot->job->request->id == active.id) {
        slot->worker->stop_job(stale, active.id);
      }
    }
  }
  if (active.session.finished() && !active.ended) {
    end(active);
  }
  if (active.ended && active.jobs_out > 0) {
    for (const auto &slot : slots_) { // no Session knows of prefills
      if (slot->job != nullptr && slot->job->request->id == active.id &&
          slot->job->kind == JobKind::kPrefill) {
        slot->worker->stop_job(slot->job->id, active.id);
      }
    }
  }
  if (active.ended && active.jobs_out == 0) {
    for (const auto &slot : slots_) {
      slot->worker->release(active.id);
    }
    const auto found = actives_.find(active.id);
    retired.push_back(std::move(found->second));
    actives_.erase(found);
  }
}

void Engine::follow_all(Retired &retired) {
  std::vector<Active *> all;
  for (const auto &[id, active] : actives_) {
    all.push_back(active.get());
  }
  for (Active *active : all) {
    follow(*active, retired);
  }
}

// The reader hears of the end at once, also while forwards that nobody reads are still running.
void Engine::end(Active &active) {
  active.ended = true;
  const Nanos now = now_ns();
  Ending ending;
  ending.reason = active.session.reason();
  ending.trouble = active.trouble;
  if (ending.trouble == Trouble::kNone && ending.reason == FinishReason::kError) {
    ending.trouble = Trouble::kRequestFailed;
  }
  ending.error = active.session.error();
  ending.stop_bytes = active.session.stop_bytes();
  ending.metrics = active.session.metrics();
  ending.metrics.wasted_verifies += active.verifies_out;
  ending.queued_ns = (active.started != 0 ? active.started : now) - active.submitted;
  ending.first_token_ns = active.first_token != 0 ? active.first_token - active.submitted : 0;
  ending.total_ns = now - active.submitted;
  ending.target_busy_ns = active.target_busy;
  ending.drafter_busy_ns = active.drafter_busy;
  ending.slot_ns = active.started != 0 ? static_cast<Nanos>(targets_) * (now - active.started) : 0;
  if (estimate_.ready_target()) {
    ending.target_forward_ns = estimate_.target_ms(0) * 1e6;
  }
  if (estimate_.ready()) {
    ending.drafter_forward_ns = estimate_.drafter_ms() * 1e6;
  }
  ending.draft_pauses = active.break_even.pauses();
  ending.undrafted = active.break_even.undrafted();
  ending.lookahead = active.session.policy().lookahead;
  ending.record = finished_record(active, now);
  active.channel->end(std::move(ending));
  if (owners_.erase(&active.session) != 0) {
    dispatcher_.remove(&active.session);
    --running_;
    admit();
  }
}

void Engine::admit() {
  while (!closing_ && !failed_ && running_ < max_running_ && !waiting_.empty()) {
    std::unique_ptr<Active> active = std::move(waiting_.front());
    waiting_.pop_front();
    active->started = now_ns();
    apply_lookahead(*active);
    if (drafter_ == nullptr) {
      active->session.end_drafting("");
    } else if (!drafter_->alive) {
      active->session.end_drafting(drafter_->loss.message);
    }
    dispatcher_.add(&active->session);
    owners_.emplace(&active->session, active.get());
    ++running_;
    const RequestId id = active->id;
    actives_.emplace(id, std::move(active));
  }
}

} // namespace dsi
