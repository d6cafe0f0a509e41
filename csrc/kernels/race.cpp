// The draws of row_law.h: races between exponential clocks, and the rejection rule built on them.
#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>

#include "core/rng.h"
#include "kernels/row_law.h"

namespace dsi {
namespace {

static_assert(kChunk == kNoiseChunk);

constexpr double kEndless = std::numeric_limits<double>::infinity();

// The most Gumbel noise there is, 33 ln 2 = 22.874 (E is at least 2^-33), and a margin.
constexpr double kNoiseLimit = 22.876;

// Up to here the runners of a chunk are raced one by one: each needs a call of Philox of its own
// and a branch that is hard to foresee, where the whole chunk needs 1024 calls and no branch.
// Measured on rows of a real model: level between 256 and 512, 10 % slower at 768.
constexpr std::int32_t kFewRunners = 384;

} // namespace

// The one to beat. Scores are z - log E, or less where a weight stands for z.
struct RowLaw::Best {
  Token id = -1;
  double score = -kEndless;

  void enter(Token candidate, double weight, std::uint32_t bits) {
    if (!(weight > -kEndless))
      return;
    const double reached = weight - std::log(static_cast<double>(exponential(bits)));
    if (reached > score || (reached == score && candidate < id)) {
      id = candidate;
      score = reached;
    }
  }
  // Not below the bits of any id that could still win with a weight of at most z: there w <= E <=
  // exp(z - score), and w is bits * 2^-32 but for roundings.
  std::uint32_t limit(float z) const {
    const double most = std::exp(static_cast<double>(z) - score) * (0x1p32 * (1.0 + 1e-6)) + 1.0;
    return most < 0x1.fffffffep31 ? static_cast<std::uint32_t>(most) : 0xFFFFFFFFU;
  }
  float below(double margin) const { // score - margin, rounded down
    return std::nextafter(static_cast<float>(score - margin), -static_cast<float>(kEndless));
  }
};

// `weight` of an id is at most its z, and bounds are taken from z: what even the largest noise
// leaves below the best score is never weighed, and whole chunks are passed over by their best.
template <class Weight> Token RowLaw::race(const Noise &noise, Token without, Weight weight) {
  Best best;
  const auto enter = [&](Token id, std::uint32_t bits) {
    if (id != without)
      best.enter(id, kept(id) ? weight(id) : -kEndless, bits);
  };
  const Token first = argmax(); // a high score spares most of the others
  const Token of_noise = row_.map != nullptr ? row_.map[first] : first;
  enter(first, token_bits(noise.seed, noise.position, noise.tag, of_noise));
  ids_.resize(kChunk + 16);
  noise_ids_.resize(kChunk + 16);
  bits_.resize(kChunk + 16);
  for (std::int64_t chunk = 0; chunk < reader_.chunks(); ++chunk) {
    const float most = chunk_z(chunk);
    if (!(most >= cut_ && static_cast<double>(most) + kNoiseLimit >= best.score))
      continue;
    const float *const x = reader_.read(chunk);
    const std::int32_t few = row_.map != nullptr ? kChunk + 1 : kFewRunners;
    const std::int32_t count =
        passes().collect(x, reader_.padded(chunk), inverse_,
                         std::max(cut_, best.below(kNoiseLimit)), ids_.data(), few);
    if (count < few)
      race_some(noise, chunk, count, best, enter);
    else
      race_all(noise, chunk, x, best, enter);
  }
  return best.id;
}

// One call of Philox for each runner, whose indices in the chunk are in ids_.
template <class Enter>
void RowLaw::race_some(const Noise &noise, std::int64_t chunk, std::int32_t count, const Best &best,
                       Enter enter) {
  const auto begin = static_cast<Token>(chunk * kChunk);
  const auto runners = std::span(ids_).first(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < runners.size(); ++i) {
    const Token id = begin + runners[i];
    // Behind the row's end, or left out by the map: any noise will do, enter() knows them.
    const bool unmapped = row_.map != nullptr && (id >= row_.size || row_.map[id] < 0);
    noise_ids_[i] = row_.map == nullptr ? id : unmapped ? 0 : row_.map[id];
  }
  passes().token_bits(noise, noise_ids_.data(), count, bits_.data());
  double seen = best.score;
  std::uint32_t limit = best.limit(chunk_z(chunk));
  for (std::size_t i = 0; i < runners.size(); ++i) {
    if (bits_[i] > limit)
      continue;
    enter(begin + runners[i], bits_[i]);
    if (best.score > seen) {
      seen = best.score;
      limit = best.limit(chunk_z(chunk));
    }
  }
}

// The noise of the whole chunk, looked at where it is large enough for the best of the chunk.
template <class Enter>
void RowLaw::race_all(const Noise &noise, std::int64_t chunk, const float *x, const Best &best,
                      Enter enter) {
  const auto begin = static_cast<Token>(chunk * kChunk);
  const float most = chunk_z(chunk);
  reader_.pad_whole(chunk); // a call of Philox serves ids a quarter of a chunk apart
  RaceChunk pass{noise, chunk, x, 0, inverse_, max_, cut_, 0.0F, 0};
  pass.groups = static_cast<std::int32_t>(
      std::min<std::int64_t>((row_.size - begin + 15) / 16, kChunk / kPadding));
  const auto beat = [&] {
    pass.floor = best.below(static_cast<double>(max_));
    pass.limit = best.limit(most);
  };
  beat();
  RaceHits hits;
  for (std::int32_t group = 0; (group = passes().race(pass, group, &hits)) < pass.groups; ++group) {
    for (std::int32_t word = 0; word < 4; ++word) {
      for (std::uint32_t lanes = hits.lanes[word]; lanes != 0; lanes &= lanes - 1) {
        const auto lane = std::countr_zero(lanes);
        enter(begin + word * (static_cast<Token>(kChunk) / 4) + 16 * group + lane,
              hits.bits[word][lane]);
      }
    }
    beat();
  }
}

Token RowLaw::draw_without(const Noise &noise, Token without) {
  return race(noise, without, [this](Token id) { return static_cast<double>(z(id)); });
}

Token RowLaw::draw(const Noise &noise) { return greedy_ ? argmax() : draw_without(noise, -1); }

// max(p - q, 0) / E, compared by its logarithm. Its weight is z where q is 0, so what cannot win
// with all of its p is never compared with q.
Token RowLaw::draw_residual(const DraftClaim &draft, const Noise &noise) {
  const double normaliser = lse();
  const double claimed = draft.law->lse();
  // Where the logarithms leave no doubt that q is above p, two exponentials are spared: all of them
  // in a row that has no residual at all. The margin is far above what they are rounded by.
  const double margin = 1e-9 * (1.0 + std::abs(normaliser) + std::abs(claimed));
  const double apart = claimed - normaliser + margin;
  return race(noise, -1, [&](Token id) {
    if (static_cast<double>(z(id)) - static_cast<double>(draft.z(id)) + apart < 0.0)
      return -kEndless;
    const double left = probability(id) - draft.probability(id);
    return left > 0.0 ? normaliser + std::log(left) : -kEndless;
  });
}

double DraftClaim::probability(Token target_id) const { return law->probability(own(target_id)); }

float DraftClaim::z(Token target_id) const {
  const Token known = own(target_id);
  return law->kept(known) ? law->z(known) : -std::numeric_limits<float>::infinity();
}

Token DraftClaim::own(Token target_id) const {
  if (t2d.empty())
    return target_id;
  const auto at = static_cast<std::size_t>(target_id);
  return at < t2d.size() ? t2d[at] : -1;
}

Judgement RowLaw::judge(const DraftClaim &draft, std::uint64_t seed, std::int64_t position) {
  if (greedy_)
    return {argmax(), argmax() == draft.id, 0};
  const Noise noise{seed, position, kResidual};
  double claimed = draft.id >= 0 && draft.id < row_.size ? 1.0 : 0.0;
  if (draft.law != nullptr)
    claimed = draft.law->probability(draft.own_id);
  if (!(claimed > 0.0))
    return {draw(noise), false, kDraftImpossible};
  // Strict, so that p = 0 is never accepted; with q = p the product is below p for any coin.
  if (static_cast<double>(accept_uniform(seed, position)) * claimed < probability(draft.id))
    return {draft.id, true, 0};
  const Token corrected =
      draft.law != nullptr ? draw_residual(draft, noise) : draw_without(noise, draft.id);
  if (corrected >= 0)
    return {corrected, false, 0};
  return {draw(noise), false, kZeroResidual};
}

} // namespace dsi
