// What to expect from non-SI, SI and DSI, and which lookahead to take: the closed forms of the DSI
// paper (arXiv 2405.14105, Equation 1 and Proposition 1), and their extension to a lookahead
// above 1.
#pragma once

#include <vector>

#include "core/types.h"

namespace dsi {

struct PlanInputs {
  double target_ms = 0.0;  // T: one target forward (TPOT), > 0
  double drafter_ms = 0.0; // d: one drafter forward (TPOT), > 0
  double acceptance = 0.0; // a: probability that a draft is accepted, in [0, 1]
  int sp = 1;              // target servers
  int max_lookahead = 200; // the widest window considered
};

struct PlanRow {
  Mode mode = Mode::kNonSI;
  int lookahead = 0; // 0 where there is none
  int sp = 1;        // target servers in use
  double ms_per_token = 0.0;
  double speedup = 1.0; // over non-SI
};

// Equation 1: ceil(T / (lookahead*d)) <= sp, solved for lookahead. At least 1.
int least_lookahead(double target_ms, double drafter_ms, int sp);
bool equation_1(double target_ms, double drafter_ms, int lookahead, int sp);
// More servers than ceil(T/d) cannot help.
int most_useful_sp(double target_ms, double drafter_ms);
// Drafts beyond the committed prefix that keep every server busy, with one window to spare.
int default_run_ahead(double target_ms, double drafter_ms, int lookahead, int sp);

// Expected time per token, long output, constant latencies, servers on hardware of their own.
double non_si_ms_per_token(const PlanInputs &inputs);
double si_ms_per_token(const PlanInputs &inputs, int lookahead);
double dsi_ms_per_token(const PlanInputs &inputs, int lookahead);

// non-SI, SI at its best lookahead, DSI at the least lookahead. Throws std::invalid_argument naming
// the input.
std::vector<PlanRow> plan(const PlanInputs &inputs);

} // namespace dsi
