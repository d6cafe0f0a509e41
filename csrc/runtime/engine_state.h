// What the engine keeps per worker and per request. Private to the engine's source files.
#pragma once

#include "core/break_even.h"
#include "runtime/engine.h"

namespace dsi {

struct Engine::Slot {
  std::unique_ptr<Worker> worker;
  bool verifies = true;
  bool drafts = false; // both: the two share a worker
  bool alive = true;
  std::shared_ptr<Job> job; // null: idle
  std::uint64_t freed_at = 0;
  Nanos assigned = 0; // since when `job` is here; known where its request is recorded
  std::vector<RequestId> failed_for; // requests over which it failed since it last succeeded
  JobError loss;

  bool idle() const { return alive && job == nullptr; }
  std::size_t index() const { return static_cast<std::size_t>(worker->index()); }
};

struct Engine::Active {
  // Of a plain token's time as the forwards of this run suggest it. In SI they ran alone; in DSI
  // they slowed each other, and a plain one would take less.
  static constexpr double kCertainSI = 0.8;
  static constexpr double kCertainDSI = 0.5;

  Active(RequestId id_, RequestSpec spec)
      : id(id_), session(std::move(spec.session), spec.prompt),
        channel(std::make_shared<Channel>()), auto_lookahead(spec.auto_lookahead),
        max_window(session.policy().max_window), watches_cost(spec.break_even),
        break_even(session.policy().mode == Mode::kSI ? kCertainSI : kCertainDSI),
        submitted(now_ns()), deadline(spec.timeout_ns > 0 ? submitted + spec.timeout_ns : 0) {
    auto shared = std::make_shared<RequestContext>();
    shared->id = id_;
    shared->prompt_tokens = session.prompt_tokens();
    shared->sampling = std::move(spec.sampling);
    shared->hook = std::move(spec.hook);
    shared->method = spec.method;
    context = std::move(shared);
    record = spec.record ? std::make_unique<RunRecord>() : nullptr;
  }

  RequestId id;
  Session session;
  std::shared_ptr<const RequestContext> context;
  std::shared_ptr<Channel> channel;
  bool auto_lookahead;
  int max_window; // the request's own limit
  bool watches_cost;
  BreakEven break_even;
  Nanos submitted;
  Nanos deadline; // 0: none
  Nanos started = 0;
  Nanos first_token = 0;
  Nanos target_busy = 0;
  Nanos drafter_busy = 0;
  std::vector<Position> cached; // by slot: path length its server last saw, -1 never
  int verifies_out = 0;
  int jobs_out = 0;
  int avoid = -1; // slot of the last failed verify; counts while the session retries
  bool ended = false;
  Trouble trouble = Trouble::kNone;
  std::unique_ptr<RunRecord> record; // null: not asked for
};

} // namespace dsi
