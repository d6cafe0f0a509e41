// Everything at once for a second or two: requests, cancels, timeouts, failures, late results, slow
// readers and a close in the middle. Made for the sanitizers; what a request says is checked all
// the same.
#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "support/effort.h"
#include "support/servers.h"

using namespace dsi;
using namespace dsi::test;

namespace {

constexpr Nanos kUs = 1'000;
constexpr Nanos kMs = 1'000'000;
const ToyModel kModel{41, 50, 0.8};

// One worker's own trouble: sometimes slow, sometimes a throw. Its random numbers are its thread's.
Before trouble(std::uint64_t seed, double share, const std::atomic<bool> &calm) {
  return [random = std::mt19937_64(seed), share, &calm](Job &job) mutable {
    const double luck = std::uniform_real_distribution<>(0.0, 1.0)(random);
    if (job.kind != JobKind::kDraft && luck > 0.98)
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    if (luck < share && !calm)
      throw std::runtime_error("trouble");
  };
}

struct Tally {
  std::atomic<int> whole{0}, cut{0}, wrong{0}, hung{0};
};

// What one user does: submits, reads or not, cancels or not; and checks every text that comes.
void use(Engine &engine, std::uint64_t seed, Nanos until, Tally &tally) {
  std::mt19937_64 random(seed);
  const auto pick = [&](int n) {
    return static_cast<int>(random() % static_cast<std::uint64_t>(n));
  };
  const std::array<Mode, 4> modes{Mode::kNonSI, Mode::kSI, Mode::kDSI, Mode::kDSI};
  while (now_ns() < until) {
    const std::vector<Token> prompt{pick(50), pick(50)};
    const std::int64_t count = 1 + pick(60);
    RequestSpec spec =
        request(prompt, modes[static_cast<std::size_t>(pick(4))], 1 + pick(4), count);
    spec.session.policy.prefill = pick(3) == 0;
    spec.auto_lookahead = pick(3) == 0;
    spec.timeout_ns = pick(10) == 0 ? (1 + pick(5)) * kMs : 0;
    Ticket ticket;
    try {
      ticket = engine.submit(std::move(spec));
    } catch (const EngineUnusable &) {
      return;
    }
    const int mood = pick(10);
    if (mood == 0)
      continue; // never read
    std::jthread canceller;
    if (mood < 4)
      canceller = std::jthread([&engine, id = ticket.id, wait = pick(3000)] {
        std::this_thread::sleep_for(std::chrono::microseconds(wait));
        engine.cancel(id, Trouble::kCancelled, "enough");
      });
    const Reading reading = read_all(ticket, 60.0);
    const std::vector<Token> right = kModel.continuation(prompt, count);
    tally.hung += reading.in_time ? 0 : 1;
    const bool prefix = reading.tokens.size() <= right.size() &&
                        std::equal(reading.tokens.begin(), reading.tokens.end(), right.begin());
    const bool whole = reading.ending.trouble == Trouble::kNone;
    tally.wrong += prefix && whole == (reading.tokens == right &&
                                       reading.ending.reason == FinishReason::kLength)
                       ? 0
                       : 1;
    ++(whole ? tally.whole : tally.cut);
    if (!reading.in_time)
      return;
  }
}

} // namespace

TEST_CASE("stress: users, cancels, failures and a close in the middle of it") {
  Tally tally;
  int rounds = 0;
  const Nanos end = now_ns() + (kSanitized ? 4000 : 2000) * kMs;
  for (std::uint64_t round = 0; now_ns() < end; ++round) {
    std::atomic<bool> calm = false;
    Engine::Config config;
    const auto sp = static_cast<int>(1 + round % 4);
    for (int i = 0; i < sp; ++i) {
      const Nanos forward = (20 + 30 * i) * kUs;
      config.targets.push_back(std::make_unique<ToyServer>(
          kModel, forward, trouble(round * 10 + static_cast<std::uint64_t>(i), 0.02, calm),
          i % 2 == 0));
    }
    if (round % 5 != 4)
      config.drafter = std::make_unique<ToyServer>(kModel, 10 * kUs, trouble(round, 0.003, calm),
                                                   round % 2 == 0);
    config.max_running = static_cast<int>(1 + round % 3);
    Engine engine(std::move(config));
    std::vector<std::jthread> users;
    for (std::uint64_t user = 0; user < 3; ++user)
      users.emplace_back([&engine, &tally, seed = round * 100 + user] {
        use(engine, seed, now_ns() + 150 * kMs, tally);
      });
    if (round % 3 == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(60));
      engine.close();
    } else if (round % 3 == 2) {
      for (int i = 0; i < 2; ++i)
        users.emplace_back([&engine] {
          std::this_thread::sleep_for(std::chrono::milliseconds(80));
          engine.close();
        });
    }
    users.clear();
    calm = true;
    ++rounds;
  }
  const int whole = tally.whole, cut = tally.cut;
  CAPTURE(rounds);
  CAPTURE(whole);
  CAPTURE(cut);
  CHECK(tally.hung == 0);
  CHECK(tally.wrong == 0);
  CHECK(whole > 20);
  CHECK(cut > 20);
}
