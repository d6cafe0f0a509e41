// The loops of the kernels: the same bits from each instruction set, and how far from the truth.
#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <cstring>

#include "core/rng.h"
#include "support/kernel_rows.h"

using namespace dsi;
using namespace dsi::plain;

namespace {

// Everything that a pass gives, as bits.
class Bits {
public:
  void add(const void *from, std::size_t bytes) {
    const auto *const first = static_cast<const unsigned char *>(from);
    bytes_.insert(bytes_.end(), first, first + bytes);
  }
  template <class T> void add(const std::vector<T> &from) {
    add(from.data(), from.size() * sizeof(T));
  }
  template <class T> void add_value(T value) { add(&value, sizeof value); }
  bool operator==(const Bits &other) const = default;

private:
  std::vector<unsigned char> bytes_;
};

std::vector<float> awkward_chunk() {
  std::mt19937 random(3);
  std::vector<float> x = random_row(random, kChunk, 4.0F, 0.05);
  const std::array<float, 8> odd = {std::nanf(""), kInf,   -kInf, 3.4e38F,
                                    -3.4e38F,      1e-40F, -0.0F, 88.0F};
  for (std::size_t i = 0; i < 64; ++i)
    x[random() % x.size()] = odd[i % odd.size()];
  return x;
}

Bits everything(const std::vector<float> &x, const std::vector<float> &tame) {
  const Passes &pass = passes();
  Bits bits;
  std::vector<float> floats(x.size());
  std::vector<std::int32_t> ints(x.size() + 16);
  std::vector<std::uint32_t> words(x.size());
  for (const std::int64_t count : {std::int64_t{64}, std::int64_t{2112}, kChunk}) {
    const ChunkScan scan = pass.scan(x.data(), count);
    bits.add_value(scan.max);
    bits.add_value(scan.nan);
    bits.add_value(pass.sum(tame.data(), count, 0.7F, 12.0F, -5.5F));
    bits.add_value(pass.find(x.data(), count, x[60]));
    for (const float least : {-9.0F, 1.0F, 7.0F}) {
      std::fill(ints.begin(), ints.end(), -1);
      bits.add_value(pass.collect(x.data(), count, 0.7F, least, ints.data(), 2000));
      bits.add(ints);
    }
    pass.exp(tame.data(), count, floats.data());
    bits.add(floats);
    pass.weigh(x.data(), count, 0.7F, 12.0F, -5.5F, 12.0F, 64.0F, 2047, ints.data(), floats.data());
    bits.add(ints);
    bits.add(floats);
    bits.add_value(pass.gather(x.data(), count, 0.7F, -20.0F, 12.0F, 2.0F, 63, 25, floats.data()));
    bits.add(floats);
  }
  const Noise noise{0x0123456789ABCDEFULL, (std::int64_t{7} << 32U) + 11, 3};
  pass.chunk_bits(noise, 37, words.data());
  bits.add(words);
  RaceHits hits{};
  RaceChunk chunk{noise, 37, x.data(), 64, 0.7F, 12.0F, -3.0F, 2.0F, 0x30000000U};
  for (std::int32_t group = -1; (group = pass.race(chunk, group + 1, &hits)) < chunk.groups;) {
    bits.add_value(group);
    bits.add(&hits, sizeof hits);
  }
  return bits;
}

double half_value(std::uint16_t half) {
  const int exponent = half >> 10U & 31;
  const double fraction = (half & 1023) / 1024.0;
  const double magnitude = exponent == 0    ? std::ldexp(fraction, -14)
                           : exponent == 31 ? (fraction == 0.0 ? kInf : std::nan(""))
                                            : std::ldexp(1.0 + fraction, exponent - 15);
  return half >> 15U != 0 ? -magnitude : magnitude;
}

} // namespace

TEST_CASE("kernels: every instruction set gives the same bits") {
  const std::vector<float> x = awkward_chunk();
  std::vector<float> tame;
  for (const float value : x)
    tame.push_back(std::isfinite(value) ? std::clamp(value, -87.0F, 0.0F) : -5.0F);
  force_passes("baseline");
  const Bits expected = everything(x, tame);
  with_variants([&](const std::string &name) {
    CAPTURE(name);
    CHECK(passes().name == name);
    CHECK(everything(x, tame) == expected);
  });
}

