#include "kernels/selection.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

namespace dsi {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kLargest = std::numeric_limits<float>::max();

// The first histogram ends this far below the best; what is further down shares its last bin.
constexpr float kReach = 32.0F;

constexpr std::int64_t kFew = 48; // values that are sorted rather than counted again

} // namespace

float Selection::kth(const ScannedRow &row, std::int64_t k) {
  by_mass_ = false;
  return find(row, static_cast<double>(k));
}

float Selection::share(const ScannedRow &row, double share) {
  by_mass_ = true;
  return find(row, share);
}

float Selection::find(const ScannedRow &row, double wanted) {
  max_ = top_ = row.max;
  scale_ = static_cast<float>(kBins) / kReach;
  above_ = 0.0;
  weight_of_bin_.assign(kBins, 0.0);
  const auto for_chunks = [&](float least, auto use) {
    for (std::int64_t chunk = 0; chunk < row.reader->chunks(); ++chunk) {
      if (scaled(row.chunk_max[static_cast<std::size_t>(chunk)], row.inverse) >= least)
        use(row.reader->read(chunk), row.reader->padded(chunk));
    }
  };
  for_chunks(row.least,
             [&](const float *x, std::int64_t count) { tally(x, count, row.inverse, row.least); });
  if (by_mass_)
    wanted *= std::accumulate(weight_of_bin_.begin(), weight_of_bin_.end(), 0.0);
  const std::int32_t bin = bin_reaching(wanted);
  count_ = 0;
  // One bin below its lower edge, since bins are found with rounding; the last bin has no edge.
  float edge = top_ - static_cast<float>(bin + 2) / scale_;
  edge = bin == kBins - 1 ? -kInf : std::nextafter(edge, -kInf);
  for_chunks(std::max(edge, row.least), [&](const float *x, std::int64_t count) {
    values_.resize(std::max(values_.size(), static_cast<std::size_t>(count_ + kChunk + kPadding)));
    gather(x, count, row.inverse, row.least, bin);
  });
  return narrow(wanted);
}

// values_ hold the threshold: the same again over their own range until few are left.
float Selection::narrow(double wanted) {
  while (count_ > 0) {
    const auto end = values_.begin() + count_;
    const auto [low, high] = std::minmax_element(values_.begin(), end);
    const bool enough = by_mass_ || above_ + static_cast<double>(count_) >= wanted;
    if (!enough || *low == *high)
      return enough ? *high : -kInf;
    scale_ = static_cast<float>(kBins) / (*high - *low);
    if (count_ <= kFew || !(scale_ > 0.0F && scale_ < kInf))
      return among_few(wanted);
    top_ = *high;
    std::fill_n(end, kPadding, -kInf);
    weight_of_bin_.assign(kBins, 0.0);
    const std::int64_t count = (count_ + kPadding - 1) / kPadding * kPadding;
    for (std::int64_t i = 0; i < count; i += kChunk)
      tally(values_.data() + i, std::min(count - i, kChunk), 1.0F, -kInf);
    const std::int32_t bin = bin_reaching(wanted);
    count_ = 0; // in place: what is written has been read
    for (std::int64_t i = 0; i < count; i += kChunk)
      gather(values_.data() + i, std::min(count - i, kChunk), 1.0F, -kInf, bin);
  }
  return -kInf;
}

void Selection::tally(const float *x, std::int64_t count, float inverse, float least) {
  bins_.resize(kChunk);
  weights_.resize(kChunk);
  passes().weigh(x, count, inverse, max_, std::max(least, max_ - 87.0F), top_, scale_, kBins - 1,
                 bins_.data(), by_mass_ ? weights_.data() : nullptr);
  const auto size = static_cast<std::size_t>(count);
  for (std::size_t i = 0; i < size; ++i)
    weight_of_bin_[static_cast<std::size_t>(bins_[i])] +=
        by_mass_ ? static_cast<double>(weights_[i]) : 1.0;
}

// Where none reaches it: by mass the last with any, since only the rounding of sums is missing;
// else the last, which also counts what does not take part.
std::int32_t Selection::bin_reaching(double wanted) {
  std::int32_t heaviest_last = 0;
  double before = above_;
  for (std::int32_t bin = 0; bin < kBins - 1; ++bin) {
    const double weight = weight_of_bin_[static_cast<std::size_t>(bin)];
    if (weight > 0.0 && above_ + weight >= wanted)
      return bin;
    if (weight > 0.0) {
      heaviest_last = bin;
      before = above_;
    }
    above_ += weight;
  }
  if (!by_mass_ || weight_of_bin_.back() > 0.0)
    return kBins - 1;
  above_ = before;
  return heaviest_last;
}

void Selection::gather(const float *x, std::int64_t count, float inverse, float least,
                       std::int32_t bin) {
  count_ += passes().gather(x, count, inverse, std::max(least, -kLargest), top_, scale_, kBins - 1,
                            bin, values_.data() + count_);
}

float Selection::among_few(double wanted) {
  const auto end = values_.begin() + count_;
  std::sort(values_.begin(), end, std::greater<>());
  if (!by_mass_)
    return values_[static_cast<std::size_t>(wanted - above_) - 1];
  std::fill_n(end, kPadding, -kInf);
  weights_.resize(std::max(weights_.size(), static_cast<std::size_t>(count_ + kPadding)));
  bins_.resize(weights_.size());
  passes().weigh(values_.data(), (count_ + kPadding - 1) / kPadding * kPadding, 1.0F, max_,
                 max_ - 87.0F, top_, scale_, kBins - 1, bins_.data(), weights_.data());
  std::size_t last = 0;
  for (double mass = above_; last + 1 < static_cast<std::size_t>(count_); ++last) {
    mass += static_cast<double>(weights_[last]);
    if (mass >= wanted)
      break;
  }
  return values_[last];
}

} // namespace dsi
