// How long a simulated forward takes, and which ids a simulated model says. Shared by the virtual
// clock and by the simulated servers that wait in real time.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/types.h"

namespace dsi {

struct Latency {
  Nanos ttft = 0;        // first forward of a request on a server, prompt included
  Nanos tpot = 0;        // every other forward
  double growth = 0.0;   // each judged draft adds this share of tpot
  double jitter = 0.0;   // each forward is scaled by a factor uniform in [1-jitter, 1+jitter]
  bool stoppable = true; // whether a forward whose result is not needed can be ended early
};

// splitmix64 (Steele, Lea, Flood 2014): a well-mixed 64-bit hash of its argument.
inline std::uint64_t mix(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15U;
  x = (x ^ (x >> 30U)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27U)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31U);
}

inline double unit_interval(std::uint64_t hash) {
  return static_cast<double>(hash >> 11U) * 0x1.0p-53;
}

constexpr double kLongestForward = 9e18; // of Nanos, which end soon behind it

// `first`: this server has not seen the request. `key`: any number; equal keys give equal jitter.
inline Nanos forward_ns(const Latency &latency, bool first, Position window, std::uint64_t key) {
  if (latency.growth == 0.0 && latency.jitter == 0.0) {
    return first ? latency.ttft : latency.tpot; // the same, at a tenth of the cost
  }
  const double base = static_cast<double>(first ? latency.ttft : latency.tpot);
  const double grown =
      base + latency.growth * static_cast<double>(window) * static_cast<double>(latency.tpot);
  const double factor = 1.0 + latency.jitter * (2.0 * unit_interval(mix(key)) - 1.0);
  return static_cast<Nanos>(std::llround(std::min(grown * factor, kLongestForward)));
}

// Ids without a model. Whether the draft at a position is right is a property of the position, so
// one sequence is met by every policy.
class SyntheticIds {
public:
  SyntheticIds(std::uint64_t seed, double acceptance) : seed_(mix(seed)), acceptance_(acceptance) {}
  // `right[i]`: whether the draft for the i-th new token is right; positions behind its end are
  // right.
  SyntheticIds(std::uint64_t seed, std::vector<bool> right, Position prompt_tokens)
      : seed_(mix(seed)), right_(std::move(right)), prompt_tokens_(prompt_tokens) {}

  static constexpr Token kVocabSize = 50000;

  Token target(Position position) const {
    return static_cast<Token>(mix(seed_ ^ (2 * static_cast<std::uint64_t>(position))) % kVocabSize);
  }
  Token draft(Position position) const { return draft(position, target(position)); }
  // The same where target(position) is known.
  Token draft(Position position, Token target) const {
    const Token wrong = target + 1 == kVocabSize ? 0 : target + 1;
    return is_right(position) ? target : wrong;
  }

private:
  bool is_right(Position position) const {
    if (prompt_tokens_ >= 0) {
      const auto index = static_cast<std::size_t>(position - prompt_tokens_);
      return index >= right_.size() || right_[index];
    }
    return unit_interval(mix(seed_ ^ (2 * static_cast<std::uint64_t>(position) + 1))) < acceptance_;
  }

  std::uint64_t seed_;
  double acceptance_ = 0.0;
  std::vector<bool> right_;
  Position prompt_tokens_ = -1;
};

// The ids of a run from its first new position on, made when asked for and kept: behind a rejection
// positions are drafted again, and other policies meet the same ones. Not thread-safe.
class SyntheticText {
public:
  struct Pair {
    Token target = -1;
    Token draft = -1;
  };

  SyntheticText(SyntheticIds ids, Position prompt_tokens)
      : ids_(std::move(ids)), prompt_tokens_(prompt_tokens) {
    pairs_.reserve(128);
  }

  const Pair &at(Position position) {
    const auto index = static_cast<std::size_t>(position - prompt_tokens_);
    while (pairs_.size() <= index) {
      const Position next = prompt_tokens_ + static_cast<Position>(pairs_.size());
      const Token target = ids_.target(next);
      pairs_.push_back(Pair{target, ids_.draft(next, target)});
    }
    return pairs_[index];
  }

private:
  SyntheticIds ids_;
  Position prompt_tokens_;
  std::vector<Pair> pairs_;
};

} // namespace dsi
