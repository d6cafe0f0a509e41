#include "core/plan.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>

namespace dsi {

namespace {

// Quotients of measured latencies that are meant to be whole must not be rounded up: 6.9/2.3 is 3.
// Beyond a million it is a million: an int must hold it, and its product with the servers.
int ceil_ratio(double numerator, double denominator) {
  return static_cast<int>(std::min(std::ceil(numerator / denominator - 1e-9), 1e6));
}

void check(bool ok, const char *name, const char *wanted, double value) {
  if (!ok) {
    throw std::invalid_argument(std::string(name) + ": " + wanted + ", got " +
                                std::to_string(value));
  }
}

} // namespace

int least_lookahead(double target_ms, double drafter_ms, int sp) {
  return std::max(1, ceil_ratio(target_ms, static_cast<double>(sp) * drafter_ms));
}

bool equation_1(double target_ms, double drafter_ms, int lookahead, int sp) {
  return ceil_ratio(target_ms, static_cast<double>(lookahead) * drafter_ms) <= sp;
}

int most_useful_sp(double target_ms, double drafter_ms) {
  return std::max(1, ceil_ratio(target_ms, drafter_ms));
}

int default_run_ahead(double target_ms, double drafter_ms, int lookahead, int sp) {
  // Both products may be more than an int holds.
  const std::int64_t windows = static_cast<std::int64_t>(sp) * lookahead;
  const std::int64_t useful = most_useful_sp(target_ms, drafter_ms);
  const std::int64_t ahead =
      std::max(std::min(useful, windows), std::int64_t{ceil_ratio(target_ms, drafter_ms)}) +
      2 * std::int64_t{lookahead};
  return static_cast<int>(std::min<std::int64_t>(ahead, std::numeric_limits<int>::max()));
}

double non_si_ms_per_token(const PlanInputs &inputs) { return inputs.target_ms; }

// An iteration costs lookahead*d + T and gains 1 + a + ... + a^lookahead tokens.
double si_ms_per_token(const PlanInputs &inputs, int lookahead) {
  double gained = 1.0;
  double power = 1.0;
  for (int i = 0; i < lookahead; ++i) {
    power *= inputs.acceptance;
    gained += power;
  }
  return (lookahead * inputs.drafter_ms + inputs.target_ms) / gained;
}

// With n drafts accepted before the first rejection an epoch takes ceil(n/k)*k*d + T and gains n+1
// tokens; n is geometric, E[ceil(n/k)] = a/(1-a^k), E[n+1] = 1/(1-a). Lookahead 1 gives a*d +
// (1-a)*T. Too few servers for Equation 1 make windows wait and coalesce, as if the lookahead were
// larger.
double dsi_ms_per_token(const PlanInputs &inputs, int lookahead) {
  const double a = inputs.acceptance;
  const int k =
      std::max(lookahead, least_lookahead(inputs.target_ms, inputs.drafter_ms, inputs.sp));
  const double drafts = a < 1.0 ? k * a * (1.0 - a) / (1.0 - std::pow(a, k)) : 1.0;
  return std::min(inputs.target_ms, drafts * inputs.drafter_ms + (1.0 - a) * inputs.target_ms);
}

std::vector<PlanRow> plan(const PlanInputs &inputs) {
  check(std::isfinite(inputs.target_ms) && inputs.target_ms > 0, "target_ms", "a positive time",
        inputs.target_ms);
  check(std::isfinite(inputs.drafter_ms) && inputs.drafter_ms > 0, "drafter_ms", "a positive time",
        inputs.drafter_ms);
  check(inputs.acceptance >= 0 && inputs.acceptance <= 1, "acceptance", "between 0 and 1",
        inputs.acceptance);
  check(inputs.sp >= 1, "sp", "at least 1", inputs.sp);
  check(inputs.max_lookahead >= 1, "max_lookahead", "at least 1", inputs.max_lookahead);

  PlanRow si{Mode::kSI, 1, 1, si_ms_per_token(inputs, 1), 1.0};
  for (int k = 2; k <= inputs.max_lookahead; ++k) {
    const double ms = si_ms_per_token(inputs, k);
    if (ms < si.ms_per_token) {
      si.ms_per_token = ms;
      si.lookahead = k;
    }
  }
  const int k = least_lookahead(inputs.target_ms, inputs.drafter_ms, inputs.sp);
  const int servers = std::min(inputs.sp, ceil_ratio(inputs.target_ms, k * inputs.drafter_ms));
  std::vector<PlanRow> rows{
      {Mode::kNonSI, 0, 1, non_si_ms_per_token(inputs), 1.0},
      si,
      {Mode::kDSI, k, std::max(1, servers), dsi_ms_per_token(inputs, k), 1.0}};
  for (PlanRow &row : rows) {
    row.speedup = rows.front().ms_per_token / row.ms_per_token;
  }
  return rows;
}

} // namespace dsi
