// A virtual clock for TreeSession: Algorithm 1 of the DSI paper with several drafters, on as many
// servers as it asks for, exactly and without waiting.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "core/latency.h"
#include "core/record.h"
#include "core/tree_session.h"

namespace dsi {

// Says what the models say. Answers may depend on the path only, or two runs could not be compared.
class TreeModel {
public:
  virtual ~TreeModel() = default;
  virtual Token draft(int drafter, std::span<const Token> path) = 0; // for position path.size()
  virtual JudgedRow judge(std::span<const Token> path) = 0;
};

struct TreeSimulation {
  std::int64_t tokens = 1;
  Position prompt_tokens = 1;
  // No growth: a verify judges one position. Every server of a model prefills from the start on, so
  // that only forwards begun in that time notice it. The jitter of a forward depends on (seed,
  // model, position), so runs with other drafters beside meet the same forwards.
  Latency target;
  std::vector<Latency> drafters;
  // Per drafter; whether its draft is right depends on (seed, drafter, position). The first one's
  // are those of simulate() with the same seed. Wrong drafts of two drafters always differ, so
  // nothing is shared but what is right.
  std::vector<double> acceptance;
  // Overrides `acceptance`: [drafter][new token]; what is behind the end is right.
  std::optional<std::vector<std::vector<bool>>> right;
  TreeModel *model = nullptr; // overrides both; not owned
  std::uint64_t seed = 0;
  int run_ahead = 64;
  std::int64_t max_nodes = 4096;
  bool record = false; // keep every span
};

struct TreeSpan {
  int drafter = -1; // -1: the target
  int server = 0;   // of that model; always the lowest that is free
  char kind = 'v';  // v verify, d draft
  Nanos start = 0;
  Nanos end = 0;
  Position position = 0;   // judged or drafted
  Fate fate = Fate::kUsed; // kWasted: ended, though out of date; kUnfinished: outlived the run
};

struct TreeResult {
  Nanos total = 0;       // until the last token
  Nanos first_token = 0; // until the first
  std::vector<Token> tokens;
  TreeMetrics metrics;
  Nanos target_busy = 0; // until the last token, summed over servers
  std::vector<Nanos> drafter_busy;
  int peak_target_servers = 0; // busy at once
  std::vector<int> peak_drafter_servers;
  std::vector<std::vector<bool>> right; // [drafter][i]: the sequences met; without a model only
  std::vector<TreeSpan> spans;          // in order of their end
};

// Throws std::invalid_argument naming the input. Cost: about 1 us per forward, and with a model the
// path of each.
TreeResult simulate_tree(const TreeSimulation &simulation);

} // namespace dsi
