// A server that waits instead of computing: the paper's online experiment, and the scheduler's own
// cost.
#pragma once

#include "core/latency.h"
#include "runtime/clock.h"
#include "runtime/server.h"

namespace dsi {

class SimulatedServer final : public Server {
public:
  // Says SyntheticIds(seed, acceptance) after `latency`. Equal arguments make equal servers but for
  // `jitter_key`.
  SimulatedServer(Latency latency, SyntheticIds ids, std::uint64_t jitter_key);
  void started() override;
  Outcome run(Job &job) override;
  void stop(Job &job) override;
  void release(RequestId request) override;
  bool needs_tokens() const override { return false; }

private:
  Latency latency_;
  SyntheticIds ids_;
  std::uint64_t jitter_key_;
  std::uint64_t forwards_ = 0;
  std::vector<RequestId> seen_; // requests that have paid their TTFT here
  PreciseWait wait_;
};

} // namespace dsi
