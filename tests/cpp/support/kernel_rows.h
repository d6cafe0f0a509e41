// Random rows for the tests of the kernels, and each instruction set in turn.
#pragma once

#include <functional>
#include <string>

#include "kernels/passes.h"
#include "plain_law.h"

namespace dsi::plain {

inline std::vector<std::string> variants() {
  std::vector<std::string> names;
  for (const char *name : {"baseline", "avx2", "avx512"}) {
    if (force_passes(name))
      names.emplace_back(name);
  }
  force_passes(nullptr);
  return names;
}

// Runs `test` with each instruction set of this machine.
inline void with_variants(const std::function<void(const std::string &)> &test) {
  for (const std::string &name : variants()) {
    force_passes(name.c_str());
    test(name);
  }
  force_passes(nullptr);
}

// Normal values on a grid of 1/32, which float16 holds exactly, some of them -inf.
inline std::vector<float> random_row(std::mt19937 &random, std::int64_t size, float spread,
                                     double impossible = 0.0) {
  std::normal_distribution<float> normal(0.0F, spread);
  std::bernoulli_distribution out(impossible);
  std::vector<float> row;
  for (std::int64_t i = 0; i < size; ++i)
    row.push_back(out(random) ? -kInf : std::round(normal(random) * 32.0F) / 32.0F);
  return row;
}

// A row in another format. `wide` is what it then holds: bfloat16 cuts off.
struct Stored {
  std::vector<float> wide;
  std::vector<std::uint16_t> narrow;
  Row row;

  Stored(const std::vector<float> &values, Dtype dtype) : wide(values) {
    for (float &x : wide) {
      std::uint32_t bits = 0;
      std::memcpy(&bits, &x, sizeof bits);
      bits &= dtype == Dtype::kBf16 ? 0xFFFF0000U : 0xFFFFFFFFU;
      std::memcpy(&x, &bits, sizeof bits);
      narrow.push_back(dtype == Dtype::kF16 ? half_bits(x)
                                            : static_cast<std::uint16_t>(bits >> 16U));
    }
    row.data = dtype == Dtype::kF32 ? static_cast<const void *>(wide.data()) : narrow.data();
    row.dtype = dtype;
    row.size = static_cast<std::int64_t>(values.size());
  }
};

} // namespace dsi::plain
