// A target and a drafter on one worker, for devices that only one of them can use at a time.
#pragma once

#include <memory>
#include <utility>

#include "runtime/server.h"

namespace dsi {

// For SI on CPU cores: there the two never run at once, and two threads with an OpenMP team each
// make more threads than cores, so that both teams sleep at every parallel region (seen: 306
// context switches per drafter forward, against 1 to 3 with one team).
class PairServer final : public Server {
public:
  PairServer(std::unique_ptr<Server> target, std::unique_ptr<Server> drafter)
      : target_(std::move(target)), drafter_(std::move(drafter)) {}

  void started() override {
    target_->started();
    drafter_->started();
  }
  Outcome run(Job &job) override { return of(job).run(job); }
  void stop(Job &job) override { of(job).stop(job); }
  void release(RequestId request) override {
    target_->release(request);
    drafter_->release(request);
  }
  bool needs_tokens() const override { return target_->needs_tokens() || drafter_->needs_tokens(); }

private:
  Server &of(const Job &job) { return job.kind == JobKind::kDraft ? *drafter_ : *target_; }

  std::unique_ptr<Server> target_;
  std::unique_ptr<Server> drafter_;
};

} // namespace dsi
