// The rule of the kernels once more, as its formulas read: one id after the other, in double, and
// with the margin by which each draw was decided. Two implementations may differ only where that is
// within rounding.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "core/rng.h"
#include "core/sampling.h"
#include "kernels/row_law.h"

namespace dsi::plain {

inline constexpr float kInf = std::numeric_limits<float>::infinity();
inline constexpr double kClose = 1e-5; // scores closer than this decide nothing

struct Drawn {
  Token token = -1;
  double margin = kInf; // to the second, in units of z
};

struct PlainLaw {
  std::vector<float> z; // -inf where impossible
  std::vector<double> p;
  std::vector<Token> noise_ids;
  std::uint32_t status = 0;
  bool greedy = false;
  double lse = -kInf;
  Token argmax = -1;

  bool kept(Token id) const { return p[static_cast<std::size_t>(id)] > 0.0; }

  Drawn race(const std::vector<double> &weights, const Noise &noise) const {
    Drawn drawn;
    double best = -kInf;
    for (std::size_t i = 0; i < weights.size(); ++i) {
      if (!(weights[i] > 0.0))
        continue;
      const std::uint32_t bits = token_bits(noise.seed, noise.position, noise.tag, noise_ids[i]);
      const double score = std::log(weights[i]) - std::log(static_cast<double>(exponential(bits)));
      drawn.margin = std::min(drawn.margin, std::abs(score - best));
      if (score > best) {
        drawn.margin = score - best;
        best = score;
        drawn.token = static_cast<Token>(i);
      }
    }
    return drawn;
  }

  Drawn draw(const Noise &noise) const { return greedy ? Drawn{argmax, kInf} : race(p, noise); }
};

inline PlainLaw law_of(std::vector<float> x, const std::vector<Edit> &edits, float temperature,
                       float cut, const std::int32_t *map = nullptr) {
  PlainLaw law;
  const auto size = static_cast<Token>(x.size());
  for (const Edit &edit : edits) {
    if (edit.id >= 0 && edit.id < size)
      x[static_cast<std::size_t>(edit.id)] = edited(x[static_cast<std::size_t>(edit.id)], edit);
  }
  law.greedy = !(temperature >= kGreedyTemperature);
  const float inverse = law.greedy ? 1.0F : 1.0F / temperature;
  constexpr float kLargest = std::numeric_limits<float>::max();
  float greatest = -kInf;
  for (Token id = 0; id < size; ++id) {
    float value = x[static_cast<std::size_t>(id)];
    if (map != nullptr && map[id] < 0)
      value = -kInf;
    law.status |= std::isnan(value) ? kSawNaN : value == kInf ? kSawInfinity : 0U;
    law.z.push_back(std::isnan(value) || value == -kInf
                        ? -kInf
                        : std::clamp(value * inverse, -kLargest, kLargest));
    law.noise_ids.push_back(map != nullptr ? std::max(map[id], 0) : id);
    if (!law.greedy && law.z.back() < cut)
      law.z.back() = -kInf;
    if (law.z.back() > greatest) {
      greatest = law.z.back();
      law.argmax = id;
    }
  }
  if (law.argmax < 0)
    law.status |= kRowEmpty;
  double sum = 0.0;
  for (const float z : law.z) {
    law.p.push_back(z > -kInf ? std::exp(static_cast<double>(z) - static_cast<double>(greatest))
                              : 0.0);
    sum += law.p.back();
  }
  for (double &p : law.p)
    p /= sum;
  law.lse = static_cast<double>(greatest) + std::log(sum);
  return law;
}

struct PlainJudgement {
  Token token = -1;
  bool accepted = false;
  std::uint32_t status = 0;
  double margin = kInf;
};

// q: over the target's ids; claimed: of the draft itself.
inline PlainJudgement judge(const PlainLaw &target, Token draft, double claimed,
                            const std::vector<double> &q, std::uint64_t seed, Position position) {
  const Noise noise{seed, position, kResidual};
  if (target.greedy)
    return {target.argmax, target.argmax == draft, 0, kInf};
  if (!(claimed > 0.0)) {
    const Drawn drawn = target.draw(noise);
    return {drawn.token, false, kDraftImpossible, drawn.margin};
  }
  const bool inside = draft >= 0 && static_cast<std::size_t>(draft) < target.p.size();
  const double p = inside ? target.p[static_cast<std::size_t>(draft)] : 0.0;
  const double asked = static_cast<double>(accept_uniform(seed, position)) * claimed;
  const double margin = p > 0.0 ? std::abs(std::log(asked / p)) : static_cast<double>(kInf);
  if (asked < p)
    return {draft, true, 0, margin};
  std::vector<double> left;
  double closest = kInf; // p and q so close that the sign of their difference is open
  for (std::size_t i = 0; i < target.p.size(); ++i) {
    left.push_back(std::max(target.p[i] - q[i], 0.0));
    if (target.p[i] > 0.0 && q[i] > 0.0)
      closest = std::min(closest, std::abs(std::log(target.p[i] / q[i])));
  }
  Drawn drawn = target.race(left, noise);
  // Of a small difference only the sum of both is known well.
  if (drawn.token >= 0) {
    const auto winner = static_cast<std::size_t>(drawn.token);
    drawn.margin *= left[winner] / target.p[winner];
    return {drawn.token, false, 0, std::min(margin, drawn.margin)};
  }
  drawn = target.draw(noise);
  return {drawn.token, false, kZeroResidual, std::min({margin, drawn.margin, closest})};
}

// Of -inf, 0, or a value that float16 holds exactly as a normal number.
inline std::uint16_t half_bits(float x) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &x, sizeof bits);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  const std::uint32_t half = magnitude == 0             ? 0
                             : magnitude == 0x7F800000U ? 0x7C00U
                                                        : (magnitude - 0x38000000U) >> 13U;
  return static_cast<std::uint16_t>((bits >> 31U << 15U) | half);
}

} // namespace dsi::plain
