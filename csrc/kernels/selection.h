// The k-th best of a row, or the last one that makes up a given share of its mass, without sorting.
#pragma once

#include <span>
#include <vector>

#include "kernels/chunks.h"

namespace dsi {

// A scanned row. `reader` gives x, the values are z = x * inverse.
struct ScannedRow {
  ChunkReader *reader;
  std::span<const float> chunk_max; // x
  float inverse;
  float max;   // z of the best
  float least; // z below: does not take part
};

// By histograms of max - z, each over the one bin of the one before that holds the threshold:
// expected two reads of the row from the caches, and no memory but for the values of one bin.
// Reuse one object.
class Selection {
public:
  // The k-th best z, k >= 1, equal ones counted apart; -inf where fewer take part.
  float kth(const ScannedRow &row, std::int64_t k);
  // The largest t such that the exp(z) of all z >= t sum up to at least `share` < 1 of the whole.
  float share(const ScannedRow &row, double share);

private:
  static constexpr std::int32_t kBins = 2048;

  float find(const ScannedRow &row, double wanted);
  void tally(const float *x, std::int64_t count, float inverse, float least);
  std::int32_t bin_reaching(double wanted); // moves `above_` to the mass before it
  void gather(const float *x, std::int64_t count, float inverse, float least, std::int32_t bin);
  float narrow(double wanted);
  float among_few(double wanted);

  bool by_mass_ = false;
  float max_ = 0.0F;   // weights are exp(z - max)
  float top_ = 0.0F;   // where the first bin begins
  float scale_ = 0.0F; // bins per unit of z
  double above_ = 0.0; // the weight of everything above the bins
  std::vector<double> weight_of_bin_;
  std::vector<std::int32_t> bins_; // of one chunk
  std::vector<float> weights_;
  std::vector<float> values_; // those of the chosen bin, then padding
  std::int64_t count_ = 0;    // of values_
};

} // namespace dsi
