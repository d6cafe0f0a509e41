// A virtual clock: runs one Session against latencies, exactly and without waiting.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "core/latency.h"
#include "core/record.h"
#include "core/session.h"

namespace dsi {

// Says what the models say. The default (SyntheticIds) knows only right and wrong drafts; tests put
// real laws behind it.
class VirtualModel {
public:
  virtual ~VirtualModel() = default;
  virtual Draft draft(std::span<const Token> path) = 0; // the draft for position path.size()
  // Rows for positions first..path.size(), and one more where a draft for the frontier is given.
  virtual std::vector<JudgedRow> judge(std::span<const Token> path, Position first,
                                       const Draft *frontier, const Session &session) = 0;
};

struct Simulation {
  SessionConfig session;
  int sp = 1;
  Latency target;
  Latency drafter;
  Position prompt_tokens = 1;
  std::uint64_t seed = 0;
  double acceptance = 0.0;
  std::optional<std::vector<bool>> right; // overrides `acceptance`
  SyntheticText *text = nullptr;          // overrides both: kept for many runs; not owned
  VirtualModel *model = nullptr;          // overrides all three; not owned
  bool record = false;                    // keep every span and commit
};

struct SimulationResult {
  Nanos total = 0;       // until the last token
  Nanos first_token = 0; // until the first
  Nanos target_busy = 0; // summed over target servers
  Nanos drafter_busy = 0;
  std::vector<Token> tokens;
  Metrics metrics;
  RunRecord record; // where asked for
};

// Throws std::invalid_argument naming the input. Cost: about 0.1 us per verification, 0.02 us per
// draft where several can be one event: without jitter, with ids of the clock's own.
SimulationResult simulate(const Simulation &simulation);

} // namespace dsi
