// The closed forms against brute force and against the virtual clock.
#include <doctest/doctest.h>

#include <cmath>
#include <random>
#include <stdexcept>

#include "core/plan.h"
#include "core/simulate.h"
#include "support/effort.h"

using namespace dsi;
using namespace dsi::test;

namespace {

// Mean time per token over a long output, in units of ms.
double simulated_ms(const PlanInputs &inputs, Mode mode, int lookahead, int sp) {
  Simulation one;
  one.session.policy.mode = mode;
  one.session.policy.lookahead = lookahead;
  one.session.policy.run_ahead =
      default_run_ahead(inputs.target_ms, inputs.drafter_ms, lookahead, sp);
  one.session.max_new_tokens = 2000;
  one.sp = sp;
  one.target.tpot = one.target.ttft = std::llround(inputs.target_ms * 1e6);
  one.drafter.tpot = one.drafter.ttft = std::llround(inputs.drafter_ms * 1e6);
  one.acceptance = inputs.acceptance;
  const int runs = kSanitized ? 2 : 10;
  double total = 0.0;
  for (int run = 0; run < runs; ++run) {
    one.seed = static_cast<std::uint64_t>(run);
    total += static_cast<double>(simulate(one).total);
  }
  return total / runs / 2000.0 * 1e-6;
}

} // namespace

TEST_CASE("the least lookahead is the least that meets Equation 1") {
  std::mt19937_64 random(91);
  for (int i = 0; i < 2000; ++i) {
    const double target = 1.0 + static_cast<double>(random() % 10000) / 100.0;
    const double drafter = 0.1 + static_cast<double>(random() % 5000) / 100.0;
    const auto sp = static_cast<int>(1 + random() % 8);
    const int k = least_lookahead(target, drafter, sp);
    CHECK(equation_1(target, drafter, k, sp));
    CHECK((k == 1 || !equation_1(target, drafter, k - 1, sp)));
    CHECK(equation_1(target, drafter, 1, most_useful_sp(target, drafter)));
  }
  CHECK(least_lookahead(6.9, 2.3, 3) == 1); // the quotient is 3, whatever the floats say
  CHECK(most_useful_sp(6.9, 2.3) == 3);
  CHECK(most_useful_sp(1.0, 5.0) == 1);
  CHECK(least_lookahead(52.4, 34.6, 7) == 1);
  CHECK(least_lookahead(37.7, 2.5, 7) == 3);
}

TEST_CASE("extreme ratios stay finite") {
  for (const double drafter : {1e-6, 1e-12, 1e-300}) {
    CHECK(least_lookahead(1e9, drafter, 1) >= 1);
    CHECK(most_useful_sp(1e9, drafter) >= 1);
    CHECK(default_run_ahead(1e9, drafter, 5, 7) >= 5);
    CHECK_FALSE(equation_1(1e9, drafter, 5, 7));
    const std::vector<PlanRow> rows = plan({1e9, drafter, 0.9, 7, 200});
    for (const PlanRow &row : rows)
      CHECK(std::isfinite(row.ms_per_token));
  }
}

TEST_CASE("predicted times are what the virtual clock takes") {
  for (const PlanInputs &inputs :
       {PlanInputs{20.6, 6.8, 0.93, 7, 200}, PlanInputs{37.7, 2.5, 0.63, 7, 200},
        PlanInputs{50.0, 10.0, 0.8, 2, 200}, PlanInputs{10.0, 1.0, 0.95, 4, 200}}) {
    CAPTURE(inputs.target_ms);
    for (const int k : {1, 3, 6})
      CHECK(simulated_ms(inputs, Mode::kSI, k, 1) ==
            doctest::Approx(si_ms_per_token(inputs, k)).epsilon(0.03));
    const int k = least_lookahead(inputs.target_ms, inputs.drafter_ms, inputs.sp);
    CHECK(simulated_ms(inputs, Mode::kDSI, k, inputs.sp + 1) ==
          doctest::Approx(dsi_ms_per_token(inputs, k)).epsilon(0.03));
    CHECK(simulated_ms(inputs, Mode::kNonSI, 1, 1) == doctest::Approx(non_si_ms_per_token(inputs)));
  }
}

TEST_CASE("the ends of the acceptance rate, and Proposition 1 at lookahead 1") {
  const PlanInputs never{10.0, 2.0, 0.0, 5, 50};
  const PlanInputs always{10.0, 2.0, 1.0, 5, 50};
  CHECK(dsi_ms_per_token(never, 1) == doctest::Approx(10.0));
  CHECK(dsi_ms_per_token(always, 1) == doctest::Approx(2.0));
  CHECK(si_ms_per_token(never, 3) == doctest::Approx(16.0));
  CHECK(si_ms_per_token(always, 4) == doctest::Approx(18.0 / 5.0));
  const PlanInputs some{10.0, 2.0, 0.7, 5, 50};
  CHECK(dsi_ms_per_token(some, 1) == doctest::Approx(0.7 * 2.0 + 0.3 * 10.0));
}

TEST_CASE("a plan: SI at its best lookahead, DSI never worse than non-SI") {
  for (double a = 0.0; a <= 1.0; a += 0.1) {
    const PlanInputs inputs{30.0, 4.0, a, 4, 100};
    const std::vector<PlanRow> rows = plan(inputs);
    REQUIRE(rows.size() == 3);
    CHECK(rows[0].mode == Mode::kNonSI);
    CHECK(rows[0].speedup == doctest::Approx(1.0));
    CHECK(rows[1].mode == Mode::kSI);
    for (int k = 1; k <= 100; ++k)
      CHECK(rows[1].ms_per_token <= si_ms_per_token(inputs, k) + 1e-12);
    CHECK(rows[2].mode == Mode::kDSI);
    CHECK(rows[2].lookahead == least_lookahead(30.0, 4.0, 4));
    CHECK(rows[2].ms_per_token <= rows[0].ms_per_token);
    CHECK(rows[2].sp <= 4);
    CHECK(rows[2].speedup == doctest::Approx(30.0 / rows[2].ms_per_token));
  }
}

TEST_CASE("bad inputs are refused by name") {
  const auto refused = [](const PlanInputs &inputs, const std::string &name) {
    try {
      plan(inputs);
    } catch (const std::invalid_argument &error) {
      return std::string(error.what()).find(name) == 0;
    }
    return false;
  };
  CHECK(refused({0.0, 1.0, 0.5, 1, 10}, "target_ms"));
  CHECK(refused({NAN, 1.0, 0.5, 1, 10}, "target_ms"));
  CHECK(refused({1.0, -1.0, 0.5, 1, 10}, "drafter_ms"));
  CHECK(refused({1.0, INFINITY, 0.5, 1, 10}, "drafter_ms"));
  CHECK(refused({1.0, 1.0, 1.5, 1, 10}, "acceptance"));
  CHECK(refused({1.0, 1.0, NAN, 1, 10}, "acceptance"));
  CHECK(refused({1.0, 1.0, 0.5, 0, 10}, "sp"));
  CHECK(refused({1.0, 1.0, 0.5, 1, 0}, "max_lookahead"));
}