TEST_CASE("kernels: an instruction set that is not there changes nothing") {
  const std::string before = passes().name;
  CHECK_FALSE(force_passes("avx1024"));
  CHECK(passes().name == before);
}

TEST_CASE("kernels: the noise is the scalar one") {
  const std::vector<Token> ids = {0,    1,    1023, 1024,    4095,      4096,
                                  5000, 9999, 8191, 151'935, 2'000'000, 2'147'483'647};
  std::vector<Token> padded = ids;
  padded.resize(16);
  const std::vector<Noise> noises = {{0, 0, 0},
                                     {0x0123456789ABCDEFULL, (std::int64_t{7} << 32U) + 11, 2},
                                     {~std::uint64_t{0}, std::numeric_limits<Position>::max(), 3}};
  with_variants([&](const std::string &name) {
    CAPTURE(name);
    for (const Noise &noise : noises) {
      std::vector<std::uint32_t> bits(16);
      passes().token_bits(noise, padded.data(), static_cast<std::int64_t>(ids.size()), bits.data());
      for (std::size_t i = 0; i < ids.size(); ++i)
        CHECK(bits[i] == token_bits(noise.seed, noise.position, noise.tag, ids[i]));
      std::vector<std::uint32_t> chunk(kChunk);
      passes().chunk_bits(noise, 36, chunk.data());
      for (std::size_t i = 0; i < chunk.size(); ++i) {
        const auto id = static_cast<Token>(36 * kChunk) + static_cast<Token>(i);
        REQUIRE(chunk[i] == token_bits(noise.seed, noise.position, noise.tag, id));
      }
    }
  });
}

TEST_CASE("kernels: exp is as close as it says, and 1 at 0") {
  constexpr std::int64_t kCount = 1 << 14;
  std::vector<float> x(kCount);
  std::vector<float> y(kCount);
  double worst = 0.0; // as part of what is allowed
  for (int part = 0; part < 8; ++part) {
    for (std::int64_t i = 0; i < kCount; ++i)
      x[static_cast<std::size_t>(i)] =
          -87.0F * static_cast<float>(part * kCount + i) / static_cast<float>(8 * kCount);
    passes().exp(x.data(), kCount, y.data());
    for (std::size_t i = 0; i < x.size(); ++i) {
      const auto exact = std::exp(static_cast<double>(x[i]));
      const double off = std::abs(static_cast<double>(y[i]) / exact - 1.0);
      worst = std::max(worst, off / (2e-7 + 9e-8 * std::abs(static_cast<double>(x[i]))));
    }
    if (part == 0)
      CHECK(y[0] == 1.0F);
  }
  CHECK(worst < 1.0);
  const std::vector<float> below(16, -87.5F);
  passes().exp(below.data(), 16, y.data());
  CHECK(y[0] == 0.0F);
}

TEST_CASE("kernels: every bfloat16 and every float16 is read exactly") {
  std::vector<std::uint16_t> narrow(1U << 16U);
  for (std::size_t i = 0; i < narrow.size(); ++i)
    narrow[i] = static_cast<std::uint16_t>(i);
  std::vector<float> wide(narrow.size());
  with_variants([&](const std::string &name) {
    CAPTURE(name);
    passes().widen_f16(narrow.data(), wide.data(), static_cast<std::int64_t>(narrow.size()));
    int wrong = 0;
    for (std::size_t i = 0; i < narrow.size(); ++i) {
      const double value = half_value(narrow[i]);
      const bool same = std::isnan(value) ? std::isnan(wide[i])
                                          : static_cast<double>(wide[i]) == value &&
                                                std::signbit(wide[i]) == std::signbit(value);
      wrong += same ? 0 : 1;
    }
    CHECK(wrong == 0);
    passes().widen_bf16(narrow.data(), wide.data(), static_cast<std::int64_t>(narrow.size()));
    for (std::size_t i = 0; i < narrow.size(); ++i) {
      std::uint32_t bits = 0;
      std::memcpy(&bits, &wide[i], sizeof bits);
      wrong += bits == std::uint32_t{narrow[i]} << 16U ? 0 : 1;
    }
    CHECK(wrong == 0);
  });
}
