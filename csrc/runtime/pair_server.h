// A target and a drafter on one worker, for devices that only one of them can use at a time.
#pragma once

#include <exception>
#include <memory>
#include <utility>

#include "runtime/server.h"

namespace dsi {

// For SI on CPU cores: there the two never run at once, and two threads with an OpenMP team each
// make more threads than cores, so that both teams sleep at every parallel region (seen: 306
// context switches per drafter forward, against 1 to 3 with one team). A drafter that cannot be
// started fails its drafts; the target goes on.
class PairServer final : public Server {
public:
  PairServer(std::unique_ptr<Server> target, std::unique_ptr<Server> drafter)
      : target_(std::move(target)), drafter_(std::move(drafter)) {}

  void started() override {
    target_->started();
    try {
      drafter_->started();
    } catch (...) {
      not_drafting_ = std::current_exception();
    }
  }
  Outcome run(Job &job) override {
    if (job.kind == JobKind::kDraft && not_drafting_ != nullptr) {
      std::rethrow_exception(not_drafting_);
    }
    return of(job).run(job);
  }
  void stop(Job &job) override { of(job).stop(job); }
  void release(RequestId request) override {
    try {
      target_->release(request);
    } catch (...) {
      drafter_->release(request);
      throw;
    }
    drafter_->release(request);
  }
  bool needs_tokens() const override { return target_->needs_tokens() || drafter_->needs_tokens(); }

private:
  Server &of(const Job &job) { return job.kind == JobKind::kDraft ? *drafter_ : *target_; }

  std::unique_ptr<Server> target_;
  std::unique_ptr<Server> drafter_;
  std::exception_ptr not_drafting_; // why the drafter's start failed
};

} // namespace dsi
