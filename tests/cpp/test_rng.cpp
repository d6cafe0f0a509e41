#include <doctest/doctest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/rng.h"

using namespace dsi;

namespace {

using Words = std::array<std::uint32_t, 4>;

constexpr std::uint64_t kSeed = 0x0123456789ABCDEFULL;
constexpr Position kPosition = (Position{7} << 32) + 11; // needs both halves

double exact_exponential(std::uint32_t bits) {
  return -std::log1p(-(static_cast<double>(bits) + 0.5) * 0x1p-32);
}

} // namespace

TEST_CASE("Philox4x32-10 gives Random123's known answers") {
  CHECK(philox4x32_10({0, 0, 0, 0}, {0, 0}) ==
        Words{0x6627E8D5U, 0xE169C58DU, 0xBC57AC4CU, 0x9B00DBD8U});
  const std::uint32_t ones = 0xFFFFFFFFU;
  CHECK(philox4x32_10({ones, ones, ones, ones}, {ones, ones}) ==
        Words{0x408F276DU, 0x41C83B0EU, 0xA20BC7C6U, 0x6D5451FDU});
  CHECK(philox4x32_10({0x243F6A88U, 0x85A308D3U, 0x13198A2EU, 0x03707344U},
                      {0xA4093822U, 0x299F31D0U}) ==
        Words{0xD16CFE09U, 0x94FDCCEBU, 0x5001E420U, 0x24126EA1U});
}

TEST_CASE("token bits: seed, position, tag and id sit where the contract puts them") {
  // Computed with a separate implementation in Python integers.
  const std::vector<std::pair<Token, std::uint32_t>> known = {
      {0, 0xFCA5F771U},    {1023, 0x20A7C805U},  {1024, 0x1C085E36U},  {4095, 0x0F8F4378U},
      {4096, 0x05B88D92U}, {49151, 0xF86E712DU}, {151935, 0x663F2F23U}};
  for (const auto &[id, bits] : known)
    CHECK(token_bits(kSeed, kPosition, kResidual, id) == bits);

  const std::array<std::uint32_t, 2> key = {0x89ABCDEFU, 0x01234567U};
  CHECK(token_bits(kSeed, kPosition, kDraftNoise, 2 * 4096 + 3 * 1024 + 5) ==
        philox4x32_10({2 * 1024 + 5, kDraftNoise, 11, 7}, key)[3]);
}

TEST_CASE("exponential: bits as NumPy float32 gives them") {
  const std::vector<std::pair<std::uint32_t, std::uint32_t>> known = {
      {0x00000000U, 0x2F000000U}, {0x00000001U, 0x2FC00000U}, {0x00003039U, 0x3640E612U},
      {0x01FFFFFFU, 0x3C0080ACU}, {0x02000000U, 0x3C0080ACU}, {0x12345678U, 0x3D9712B1U},
      {0x80000000U, 0x3F317218U}, {0xDEADBEEFU, 0x40027EA8U}, {0xFFFFFEFFU, 0x41851592U},
      {0xFFFFFFFFU, 0x41851592U}};
  for (const auto &[bits, value] : known)
    CHECK(std::bit_cast<std::uint32_t>(exponential(bits)) == value);
}

TEST_CASE("exponential: positive, finite, ordered, accurate, full resolution near 0") {
  float last = 0.0F;
  for (std::uint64_t bits = 0; bits <= 0xFFFFFFFFULL; bits += 65'521) {
    const auto word = static_cast<std::uint32_t>(bits);
    const float e = exponential(word);
    REQUIRE(e >= last);
    REQUIRE(e >= unit_interval(word));
    last = e;
    if (bits < 0xFC000000ULL)
      REQUIRE(e == doctest::Approx(exact_exponential(word)).epsilon(6e-6));
  }
  CHECK(last <= doctest::Approx(24.0 * std::log(2.0)));
  CHECK(exponential(0) > 0.0F);
  // Neighbours differ near 0, where a float32 uniform from 24 bits would give one value for 256.
  for (std::uint32_t bits = 0; bits < 4096; ++bits)
    REQUIRE(exponential(bits) < exponential(bits + 1));
  // The series and the logarithm meet at w = 2^-7.
  for (std::uint32_t bits = 0x02000000U - 300; bits < 0x02000000U + 300; ++bits)
    REQUIRE(exponential(bits) == doctest::Approx(exact_exponential(bits)).epsilon(4e-6));
}

TEST_CASE("exponential: mean 1 and second moment 2 over the whole range of bits") {
  double first = 0.0;
  double second = 0.0;
  constexpr int kStrata = 1 << 18;
  for (int i = 0; i < kStrata; ++i) {
    const double e = exponential((static_cast<std::uint32_t>(i) << 14U) + (1U << 13U));
    first += e / kStrata;
    second += e * e / kStrata;
  }
  CHECK(first == doctest::Approx(1.0).epsilon(1e-5));
  CHECK(second == doctest::Approx(2.0).epsilon(3e-4));
}

TEST_CASE("the coin is never 0 and never 1") {
  CHECK(odd_grid(0) == 0x1p-24F);
  CHECK(odd_grid(0xFFFFFFFFU) == 1.0F - 0x1p-24F);
  CHECK(odd_grid(0xFFFFFFFFU) < 1.0F);
  for (std::uint64_t bits = 0; bits <= 0xFFFFFFFFULL; bits += 999'983) {
    const double steps = static_cast<double>(odd_grid(static_cast<std::uint32_t>(bits))) * 0x1p24;
    REQUIRE(std::fmod(steps, 2.0) == 1.0);
  }
  CHECK(static_cast<double>(accept_uniform(kSeed, kPosition)) == 10'330'489 * 0x1p-24);
}

TEST_CASE("the purposes, positions and seeds have noise of their own") {
  for (const std::uint32_t tag : {kCoupledNoise, kDraftNoise, kAccept, kResidual}) {
    for (const std::uint32_t other : {kCoupledNoise, kDraftNoise, kAccept, kResidual})
      CHECK((token_bits(1, 2, tag, 3) == token_bits(1, 2, other, 3)) == (tag == other));
  }
  CHECK(token_bits(1, 2, kDraftNoise, 3) != token_bits(1, 3, kDraftNoise, 3));
  CHECK(token_bits(1, 2, kDraftNoise, 3) != token_bits(1, 2 + (1LL << 32), kDraftNoise, 3));
  CHECK(token_bits(1, 2, kDraftNoise, 3) != token_bits(1 + (1ULL << 32), 2, kDraftNoise, 3));
}
