// The sweep of Figure 2 against one simulation after the other, each lookahead of each cell.
#include <doctest/doctest.h>

#include <limits>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "core/plan.h"
#include "core/simulate.h"
#include "runtime/sweep.h"
#include "support/effort.h"

using namespace dsi;
using namespace dsi::test;

namespace {

constexpr Nanos kForever = 3'600'000'000'000;

SweepGrid small_grid() {
  SweepGrid grid;
  grid.drafter_latencies = {0.01, 0.07, 0.35, 1.0, 1.2};
  grid.acceptances = {0.0, 0.5, 0.9, 1.0};
  grid.max_lookahead = 60;
  grid.sp = 3;
  grid.tokens = 30;
  grid.repeats = effort(10) / 5 + 1;
  grid.seed = 5;
  return grid;
}

// Mean of the repeats, in target forwards.
double mean(const SweepGrid &grid, double latency, double acceptance, Mode mode, int lookahead) {
  Nanos sum = 0;
  for (int repeat = 0; repeat < grid.repeats; ++repeat) {
    Simulation one;
    Policy &policy = one.session.policy;
    policy.mode = mode;
    policy.lookahead = lookahead;
    policy.run_ahead = default_run_ahead(1.0, latency, lookahead, grid.sp);
    policy.max_window = policy.run_ahead;
    policy.prefill = true;
    one.session.max_new_tokens = grid.tokens;
    one.sp = mode == Mode::kDSI ? grid.sp : 1;
    one.target.ttft = one.target.tpot = 1'000'000;
    one.drafter.ttft = one.drafter.tpot = std::llround(latency * 1e6);
    one.acceptance = acceptance;
    one.seed = grid.seed + static_cast<std::uint64_t>(repeat);
    sum += simulate(one).total;
  }
  return static_cast<double>(sum) / (1e6 * grid.repeats);
}

std::tuple<double, int> best(const SweepGrid &grid, double latency, double acceptance, Mode mode) {
  std::tuple<double, int> least{std::numeric_limits<double>::infinity(), 0};
  const bool bound = mode == Mode::kDSI && grid.equation_1;
  const int first = bound ? least_lookahead(1.0, latency, grid.sp) : 1;
  for (int lookahead = first; lookahead <= grid.max_lookahead; ++lookahead)
    least = std::min(least, {mean(grid, latency, acceptance, mode, lookahead), lookahead});
  return least;
}

auto fields(const SweepCell &cell) {
  return std::tuple(cell.non_si, cell.si, cell.si_lookahead, cell.dsi, cell.dsi_lookahead);
}

void check_same(const Sweep &one, const Sweep &other) {
  for (std::size_t i = 0; i < one.total(); ++i) {
    CAPTURE(i);
    CHECK((fields(one.cells()[i]) == fields(other.cells()[i])));
  }
  CHECK(one.forwards() == other.forwards());
}

} // namespace

TEST_CASE("sweep: every cell has the best of all lookaheads, those behind tokens-1 included") {
  SweepGrid grid = small_grid();
  SUBCASE("of those that Equation 1 allows") { grid.equation_1 = true; }
  SUBCASE("of all") { grid.equation_1 = false; }
  Sweep sweep(grid, 2);
  REQUIRE(sweep.advance(kForever));
  CHECK(sweep.done() == sweep.total());
  std::size_t i = 0;
  for (const double latency : grid.drafter_latencies) {
    for (const double acceptance : grid.acceptances) {
      CAPTURE(latency);
      CAPTURE(acceptance);
      const SweepCell &cell = sweep.cells()[i++];
      CHECK(cell.non_si == mean(grid, latency, acceptance, Mode::kNonSI, 1));
      CHECK((std::tuple(cell.si, cell.si_lookahead) == best(grid, latency, acceptance, Mode::kSI)));
      CHECK((std::tuple(cell.dsi, cell.dsi_lookahead) ==
             best(grid, latency, acceptance, Mode::kDSI)));
    }
  }
  CHECK(i == sweep.total());
}

TEST_CASE("sweep: in many short stretches, on any number of threads, the same") {
  Sweep at_once(small_grid(), 1);
  REQUIRE(at_once.advance(kForever));
  Sweep in_pieces(small_grid(), 3);
  int stretches = 1;
  std::size_t done = 0;
  for (; !in_pieces.advance(0); ++stretches) {
    CHECK(in_pieces.done() >= done);
    done = in_pieces.done();
  }
  CHECK(stretches > 100); // a stretch without time is one lookahead per thread
  check_same(at_once, in_pieces);
  CHECK(in_pieces.advance(0)); // over is over
  check_same(at_once, in_pieces);
}

TEST_CASE("sweep: one token, one cell, more threads than cells") {
  SweepGrid grid = small_grid();
  grid.drafter_latencies = {0.5};
  grid.acceptances = {0.7};
  grid.tokens = 1;
  Sweep sweep(grid, 8);
  REQUIRE(sweep.advance(kForever));
  CHECK((fields(sweep.cells()[0]) == std::tuple(1.0, 1.0, 1, 1.0, 1)));
}

TEST_CASE("sweep: a wrong grid is refused by name") {
  const auto refused = [](const char *name, auto change) {
    SweepGrid grid = small_grid();
    change(grid);
    CAPTURE(name);
    try {
      const Sweep sweep(grid, 1);
      FAIL("not refused");
    } catch (const std::invalid_argument &error) {
      CHECK(std::string(error.what()).starts_with(std::string(name) + ": "));
    }
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  refused("drafter_latencies", [](SweepGrid &grid) { grid.drafter_latencies.clear(); });
  refused("drafter_latencies", [](SweepGrid &grid) { grid.drafter_latencies[1] = 0.0; });
  refused("drafter_latencies", [](SweepGrid &grid) { grid.drafter_latencies[1] = -1.0; });
  refused("drafter_latencies", [&](SweepGrid &grid) { grid.drafter_latencies[1] = nan; });
  refused("acceptances", [](SweepGrid &grid) { grid.acceptances.clear(); });
  refused("acceptances", [](SweepGrid &grid) { grid.acceptances[1] = 1.1; });
  refused("acceptances", [&](SweepGrid &grid) { grid.acceptances[1] = nan; });
  refused("max_lookahead", [](SweepGrid &grid) { grid.max_lookahead = 0; });
  refused("max_lookahead", [](SweepGrid &grid) {
    grid.equation_1 = true;
    grid.max_lookahead = 33; // 1/(3*0.01) is 34
  });
  refused("sp", [](SweepGrid &grid) { grid.sp = 0; });
  refused("tokens", [](SweepGrid &grid) { grid.tokens = 0; });
  refused("repeats", [](SweepGrid &grid) { grid.repeats = 0; });
  CHECK_THROWS_AS(Sweep(small_grid(), 0), std::invalid_argument);
}
