#include "core/acceptance.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <iterator>
#include <limits>

namespace dsi {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kLargest = std::numeric_limits<float>::max();

// The cuts first look only this far below the best logit; mostly a few hundred ids of 50,000.
constexpr float kNear = 12.0F;

struct RowScan {
  RowStatus status;
  float max; // NaN ignored
};

RowScan scan(std::span<const float> row) {
  // Independent lanes, so that the compiler can use vector registers without reordering anything.
  constexpr std::size_t kLanes = 16;
  std::array<float, kLanes> best;
  std::array<std::uint32_t, kLanes> nan{};
  best.fill(-kInf);
  const std::size_t whole = row.size() / kLanes * kLanes;
  for (std::size_t i = 0; i < whole; i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const float x = row[i + lane];
      best[lane] = x > best[lane] ? x : best[lane];
      nan[lane] |= x != x ? 1U : 0U;
    }
  }
  for (std::size_t i = whole; i < row.size(); ++i) {
    best[0] = row[i] > best[0] ? row[i] : best[0];
    nan[0] |= row[i] != row[i] ? 1U : 0U;
  }
  const float max = *std::max_element(best.begin(), best.end());
  if (std::any_of(nan.begin(), nan.end(), [](std::uint32_t seen) { return seen != 0; }))
    return {RowStatus::kNaN, max};
  if (max == kInf)
    return {RowStatus::kInfinite, max};
  return {max == -kInf ? RowStatus::kNothingLeft : RowStatus::kOk, max};
}

inline float divide(float logit, float temperature) {
  const float z = std::min(logit / temperature, kLargest);
  return logit == -kInf ? -kInf : std::max(z, -kLargest);
}

} // namespace

const char *describe(RowStatus status) {
  switch (status) {
  case RowStatus::kOk:
    return "the row can be drawn from";
  case RowStatus::kNaN:
    return "the row of logits holds NaN";
  case RowStatus::kNothingLeft:
    return "every id of the row of logits is -inf";
  case RowStatus::kInfinite:
    return "the row of logits holds +inf";
  }
  return "unknown row status";
}

RowStatus Law::prepare(std::span<const float> logits, const RowEdits *edits,
                       const SamplingParams &params) {
  greedy_ = !(params.temperature >= kGreedyTemperature);
  argmax_ = -1;
  cut_ = -kLargest;
  sum_ = 0.0;
  RowScan found = scan(logits);
  scaled_.resize(logits.size());
  if (found.status == RowStatus::kNaN || found.status == RowStatus::kInfinite)
    return found.status;
  std::span<const float> source = logits;
  if (edits != nullptr && !edits->empty()) {
    std::copy(logits.begin(), logits.end(), scaled_.begin());
    edits->apply(scaled_);
    found = scan(scaled_);
    source = scaled_;
  }
  if (found.status != RowStatus::kOk)
    return found.status;
  if (greedy_) {
    std::copy(source.begin(), source.end(), scaled_.begin());
    max_ = found.max;
  } else {
    for (std::size_t i = 0; i < scaled_.size(); ++i)
      scaled_[i] = divide(source[i], params.temperature);
    max_ = divide(found.max, params.temperature);
  }
  argmax_ = static_cast<Token>(std::find(scaled_.begin(), scaled_.end(), max_) - scaled_.begin());
  if (!greedy_)
    find_cut(params);
  return RowStatus::kOk;
}

void Law::find_cut(const SamplingParams &params) {
  const auto k = static_cast<std::size_t>(std::max(params.top_k, 0));
  const bool top_k = k > 0 && k < scaled_.size();
  const bool top_p = params.top_p < 1.0F;
  if (top_k || top_p)
    rank_above(max_ - kNear);
  if (top_k) {
    if (ranked_.size() < k)
      rank_above(cut_);
    if (ranked_.size() >= k) {
      const auto kth = ranked_.begin() + static_cast<std::ptrdiff_t>(k - 1);
      std::nth_element(ranked_.begin(), kth, ranked_.end(), std::greater<>());
      cut_ = *kth;
      std::erase_if(ranked_, [this](float z) { return z < cut_; });
    }
  }
  if (top_p)
    cut_ = top_p_threshold(params.top_p);
  if (params.min_p > 0.0F) {
    const double least = static_cast<double>(max_) + std::log(static_cast<double>(params.min_p));
    cut_ = std::max(cut_, std::min(max_, static_cast<float>(least)));
  }
}

