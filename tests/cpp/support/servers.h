// Servers for tests of the engine: the toy model behind a forward that can be slow, fail, or be
// watched.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "runtime/clock.h"
#include "runtime/engine.h"
#include "toy_model.h"

namespace dsi::test {

// What a forward does before it answers. Called on the worker's thread; a throw is a failed job.
using Before = std::function<void(Job &)>;

// Says what the toy model says, `forward_ns` after it was asked. Rows are cut at the first
// mismatch.
class ToyServer final : public Server {
public:
  explicit ToyServer(ToyModel model, Nanos forward_ns = 0, Before before = {},
                     bool stoppable = true)
      : model_(model), forward_ns_(forward_ns), before_(std::move(before)), stoppable_(stoppable) {}

  Outcome run(Job &job) override {
    if (before_)
      before_(job);
    Outcome outcome;
    const bool complete = wait_.until(now_ns() + forward_ns_, [&] {
      return stoppable_ && job.stopped.load(std::memory_order_relaxed);
    });
    const std::span<const Token> path(job.tokens);
    if (!complete) {
      outcome.kind = Outcome::Kind::kStopped;
    } else if (job.kind == JobKind::kDraft) {
      draft(job, outcome);
    } else if (job.kind == JobKind::kVerify) {
      for (Position at = job.first; at <= job.length; ++at) {
        outcome.rows.push_back({model_.target(path.first(static_cast<std::size_t>(at))), 0.0F, {}});
        if (at < job.length && outcome.rows.back().token != path[static_cast<std::size_t>(at)])
          break;
      }
    }
    return outcome;
  }
  void stop(Job & /*job*/) override { wait_.wake(); }

private:
  void draft(const Job &job, Outcome &outcome) const {
    const std::span<const Token> given(job.tokens);
    std::vector<Token> path(given.begin(), given.end());
    for (int i = 0; i < std::min(job.max_drafts, 1 + static_cast<int>(path.size() % 3)); ++i) {
      outcome.drafts.push_back({model_.draft(path), nullptr});
      path.push_back(outcome.drafts.back().id);
    }
  }

  ToyModel model_;
  Nanos forward_ns_;
  Before before_;
  bool stoppable_;
  PreciseWait wait_;
};

// A server whose start is scripted.
class UnstartableServer final : public Server {
public:
  explicit UnstartableServer(std::function<void()> start, Before before = {})
      : start_(std::move(start)), before_(std::move(before)) {}
  void started() override { start_(); }
  Outcome run(Job &job) override {
    if (before_)
      before_(job);
    throw std::logic_error("run on a server that never started");
  }

private:
  std::function<void()> start_;
  Before before_;
};

inline RequestSpec request(std::vector<Token> prompt, Mode mode, int lookahead,
                           std::int64_t tokens) {
  RequestSpec spec;
  spec.prompt = std::move(prompt);
  spec.session.policy.mode = mode;
  spec.session.policy.lookahead = lookahead;
  spec.session.policy.run_ahead = lookahead + 8;
  spec.session.max_new_tokens = tokens;
  return spec;
}

struct Reading {
  std::vector<Token> tokens;
  Ending ending;
  bool in_time = false; // else the engine hangs, and the rest is empty
};

// Reads to the end. Blocks, at most `limit_s`.
inline Reading read_all(const Ticket &ticket, double limit_s = 30.0) {
  Reading reading;
  const Nanos deadline = now_ns() + static_cast<Nanos>(limit_s * 1e9);
  while (now_ns() < deadline) {
    const bool ended = ticket.channel->ended();
    for (const JudgedRow &row : ticket.channel->take(ended ? 0 : deadline))
      reading.tokens.push_back(row.token);
    if (ended) {
      reading.ending = *ticket.channel->ending();
      reading.in_time = true;
      break;
    }
  }
  return reading;
}

} // namespace dsi::test
