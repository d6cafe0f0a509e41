#include "runtime/sweep.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>

#include "core/plan.h"
#include "core/simulate.h"
#include "runtime/clock.h"

namespace dsi {

namespace {

constexpr Nanos kTarget = 1'000'000; // one target forward

void check(bool ok, const char *name, const std::string &wanted) {
  if (!ok) {
    throw std::invalid_argument(std::string(name) + ": " + wanted);
  }
}

template <class Number> std::string got(const std::string &wanted, Number value) {
  return wanted + ", got " + std::to_string(value);
}

SweepGrid checked(SweepGrid grid) {
  check(!grid.drafter_latencies.empty(), "drafter_latencies", "at least one is needed");
  check(!grid.acceptances.empty(), "acceptances", "at least one is needed");
  check(grid.sp >= 1, "sp", got("at least 1 target server is needed", grid.sp));
  check(grid.tokens >= 1, "tokens", got("at least 1 is needed", grid.tokens));
  check(grid.max_lookahead >= 1, "max_lookahead", got("at least 1 is needed", grid.max_lookahead));
  check(grid.repeats >= 1, "repeats", got("at least 1 is needed", grid.repeats));
  for (const double latency : grid.drafter_latencies) {
    check(std::isfinite(latency) && std::llround(latency * kTarget) > 0, "drafter_latencies",
          got("a millionth of a target forward or more is needed", latency));
    const int least = grid.equation_1 ? least_lookahead(1.0, latency, grid.sp) : 1;
    check(grid.max_lookahead >= least, "max_lookahead",
          got("Equation 1 asks for " + std::to_string(least) + " at a drafter latency of " +
                  std::to_string(latency),
              grid.max_lookahead));
  }
  for (const double acceptance : grid.acceptances) {
    check(acceptance >= 0 && acceptance <= 1, "acceptances", got("between 0 and 1", acceptance));
  }
  return grid;
}

// Neighbours cost alike and corners do not, so cells are taken all over the grid: what is done
// says how long the rest takes.
std::size_t scattering_stride(std::size_t cells) {
  auto stride = static_cast<std::size_t>(0.618 * static_cast<double>(cells)) + 1;
  while (std::gcd(stride, cells) != 1) {
    ++stride;
  }
  return stride;
}

} // namespace

Sweep::Sweep(SweepGrid grid, int threads)
    : grid_(checked(std::move(grid))),
      stride_(scattering_stride(grid_.drafter_latencies.size() * grid_.acceptances.size())),
      cells_(grid_.drafter_latencies.size() * grid_.acceptances.size()) {
  check(threads >= 1, "threads", got("at least 1 is needed", threads));
  open_.resize(std::min(static_cast<std::size_t>(threads), cells_.size()));
}

bool Sweep::advance(Nanos budget) {
  const std::scoped_lock lock(mutex_);
  const Nanos deadline = now_ns() + budget;
  std::vector<std::exception_ptr> errors(open_.size());
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < open_.size(); ++i) {
      threads.emplace_back([this, i, deadline, &errors] {
        try {
          work(open_[i], deadline);
        } catch (...) {
          errors[i] = std::current_exception();
        }
      });
    }
  }
  for (const std::exception_ptr &error : errors) {
    if (error != nullptr) {
      std::rethrow_exception(error);
    }
  }
  return done() == total();
}

void Sweep::work(std::optional<Open> &open, Nanos deadline) {
  do {
    if (!open.has_value()) {
      open = next_cell();
    }
    if (!open.has_value()) {
      return;
    }
    if (!step(*open)) {
      open.reset();
      done_.fetch_add(1, std::memory_order_relaxed);
    }
  } while (now_ns() < deadline);
}

std::optional<Sweep::Open> Sweep::next_cell() {
  const std::size_t number = taken_.fetch_add(1, std::memory_order_relaxed);
  if (number >= total()) {
    return std::nullopt;
  }
  const std::size_t cell = number * stride_ % total();
  return Open{cell, Mode::kNonSI, 1, 0, texts_of(cell)};
}

bool Sweep::step(Open &open) {
  SweepCell &cell = cells_[open.cell];
  const Nanos sum = run_ns(open);
  const double mean = static_cast<double>(sum) / (static_cast<double>(kTarget) * grid_.repeats);
  if (open.mode == Mode::kNonSI) {
    cell.non_si = mean;
    open = Open{open.cell, Mode::kSI, 1, 0, std::move(open.texts)};
    return true;
  }
  const bool si = open.mode == Mode::kSI;
  if (open.best == 0 || sum < open.best) {
    open.best = sum;
    (si ? cell.si : cell.dsi) = mean;
    (si ? cell.si_lookahead : cell.dsi_lookahead) = open.lookahead;
  }
  if (++open.lookahead <= widest_lookahead()) {
    return true;
  }
  if (si) {
    open = Open{open.cell, Mode::kDSI, first_dsi_lookahead(open.cell), 0, std::move(open.texts)};
  }
  return si;
}

Nanos Sweep::run_ns(Open &open) {
  Simulation simulation;
  Policy &policy = simulation.session.policy;
  policy.mode = open.mode;
  policy.lookahead = open.lookahead;
  policy.run_ahead = default_run_ahead(1.0, drafter_latency(open.cell), open.lookahead, grid_.sp);
  policy.max_window = policy.run_ahead;
  policy.prefill = true;
  simulation.session.max_new_tokens = grid_.tokens;
  simulation.sp = open.mode == Mode::kDSI ? grid_.sp : 1;
  simulation.target.ttft = simulation.target.tpot = kTarget;
  simulation.drafter.ttft = simulation.drafter.tpot =
      std::llround(drafter_latency(open.cell) * kTarget);
  Nanos sum = 0;
  std::int64_t forwards = 0;
  for (SyntheticText &text : open.texts) {
    simulation.text = &text;
    const SimulationResult result = simulate(simulation);
    sum += result.total;
    forwards += result.metrics.verifies + result.metrics.draft_jobs;
  }
  forwards_.fetch_add(forwards, std::memory_order_relaxed);
  return sum;
}

std::vector<SyntheticText> Sweep::texts_of(std::size_t cell) const {
  const double acceptance = grid_.acceptances[cell % grid_.acceptances.size()];
  std::vector<SyntheticText> texts;
  for (int repeat = 0; repeat < grid_.repeats; ++repeat) {
    const std::uint64_t seed = grid_.seed + static_cast<std::uint64_t>(repeat);
    texts.emplace_back(SyntheticIds(seed, acceptance), Simulation{}.prompt_tokens);
  }
  return texts;
}

double Sweep::drafter_latency(std::size_t cell) const {
  return grid_.drafter_latencies[cell / grid_.acceptances.size()];
}

int Sweep::first_dsi_lookahead(std::size_t cell) const {
  return grid_.equation_1 ? least_lookahead(1.0, drafter_latency(cell), grid_.sp) : 1;
}

int Sweep::widest_lookahead() const {
  return static_cast<int>(std::min<std::int64_t>(grid_.max_lookahead, grid_.tokens - 1));
}

} // namespace dsi
