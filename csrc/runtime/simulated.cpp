#include "runtime/simulated.h"

#include <algorithm>

namespace dsi {

SimulatedServer::SimulatedServer(Latency latency, SyntheticIds ids, std::uint64_t jitter_key)
    : latency_(latency), ids_(std::move(ids)), jitter_key_(mix(jitter_key)) {}

void SimulatedServer::started() { ask_for_precise_sleeps(); }

Outcome SimulatedServer::run(Job &job) {
  const Nanos start = now_ns();
  const bool first = std::find(seen_.begin(), seen_.end(), job.request->id) == seen_.end();
  if (first) {
    seen_.push_back(job.request->id);
  }
  const Position window = job.kind == JobKind::kVerify ? job.length - job.first : 0;
  Nanos length = forward_ns(latency_, first, window, jitter_key_ ^ ++forwards_);
  if (job.kind == JobKind::kPrefill) {
    length = std::max<Nanos>(0, length - latency_.tpot);
  }
  const bool complete = wait_.until(start + length, [&] {
    return latency_.stoppable && job.stopped.load(std::memory_order_relaxed);
  });
  Outcome outcome;
  if (!complete) {
    outcome.kind = Outcome::Kind::kStopped;
  } else if (job.kind == JobKind::kDraft) {
    outcome.drafts.push_back(Draft{ids_.draft(job.length), nullptr});
  } else if (job.kind == JobKind::kVerify) {
    outcome.rows.reserve(static_cast<std::size_t>(window) + 1);
    for (Position position = job.first; position <= job.length; ++position) {
      outcome.rows.push_back(JudgedRow{ids_.target(position), 0.0F, {}});
    }
  }
  return outcome;
}

void SimulatedServer::stop(Job & /*job*/) { wait_.wake(); }

void SimulatedServer::release(RequestId request) { std::erase(seen_, request); }

} // namespace dsi
