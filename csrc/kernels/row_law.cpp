#include "kernels/row_law.h"

#include <algorithm>
#include <cmath>

#include "core/sampling.h"

namespace dsi {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kLargest = std::numeric_limits<float>::max();

} // namespace

void RowLaw::open(const Row &row) {
  row_ = row;
  reader_.open(row);
  greedy_ = is_greedy(row.temperature);
  inverse_ = greedy_ ? 1.0F : 1.0F / row.temperature;
  cut_ = greedy_ ? -kInf : row.cut;
}

std::uint32_t RowLaw::prepare(const Row &row, bool with_sum) {
  open(row);
  argmax_ = -1;
  std::uint32_t status = 0;
  scan(with_sum, &status);
  if (max_ > -kInf && !(std::abs(max_ * inverse_) <= kLargest)) {
    if (max_ == kInf) {
      status |= kSawInfinity;
      if (greedy_)
        argmax(); // by x: clamped, the largest finite logit would equal it
    }
    reader_.scale_while_reading(inverse_);
    inverse_ = 1.0F;
    std::uint32_t again = 0;
    scan(with_sum, &again);
  }
  max_ = scaled(max_, inverse_);
  return !(max_ > -kInf && max_ >= cut_) ? status | kRowEmpty : status;
}

// max_ of what the reader gives, not scaled yet.
void RowLaw::scan(bool with_sum, std::uint32_t *status) {
  const std::int64_t chunks = reader_.chunks();
  chunk_max_.resize(static_cast<std::size_t>(chunks));
  max_ = -kInf;
  sum_ = 0.0;
  sum_max_ = -std::numeric_limits<double>::infinity();
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
    const float *const x = reader_.read(chunk);
    const ChunkScan found = passes().scan(x, reader_.padded(chunk));
    chunk_max_[static_cast<std::size_t>(chunk)] = found.max;
    max_ = std::max(max_, found.max);
    if (found.nan)
      *status |= kSawNaN;
    if (with_sum)
      add_to_sum(x, chunk, found.max * inverse_);
  }
}

void RowLaw::add_to_sum(const float *x, std::int64_t chunk, float chunk_max) {
  if (!(chunk_max > -kInf && chunk_max >= cut_))
    return;
  // Below -87 the polynomial ends, and float32's precision does long before.
  const float least = std::max(cut_, chunk_max - 87.0F);
  const double sum =
      static_cast<double>(passes().sum(x, reader_.padded(chunk), inverse_, chunk_max, least));
  const auto max = static_cast<double>(chunk_max);
  if (max > sum_max_) {
    sum_ = sum_ * std::exp(sum_max_ - max) + sum;
    sum_max_ = max;
  } else {
    sum_ += sum * std::exp(max - sum_max_);
  }
}

float RowLaw::chunk_z(std::int64_t chunk) const {
  return scaled(chunk_max_[static_cast<std::size_t>(chunk)], inverse_);
}

void RowLaw::need_sum() {
  if (sum_ > 0.0)
    return;
  sum_max_ = -std::numeric_limits<double>::infinity();
  for (std::int64_t chunk = 0; chunk < reader_.chunks(); ++chunk) {
    const float max = chunk_z(chunk);
    if (max > -kInf && max >= cut_)
      add_to_sum(reader_.read(chunk), chunk, max);
  }
}

std::uint32_t RowLaw::assume(const Row &row, double lse) {
  open(row);
  sum_ = 1.0;
  sum_max_ = lse;
  return std::isfinite(lse) ? 0 : kRowEmpty;
}

Token RowLaw::argmax() {
  if (argmax_ >= 0)
    return argmax_;
  const auto found = std::max_element(chunk_max_.begin(), chunk_max_.end());
  const auto chunk = static_cast<std::int64_t>(found - chunk_max_.begin());
  argmax_ = static_cast<Token>(chunk * kChunk) +
            passes().find(reader_.read(chunk), reader_.padded(chunk), *found);
  return argmax_;
}

float RowLaw::z(Token id) const {
  return id >= 0 && id < row_.size ? scaled(reader_.at(id), inverse_) : -kInf;
}

bool RowLaw::kept(Token id) const {
  const float scaled = z(id);
  return scaled > -kInf && scaled >= cut_;
}

double RowLaw::lse() {
  need_sum();
  return sum_max_ + std::log(sum_);
}

double RowLaw::probability(Token id) {
  if (!kept(id))
    return 0.0;
  need_sum();
  return std::exp(static_cast<double>(z(id)) - sum_max_) / sum_;
}

float RowLaw::logprob(Token id) {
  return kept(id) ? static_cast<float>(static_cast<double>(z(id)) - lse()) : -kInf;
}

void RowLaw::set_cut(float cut) {
  if (cut != cut_)
    sum_ = 0.0;
  cut_ = cut;
}

} // namespace dsi
