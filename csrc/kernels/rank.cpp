// Thresholds and rankings of row_law.h.
#include <algorithm>
#include <cmath>

#include "kernels/row_law.h"

namespace dsi {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

} // namespace

float RowLaw::find_cut(std::int32_t top_k, float top_p, float min_p) {
  if (greedy_)
    return -kInf;
  ScannedRow row{&reader_, chunk_max_, inverse_, max_, -kInf};
  if (top_k > 0 && top_k < row_.size) {
    const float kth = selection_.kth(row, top_k);
    if (more_than(top_k, kth))
      row.least = kth;
  }
  if (top_p < 1.0F)
    row.least = selection_.share(row, static_cast<double>(top_p));
  if (min_p > 0.0F) {
    const double least = static_cast<double>(max_) + std::log(static_cast<double>(min_p));
    row.least = std::max(row.least, std::min(max_, static_cast<float>(least)));
  }
  return row.least;
}

void RowLaw::copy_edited(std::vector<float> &out) {
  ChunkReader reader; // not the one that may scale
  reader.open(row_);
  out.resize(static_cast<std::size_t>(row_.size));
  for (std::int64_t chunk = 0; chunk < reader.chunks(); ++chunk) {
    const float *const x = reader.read(chunk);
    const std::int64_t begin = chunk * kChunk;
    std::copy_n(x, std::min(row_.size - begin, kChunk), out.begin() + begin);
  }
}

// Whether more than k ids are possible, where the k-th best has z = kth: mostly settled by the
// first id that is worse.
bool RowLaw::more_than(std::int64_t k, float kth) {
  std::int64_t equal_or_better = 0;
  for (std::int64_t chunk = 0; chunk < reader_.chunks(); ++chunk) {
    const float *const x = reader_.read(chunk);
    for (std::int64_t i = 0; i < reader_.padded(chunk); ++i) {
      const float z = scaled(x[i], inverse_);
      if (z > -kInf && z < kth)
        return true;
      equal_or_better += z > -kInf ? 1 : 0;
    }
  }
  return equal_or_better > k;
}

void RowLaw::top(std::int32_t n, std::vector<std::pair<Token, float>> &out) {
  out.clear();
  if (n <= 0)
    return;
  const float nth = selection_.kth({&reader_, chunk_max_, inverse_, max_, cut_}, n);
  const float least = std::max(nth, std::max(cut_, -std::numeric_limits<float>::max()));
  ids_.resize(kChunk + 16);
  for (std::int64_t chunk = 0; chunk < reader_.chunks(); ++chunk) {
    if (!(chunk_z(chunk) >= least))
      continue;
    const float *const x = reader_.read(chunk);
    const std::int32_t found = passes().collect(x, reader_.padded(chunk), inverse_, least,
                                                ids_.data(), static_cast<std::int32_t>(kChunk) + 1);
    for (std::int32_t i = 0; i < found; ++i)
      out.emplace_back(static_cast<Token>(chunk * kChunk) + ids_[static_cast<std::size_t>(i)],
                       scaled(x[ids_[static_cast<std::size_t>(i)]], inverse_));
  }
  const std::size_t count = std::min(out.size(), static_cast<std::size_t>(n));
  std::partial_sort(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(count), out.end(),
                    [](const auto &a, const auto &b) {
                      return a.second > b.second || (a.second == b.second && a.first < b.first);
                    });
  out.resize(count);
  for (auto &[id, value] : out)
    value = logprob(id);
}

} // namespace dsi