void Law::rank_above(float least) {
  ranked_.clear();
  std::copy_if(scaled_.begin(), scaled_.end(), std::back_inserter(ranked_),
               [this, least](float z) { return z >= least && z >= cut_; });
}

// Quickselect by mass: `above` is the mass of everything known to rank before [first, last), which
// holds the threshold. Expected O(V), where sorting would cost 4 ms a row at V = 49,152.
float Law::top_p_threshold(float top_p) {
  const auto mass = [this](auto first, auto last) {
    double total = 0.0;
    for (; first != last; ++first)
      total += static_cast<double>(std::exp(*first - max_));
    return total;
  };
  const double wanted = static_cast<double>(top_p) * sum();
  sum_ = 0.0; // the cut is about to move
  if (mass(ranked_.begin(), ranked_.end()) < wanted)
    rank_above(cut_);
  auto first = ranked_.begin();
  auto last = ranked_.end();
  double above = 0.0;
  while (last - first > 1) {
    const auto middle = first + (last - first) / 2;
    std::nth_element(first, middle, last, std::greater<>());
    const double upper = mass(first, middle);
    if (above + upper >= wanted) {
      last = middle;
    } else {
      above += upper;
      first = middle;
    }
  }
  return *first;
}

bool Law::kept(Token id) const {
  return id >= 0 && static_cast<std::size_t>(id) < scaled_.size() &&
         scaled_[static_cast<std::size_t>(id)] >= cut_;
}

double Law::sum() const {
  if (sum_ == 0.0) {
    for (const float z : scaled_) {
      if (z >= cut_)
        sum_ += static_cast<double>(std::exp(z - max_));
    }
  }
  return sum_;
}

float Law::probability(float scaled) const {
  return static_cast<float>(static_cast<double>(std::exp(scaled - max_)) / sum());
}

float Law::logprob(Token id) const {
  if (!kept(id))
    return -kInf;
  const double above =
      static_cast<double>(scaled_[static_cast<std::size_t>(id)]) - static_cast<double>(max_);
  return static_cast<float>(above - std::log(sum()));
}

std::vector<std::pair<Token, float>> Law::top(std::int32_t n) const {
  const auto wanted = static_cast<std::size_t>(std::max(n, 0));
  std::vector<Token> ids;
  const auto collect = [&](float least) {
    ids.clear();
    for (std::size_t i = 0; i < scaled_.size(); ++i) {
      if (scaled_[i] >= least && scaled_[i] >= cut_)
        ids.push_back(static_cast<Token>(i));
    }
  };
  collect(max_ - kNear);
  if (ids.size() < wanted)
    collect(cut_);
  const std::size_t count = std::min(ids.size(), wanted);
  std::partial_sort(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(count), ids.end(),
                    [this](Token a, Token b) {
                      const float za = scaled_[static_cast<std::size_t>(a)];
                      const float zb = scaled_[static_cast<std::size_t>(b)];
                      return za > zb || (za == zb && a < b);
                    });
  std::vector<std::pair<Token, float>> best;
  for (std::size_t i = 0; i < count; ++i)
    best.emplace_back(ids[i], logprob(ids[i]));
  return best;
}

void Law::probabilities(std::vector<float> &out) const {
  out.assign(scaled_.size(), 0.0F);
  if (greedy_) {
    out[static_cast<std::size_t>(argmax_)] = 1.0F;
    return;
  }
  for (std::size_t i = 0; i < scaled_.size(); ++i) {
    if (scaled_[i] >= cut_)
      out[i] = probability(scaled_[i]);
  }
}

} // namespace dsi
