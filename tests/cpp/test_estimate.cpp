// What lookahead="auto" believes about the servers, and what it chooses from that.
#include <doctest/doctest.h>

#include <random>

#include "core/estimate.h"

using namespace dsi;

namespace {

Nanos ns(double ms) { return static_cast<Nanos>(ms * 1e6); }

// Forwards over windows 0..5 on a line, drafts, and a share of accepted ones.
Estimate measured(double target_ms, double growth_ms, double drafter_ms, double acceptance,
                  int samples = 300) {
  Estimate estimate;
  for (int i = 0; i < samples; ++i) {
    estimate.target_forward(i % 6, ns(target_ms + growth_ms * (i % 6)));
    estimate.drafter_forward(ns(drafter_ms));
    estimate.judged(i % 100 < static_cast<int>(acceptance * 100) ? 1 : 0,
                    i % 100 < static_cast<int>(acceptance * 100) ? 0 : 1);
  }
  return estimate;
}

} // namespace

TEST_CASE("it finds the line, the mean and the share that it is fed") {
  const Estimate estimate = measured(20.0, 0.5, 3.0, 0.8, 1000);
  CHECK(estimate.target_ms(0) == doctest::Approx(20.0).epsilon(0.001));
  CHECK(estimate.target_ms(10) == doctest::Approx(25.0).epsilon(0.001));
  CHECK(estimate.growth_ms() == doctest::Approx(0.5).epsilon(0.001));
  CHECK(estimate.drafter_ms() == doctest::Approx(3.0).epsilon(0.001));
  CHECK(estimate.acceptance() > 0.5);
  CHECK(estimate.acceptance() < 0.95);
}

TEST_CASE("old measurements fade") {
  Estimate estimate = measured(20.0, 0.0, 3.0, 0.9);
  for (int i = 0; i < 300; ++i) {
    estimate.target_forward(i % 6, ns(40.0));
    estimate.drafter_forward(ns(1.0));
  }
  CHECK(estimate.target_ms(3) == doctest::Approx(40.0).epsilon(0.01));
  CHECK(estimate.drafter_ms() == doctest::Approx(1.0).epsilon(0.02));
}

TEST_CASE("without measurements the lookahead is 1, and acceptance starts in the middle") {
  Estimate estimate;
  CHECK_FALSE(estimate.ready());
  CHECK_FALSE(estimate.ready_target());
  CHECK(estimate.lookahead(Mode::kDSI, 3) == 1);
  CHECK(estimate.lookahead(Mode::kSI, 1) == 1);
  CHECK(estimate.acceptance() == doctest::Approx(0.75));
  estimate.target_forward(0, ns(5.0));
  estimate.drafter_forward(ns(1.0));
  CHECK(estimate.ready_target());
  CHECK_FALSE(estimate.ready()); // one forward may be the slow first one
}

TEST_CASE("one window length says nothing about growth, and noise never makes a forward free") {
  Estimate same;
  for (int i = 0; i < 50; ++i)
    same.target_forward(4, ns(i % 2 == 0 ? 9.0 : 11.0));
  CHECK(same.growth_ms() == 0.0);
  CHECK(same.target_ms(40) == doctest::Approx(10.0).epsilon(0.05));
  std::mt19937_64 random(81);
  for (int run = 0; run < 200; ++run) {
    Estimate noisy;
    for (int i = 0; i < 20; ++i)
      noisy.target_forward(static_cast<Position>(random() % 3),
                           ns(1.0 + static_cast<double>(random() % 1000) / 10.0));
    CHECK(noisy.growth_ms() >= 0.0);
    CHECK(noisy.target_ms(0) > 0.5);
    CHECK(noisy.target_ms(32) < 33.0 * 101.0);
  }
}

TEST_CASE("DSI takes the least lookahead of Equation 1 with the forward that lookahead makes") {
  for (const int sp : {1, 2, 4, 7}) {
    const Estimate flat = measured(20.0, 0.0, 3.0, 0.8);
    CHECK(flat.lookahead(Mode::kDSI, sp) == least_lookahead(20.0, 3.0, sp));
    const Estimate grows = measured(20.0, 2.0, 3.0, 0.8);
    const int k = grows.lookahead(Mode::kDSI, sp);
    if (k < 32)
      CHECK(equation_1(20.0 + 2.0 * k - 1e-3, 3.0 + 1e-4, k, sp));
    if (k > 1)
      CHECK_FALSE(equation_1(20.0 + 2.0 * (k - 1) + 1e-3, 3.0 - 1e-4, k - 1, sp));
  }
}

TEST_CASE(
    "SI takes the round that costs least per token, and longer windows where drafts are good") {
  const Estimate good = measured(20.0, 0.0, 1.0, 0.99);
  const Estimate poor = measured(20.0, 0.0, 10.0, 0.2);
  CHECK(good.lookahead(Mode::kSI, 1) > 4);
  CHECK(poor.lookahead(Mode::kSI, 1) == 1);
  const double a = good.acceptance();
  const int chosen = good.lookahead(Mode::kSI, 1);
  for (int k = 1; k <= 32; ++k)
    CHECK(si_ms_per_token({20.0, 1.0, a, 1, 32}, chosen) <=
          si_ms_per_token({20.0, 1.0, a, 1, 32}, k) * 1.0001);
  CHECK(good.lookahead(Mode::kNonSI, 1) == 1);
}
