// The virtual clock against closed forms, to the nanosecond: algorithm.md's "exact timing of one
// faithful run".
#include <doctest/doctest.h>

#include <random>
#include <vector>

#include "core/plan.h"
#include "core/simulate.h"
#include "support/effort.h"

using namespace dsi;
using namespace dsi::test;

namespace {

Simulation simulation(Mode mode, int lookahead, std::int64_t tokens, Nanos target, Nanos drafter,
                      int sp) {
  Simulation made;
  made.session.policy.mode = mode;
  made.session.policy.lookahead = lookahead;
  made.session.policy.run_ahead = 1000;
  made.session.policy.max_window = 1000;
  made.session.max_new_tokens = tokens;
  made.sp = sp;
  made.target = {target, target, 0.0, 0.0, true};
  made.drafter = {drafter, drafter, 0.0, 0.0, true};
  made.prompt_tokens = 3;
  return made;
}

int servers_to_spare(Nanos target, Nanos drafter, int lookahead) {
  return static_cast<int>((target + lookahead * drafter - 1) / (lookahead * drafter)) + 1;
}

// Drafts in a row that are right, from position `at` on.
std::int64_t run_length(const std::vector<bool> &right, std::int64_t at) {
  std::int64_t n = 0;
  while (static_cast<std::size_t>(at + n) < right.size() && right[static_cast<std::size_t>(at + n)])
    ++n;
  return n;
}

// With n drafts right before the first wrong one, the rejection is seen when task ceil(n/k) ends.
Nanos dsi_oracle(const std::vector<bool> &right, std::int64_t tokens, int k, Nanos target,
                 Nanos drafter) {
  Nanos time = 0;
  for (std::int64_t done = 0; done < tokens;) {
    const std::int64_t usable = tokens - done - 1; // the target's own token is the last
    const std::int64_t n = std::min(run_length(right, done), usable);
    const std::int64_t drafts = n == usable ? usable : std::min((n + k - 1) / k * k, usable);
    time += drafts * drafter + target;
    done += n + 1;
  }
  return time;
}

Nanos si_oracle(const std::vector<bool> &right, std::int64_t tokens, int k, Nanos target,
                Nanos drafter) {
  Nanos time = 0;
  for (std::int64_t done = 0; done < tokens;) {
    const std::int64_t drafts = std::min<std::int64_t>(k, tokens - done - 1);
    time += drafts * drafter + target;
    done += std::min(run_length(right, done), drafts) + 1;
  }
  return time;
}

std::vector<bool> random_right(std::mt19937_64 &random, std::int64_t tokens, double acceptance) {
  std::vector<bool> right;
  for (std::int64_t i = 0; i < tokens; ++i)
    right.push_back(std::uniform_real_distribution<>(0.0, 1.0)(random) < acceptance);
  return right;
}

} // namespace

TEST_CASE(
    "a = 0 takes S*T, whatever drafter, servers, lookahead, and whether work can be stopped") {
  for (const Nanos drafter : {1, 130, 500, 999, 1000, 1001, 1500}) {
    for (const int sp : {1, 2, 3, 8}) {
      for (const int lookahead : {1, 2, 5, 40}) {
        for (const bool stoppable : {true, false}) {
          Simulation one = simulation(Mode::kDSI, lookahead, 30, 1000, drafter, sp);
          one.acceptance = 0.0;
          one.target.stoppable = one.drafter.stoppable = stoppable;
          const SimulationResult result = simulate(one);
          CAPTURE(drafter);
          CAPTURE(sp);
          CAPTURE(lookahead);
          CHECK(result.total == 30 * 1000);
          CHECK(result.first_token == 1000);
        }
      }
    }
  }
}

TEST_CASE("a = 1 takes (S-1)*d + T with one server more than Equation 1 asks") {
  for (const Nanos drafter : {50, 130, 333, 500, 999, 1000}) {
    for (int lookahead = 1; lookahead * drafter <= 1000; ++lookahead) {
      for (const bool stoppable : {true, false}) {
        const int sp = servers_to_spare(1000, drafter, lookahead);
        Simulation one = simulation(Mode::kDSI, lookahead, 57, 1000, drafter, sp);
        one.acceptance = 1.0;
        one.target.stoppable = one.drafter.stoppable = stoppable;
        CAPTURE(drafter);
        CAPTURE(lookahead);
        CHECK(simulate(one).total == 56 * drafter + 1000);
        // The run-ahead cap that plan.h names must not slow it down, nor the widest window.
        one.session.policy.run_ahead =
            default_run_ahead(1000.0, static_cast<double>(drafter), lookahead, sp);
        one.session.policy.max_window = 64;
        CHECK(simulate(one).total == 56 * drafter + 1000);
      }
    }
  }
}

