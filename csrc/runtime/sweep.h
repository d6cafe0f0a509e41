// Figure 2 of arXiv 2405.14105: non-SI, SI and DSI on the virtual clock over a grid of drafter
// latencies and acceptance rates, each of SI and DSI at its best lookahead, on several cores.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "core/latency.h"
#include "core/types.h"

namespace dsi {

struct SweepGrid {
  std::vector<double> drafter_latencies; // d/T: one drafter forward in target forwards, > 0
  std::vector<double> acceptances;       // in [0, 1]
  int max_lookahead = 200;               // lookaheads 1..max_lookahead are tried
  int sp = 7;                            // target servers of DSI; non-SI and SI use one
  std::int64_t tokens = 100;             // new tokens of a run, S in the paper
  int repeats = 5; // runs with seeds seed, seed+1, ..., the same in every cell
  std::uint64_t seed = 0;
  bool equation_1 = false; // DSI: only lookaheads that Equation 1 allows, as in the paper
};

// Mean time of a run, in target forwards; the least of the fastest lookaheads.
struct SweepCell {
  double non_si = 0.0;
  double si = 0.0;
  double dsi = 0.0;
  int si_lookahead = 0;
  int dsi_lookahead = 0;
};

// Work that is done in stretches: between two calls of advance() nothing runs, so there is nothing
// to end. All of it is computed but the lookaheads from tokens-1 on, which are one: no chain of
// drafts is longer, since the target's own token is the last.
//
// Constant forwards that can be stopped, TTFT = TPOT, every server prefilled: the policy is that of
// `Configuration` in Python. The cells do not depend on `threads`.
class Sweep {
public:
  // Throws std::invalid_argument naming the input. threads: at least 1.
  Sweep(SweepGrid grid, int threads);

  // Works for about `budget` on all threads, at least one lookahead each; true when all is done.
  // Blocks; may be called from several threads, which then take turns. Errors of a simulation are
  // thrown here.
  bool advance(Nanos budget);

  std::size_t total() const { return cells_.size(); }
  std::size_t done() const { return done_.load(std::memory_order_relaxed); }
  // Forwards that the simulations so far have begun, on target servers and drafters.
  std::int64_t forwards() const { return forwards_.load(std::memory_order_relaxed); }
  // [drafter latency][acceptance], the last index fastest. To be read when advance() said true.
  const std::vector<SweepCell> &cells() const { return cells_; }
  const SweepGrid &grid() const { return grid_; }

private:
  // One cell in progress, by one thread at a time.
  struct Open {
    std::size_t cell = 0;
    Mode mode = Mode::kNonSI;
    int lookahead = 1;
    Nanos best = 0;                        // summed over repeats, of `mode`
    std::vector<SyntheticText> texts = {}; // one for each repeat, the same in all modes
  };

  void work(std::optional<Open> &open, Nanos deadline);
  std::optional<Open> next_cell();
  bool step(Open &open); // false: the cell is done
  Nanos run_ns(Open &open);
  std::vector<SyntheticText> texts_of(std::size_t cell) const;
  int first_dsi_lookahead(std::size_t cell) const;
  int widest_lookahead() const;
  double drafter_latency(std::size_t cell) const;

  const SweepGrid grid_;
  const std::size_t stride_; // between cells handed out, coprime to their number
  std::vector<SweepCell> cells_;
  std::mutex mutex_;                      // held by advance(): guards open_
  std::vector<std::optional<Open>> open_; // one per thread
  // Counters alone, which order nothing: what a thread wrote to its cells is seen once it is
  // joined.
  std::atomic<std::size_t> taken_{0};
  std::atomic<std::size_t> done_{0};
  std::atomic<std::int64_t> forwards_{0};
};

} // namespace dsi
