// Running estimates of forward times, from which lookahead="auto" is chosen. Never changes the
// text.
#pragma once

#include <algorithm>
#include <cmath>

#include "core/plan.h"
#include "core/types.h"

namespace dsi {

// T as a line over the window length, d as a mean, a as a ratio; old measurements fade.
class Estimate {
public:
  void target_forward(Position window, Nanos length) {
    const auto x = static_cast<double>(window);
    const double y = static_cast<double>(length) * 1e-6;
    weight_ = weight_ * kFade + 1;
    sum_x_ = sum_x_ * kFade + x;
    sum_y_ = sum_y_ * kFade + y;
    sum_xx_ = sum_xx_ * kFade + x * x;
    sum_xy_ = sum_xy_ * kFade + x * y;
  }
  void drafter_forward(Nanos length) {
    draft_weight_ = draft_weight_ * kFade + 1;
    draft_sum_ = draft_sum_ * kFade + static_cast<double>(length) * 1e-6;
  }
  void judged(std::int64_t accepted, std::int64_t rejected) {
    const double fade = std::pow(kFade, static_cast<double>(accepted + rejected));
    accepted_ = accepted_ * fade + static_cast<double>(accepted);
    rejected_ = rejected_ * fade + static_cast<double>(rejected);
  }

  bool ready_target() const { return weight_ > 0; }
  bool ready() const { return weight_ > 1 && draft_weight_ > 1; }

  // Per judged draft. Windows that hardly differ say nothing about it; and no forward is free,
  // however the noise tilts the line, so the empty window keeps at least its share of the mean.
  double growth_ms() const {
    const double mean_x = sum_x_ / weight_;
    const double mean_y = sum_y_ / weight_;
    const double variance = sum_xx_ / weight_ - mean_x * mean_x;
    if (variance < kLeastVariance) {
      return 0.0;
    }
    const double slope = (sum_xy_ / weight_ - mean_x * mean_y) / variance;
    return std::clamp(slope, 0.0, mean_y / (mean_x + 1.0));
  }
  double target_ms(Position window) const {
    const double mean_x = sum_x_ / weight_;
    const double at = sum_y_ / weight_ + growth_ms() * (static_cast<double>(window) - mean_x);
    return std::max(at, 1e-6);
  }
  double drafter_ms() const { return std::max(draft_sum_ / draft_weight_, 1e-6); }
  // Starts at 3 of 4, so that the first windows are neither empty nor long.
  double acceptance() const { return (accepted_ + 3.0) / (accepted_ + rejected_ + 4.0); }

  // SI: where a round costs least per token gained. DSI: the least lookahead by Equation 1, with
  // the forward as long as that window makes it. The longest window worth verifying, were drafts
  // free: where a forward costs least per token gained.
  int window() const { return ready() ? cheapest(0.0) : kWidest; }

  int lookahead(Mode mode, int sp) const {
    if (!ready() || mode == Mode::kNonSI) {
      return 1;
    }
    return mode == Mode::kSI ? cheapest(drafter_ms()) : dsi_lookahead(sp);
  }

private:
  static constexpr double kFade = 0.98;
  static constexpr double kLeastVariance = 0.1; // of the window length, in drafts
  static constexpr int kWidest = 32;

  int cheapest(double draft_ms) const {
    int best = 1;
    double best_ms = 0;
    for (int k = 1; k <= kWidest; ++k) {
      const double ms = si_ms_per_token({target_ms(k), draft_ms, acceptance(), 1, kWidest}, k);
      if (k == 1 || ms < best_ms) {
        best = k;
        best_ms = ms;
      }
    }
    return best;
  }

  int dsi_lookahead(int sp) const {
    int k = 1;
    while (k < kWidest && !equation_1(target_ms(k), drafter_ms(), k, sp)) {
      ++k;
    }
    return k;
  }

  double weight_ = 0, sum_x_ = 0, sum_y_ = 0, sum_xx_ = 0, sum_xy_ = 0;
  double draft_weight_ = 0, draft_sum_ = 0;
  double accepted_ = 0, rejected_ = 0;
};

} // namespace dsi