TEST_CASE(
    "the closed form of one DSI run holds to the nanosecond over random acceptance sequences") {
  std::mt19937_64 random(11);
  for (int i = 0; i < effort(3000); ++i) {
    const auto target = static_cast<Nanos>(100 + random() % 1000);
    const auto drafter = static_cast<Nanos>(1 + random() % static_cast<std::uint64_t>(target));
    const auto widest = std::min<std::uint64_t>(12, static_cast<std::uint64_t>(target / drafter));
    const auto lookahead = static_cast<int>(1 + random() % widest);
    const int sp = servers_to_spare(target, drafter, lookahead);
    if (sp > 40)
      continue;
    const auto tokens = static_cast<std::int64_t>(1 + random() % 50);
    Simulation one = simulation(Mode::kDSI, lookahead, tokens, target, drafter, sp);
    one.right = random_right(random, tokens, static_cast<double>(random() % 101) / 100.0);
    CAPTURE(i);
    CAPTURE(target);
    CAPTURE(drafter);
    CAPTURE(lookahead);
    CAPTURE(tokens);
    const SimulationResult result = simulate(one);
    REQUIRE(result.total == dsi_oracle(*one.right, tokens, lookahead, target, drafter));
    one.session.policy.run_ahead =
        default_run_ahead(static_cast<double>(target), static_cast<double>(drafter), lookahead, sp);
    REQUIRE(simulate(one).total == result.total);
  }
}

TEST_CASE("SI: every iteration costs k*d + T and gains what was accepted and one") {
  std::mt19937_64 random(12);
  for (int i = 0; i < effort(2000); ++i) {
    const auto target = static_cast<Nanos>(100 + random() % 1000);
    const auto drafter = static_cast<Nanos>(1 + random() % 1500);
    const auto lookahead = static_cast<int>(1 + random() % 12);
    const auto tokens = static_cast<std::int64_t>(1 + random() % 50);
    Simulation one = simulation(Mode::kSI, lookahead, tokens, target, drafter,
                                1 + static_cast<int>(random() % 3));
    one.right = random_right(random, tokens, static_cast<double>(random() % 101) / 100.0);
    CAPTURE(i);
    REQUIRE(simulate(one).total == si_oracle(*one.right, tokens, lookahead, target, drafter));
  }
}

TEST_CASE("TTFT is paid once per server, jitter and growth scale a forward") {
  Simulation one = simulation(Mode::kNonSI, 1, 10, 1000, 100, 2);
  one.target.ttft = 7000;
  CHECK(simulate(one).total == 7000 + 9 * 1000);
  one.target.jitter = 0.2;
  const Nanos jittered = simulate(one).total;
  CHECK(jittered != 16000);
  CHECK(jittered > 0.8 * 16000);
  CHECK(jittered < 1.2 * 16000);
  one.seed = 1;
  CHECK(simulate(one).total != jittered);

  Simulation grows = simulation(Mode::kSI, 4, 5, 1000, 100, 1);
  grows.acceptance = 1.0;
  grows.target.growth = 0.25; // the window of 4 drafts doubles the forward
  CHECK(simulate(grows).total == 4 * 100 + 2000);
}

TEST_CASE("prefill: servers without work pay TTFT - TPOT at the start, and later windows do not") {
  Simulation one = simulation(Mode::kDSI, 1, 40, 1000, 500, 3);
  one.acceptance = 1.0;
  one.target.ttft = 5000;
  const Nanos cold = simulate(one).total;
  one.session.policy.prefill = true;
  const Nanos warm = simulate(one).total;
  // Nothing is committed before the first forward ends; behind it the drafts wait in a row.
  CHECK(warm <= 5000 + 39 * 500 + 1000);
  CHECK(warm <= cold);
}

TEST_CASE("bad simulations are refused by name") {
  Simulation one = simulation(Mode::kDSI, 1, 4, 1000, 500, 0);
  CHECK_THROWS_WITH_AS(simulate(one), "sp: at least 1 target server is needed",
                       std::invalid_argument);
  one.sp = 1;
  one.drafter.tpot = 0;
  CHECK_THROWS_AS(simulate(one), std::invalid_argument);
  one.drafter.tpot = 1;
  one.acceptance = 1.5;
  CHECK_THROWS_AS(simulate(one), std::invalid_argument);
}
