// What a request that asked for it keeps of its run. Free for others: one look at a null pointer.
#include "runtime/engine.h"
#include "runtime/engine_state.h"

namespace dsi {

namespace {

SpanRecord span_of(const Job &job, std::size_t server) {
  SpanRecord span;
  span.server = job.kind == JobKind::kDraft ? -1 : static_cast<int>(server);
  span.kind = job.kind == JobKind::kVerify ? 'v' : job.kind == JobKind::kDraft ? 'd' : 'p';
  span.first = job.kind == JobKind::kVerify ? job.first : job.length;
  span.window = job.kind == JobKind::kVerify ? job.length - job.first : 0;
  return span;
}

} // namespace

void Engine::keep_span(Active &active, const Slot &slot, const Worker::Completed &done,
                       const Metrics &before) {
  if (active.record == nullptr || active.ended) {
    return;
  }
  const Metrics &after = active.session.metrics();
  const bool in_vain =
      after.wasted_verifies > before.wasted_verifies && after.emitted == before.emitted;
  SpanRecord span = span_of(*done.job, slot.index());
  span.window += static_cast<Position>(done.outcome.drafts.size());
  span.start = done.start - active.submitted;
  span.end = done.end - active.submitted;
  span.fate = done.outcome.kind == Outcome::Kind::kStopped  ? Fate::kStopped
              : done.outcome.kind == Outcome::Kind::kFailed ? Fate::kFailed
              : in_vain                                     ? Fate::kWasted
                                                            : Fate::kUsed;
  active.record->spans.push_back(span);
}

void Engine::keep_commits(Active &active, Nanos now) {
  if (active.record != nullptr) {
    active.record->commit(active.session.metrics(), now - active.submitted,
                          active.session.prompt_tokens());
  }
}

std::shared_ptr<const RunRecord> Engine::finished_record(const Active &active, Nanos now) const {
  if (active.record == nullptr) {
    return nullptr;
  }
  auto record = std::make_shared<RunRecord>(*active.record);
  record->origin = active.submitted;
  for (const auto &slot : slots_) {
    if (slot->job != nullptr && slot->job->request->id == active.id) {
      SpanRecord span = span_of(*slot->job, slot->index());
      span.start = slot->assigned - active.submitted;
      span.end = now - active.submitted;
      span.fate = Fate::kUnfinished;
      record->spans.push_back(span);
    }
  }
  return record;
}

} // namespace dsi
