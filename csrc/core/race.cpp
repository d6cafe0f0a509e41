// The draws of acceptance.h: races between exponential clocks, and the rejection rule built on
// them.
#include "core/acceptance.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <numbers>

#include "core/rng.h"

namespace dsi {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr Token kNone = -1;

// The most Gumbel noise there is, 33 ln 2 = 22.874 (E is at least 2^-33), and what float32 may add.
constexpr float kNoiseLimit = 22.876F;

// Not below -log E(bits): E >= w >= (bits div 2) * 2^-31, and a float's bits read as a number are
// never above its log2. Signed and without a clamp, so that a loop over it vectorises on any
// x86-64.
inline float noise_bound(std::uint32_t bits) {
  constexpr float kSlack = 1e-3F; // far more than the float32 roundings here and in scaled - max
  const auto below = static_cast<float>(static_cast<std::int32_t>(bits >> 1U));
  const auto read = static_cast<float>(std::bit_cast<std::int32_t>(below));
  return std::numbers::ln2_v<float> * (127.0F + 31.0F - 0x1p-23F * read) + kSlack;
}

} // namespace

// Everything is compared relative to the row's maximum, where float32 is fine enough for the
// bounds; an id is passed over only if even the bound on its noise leaves it strictly below the
// best score.
Token Law::race(std::uint64_t seed, Position position, std::uint32_t tag, Token without) const {
  Token winner = kNone;
  double best = -std::numeric_limits<double>::infinity();
  float floor = -kInf; // best - max
  const auto enter = [&](Token id, std::uint32_t bits) {
    const double score = static_cast<double>(scaled_[static_cast<std::size_t>(id)]) -
                         std::log(static_cast<double>(exponential(bits)));
    if (score > best || (score == best && id < winner)) {
      winner = id;
      best = score;
      floor = static_cast<float>(best - static_cast<double>(max_));
    }
  };
  if (argmax_ != without) // first, since a high floor spares most of the others
    enter(argmax_, token_bits(seed, position, tag, argmax_));
  std::array<std::uint32_t, kNoiseChunk> bits;
  std::array<float, kNoiseChunk> reach; // the most an id can score, less max
  for (std::size_t begin = 0; begin < scaled_.size(); begin += bits.size()) {
    const auto row =
        std::span(scaled_).subspan(begin, std::min(bits.size(), scaled_.size() - begin));
    const float least = floor - kNoiseLimit;
    const auto runs = [&](float z) { return z >= cut_ && z - max_ >= least; };
    const auto runners = static_cast<std::size_t>(std::count_if(row.begin(), row.end(), runs));
    if (runners * 16 < row.size()) { // cheaper by single calls than by the whole chunk
      for (std::size_t i = 0; runners > 0 && i < row.size(); ++i) {
        const auto id = static_cast<Token>(begin + i);
        if (runs(row[i]) && id != without)
          enter(id, token_bits(seed, position, tag, id));
      }
      continue;
    }
    chunk_bits(seed, position, tag, static_cast<std::int64_t>(begin) / kNoiseChunk,
               std::span(bits).first(row.size()));
    for (std::size_t i = 0; i < row.size(); ++i)
      reach[i] = row[i] - max_ + noise_bound(bits[i]);
    for (std::size_t i = 0; i < row.size(); ++i) {
      const auto id = static_cast<Token>(begin + i);
      if (reach[i] >= floor && row[i] >= cut_ && id != without)
        enter(id, bits[i]);
    }
  }
  return winner;
}

Token Law::draw_coupled(std::uint64_t seed, Position position) const {
  return draw(seed, position, kCoupledNoise);
}

Token Law::draw(std::uint64_t seed, Position position, std::uint32_t tag) const {
  return greedy_ ? argmax_ : race(seed, position, tag, kNone);
}

Token Law::race_residual(std::span<const float> q, std::uint64_t seed, Position position) const {
  Token winner = kNone;
  double best = 0.0;
  std::array<std::uint32_t, kNoiseChunk> bits;
  for (std::size_t begin = 0; begin < scaled_.size(); begin += bits.size()) {
    const auto row =
        std::span(scaled_).subspan(begin, std::min(bits.size(), scaled_.size() - begin));
    chunk_bits(seed, position, kResidual, static_cast<std::int64_t>(begin) / kNoiseChunk,
               std::span(bits).first(row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (row[i] < cut_)
        continue;
      const double taken = begin + i < q.size() ? static_cast<double>(q[begin + i]) : 0.0;
      const double left = static_cast<double>(probability(row[i])) - taken;
      // E >= w, so what cannot win with w cannot win; the margin is for the rounding of the
      // product.
      if (!(left > 0.0) || left < best * static_cast<double>(unit_interval(bits[i])) * (1.0 - 1e-9))
        continue;
      const double score = left / static_cast<double>(exponential(bits[i]));
      if (score > best) {
        winner = static_cast<Token>(begin + i);
        best = score;
      }
    }
  }
  return winner;
}

Token Law::judge_rejection(const Draft &draft, std::uint64_t seed, Position position) const {
  if (greedy_)
    return argmax_;
  const std::span<const float> q =
      draft.law ? std::span<const float>(draft.law->probability) : std::span<const float>();
  float q_id = 1.0F;
  if (draft.law) {
    const bool listed = draft.id >= 0 && static_cast<std::size_t>(draft.id) < q.size();
    q_id = listed ? q[static_cast<std::size_t>(draft.id)] : 0.0F;
  }
  if (!(q_id > 0.0F))
    return race(seed, position, kResidual, kNone);
  const float p_id =
      kept(draft.id) ? probability(scaled_[static_cast<std::size_t>(draft.id)]) : 0.0F;
  // The product of two float32 is exact in double: with q = p every draft is kept.
  if (static_cast<double>(accept_uniform(seed, position)) * static_cast<double>(q_id) <
      static_cast<double>(p_id))
    return draft.id;
  const Token corrected =
      draft.law ? race_residual(q, seed, position) : race(seed, position, kResidual, draft.id);
  return corrected != kNone ? corrected : race(seed, position, kResidual, kNone);
}

} // namespace dsi
