// Target and drafter on one worker: never both at once, and the drafter's troubles stay its own.
#include <doctest/doctest.h>

#include <atomic>
#include <stdexcept>

#include "support/servers.h"

using namespace dsi;
using namespace dsi::test;

namespace {

const ToyModel kModel{61, 50, 0.8};

Engine::Config pair_of(std::unique_ptr<Server> target, std::unique_ptr<Server> drafter) {
  Engine::Config config;
  config.targets.push_back(std::move(target));
  config.drafter = std::move(drafter);
  config.one_worker = true;
  return config;
}

} // namespace

TEST_CASE("one worker for both: the same text in every mode, and never two forwards at once") {
  std::atomic<int> inside = 0, most = 0, drafts = 0;
  const Before watch = [&](Job &job) {
    most = std::max<int>(most, ++inside);
    drafts += job.kind == JobKind::kDraft ? 1 : 0;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
    --inside;
  };
  Engine engine(pair_of(std::make_unique<ToyServer>(kModel, 0, watch),
                        std::make_unique<ToyServer>(kModel, 0, watch)));
  for (const Mode mode : {Mode::kSI, Mode::kDSI, Mode::kNonSI}) {
    std::vector<Ticket> tickets;
    for (Token i = 0; i < 3; ++i)
      tickets.push_back(engine.submit(request({i}, mode, 3, 30)));
    for (Token i = 0; i < 3; ++i) {
      const Reading reading = read_all(tickets[static_cast<std::size_t>(i)]);
      REQUIRE(reading.in_time);
      CHECK(reading.tokens == kModel.continuation({i}, 30));
      if (mode == Mode::kSI) {
        CHECK(reading.ending.metrics.accepted > 0);
        CHECK(reading.ending.drafter_busy_ns > 0);
        CHECK(reading.ending.metrics.verifies < 30);
      }
    }
  }
  CHECK(most == 1);
  CHECK(drafts > 0);
}

TEST_CASE("one worker for both: a drafter that fails, or never starts, takes no target with it") {
  std::atomic<int> calls = 0;
  const auto refuse = [] { throw std::runtime_error("no drafter"); };
  for (const bool starts : {true, false}) {
    std::unique_ptr<Server> drafter;
    if (starts)
      drafter = std::make_unique<ToyServer>(kModel, 0, [&](Job &) {
        if (++calls > 2)
          throw std::runtime_error("no drafter");
      });
    else
      drafter = std::make_unique<UnstartableServer>(refuse, [&](Job &) { ++calls; });
    calls = 0;
    Engine engine(pair_of(std::make_unique<ToyServer>(kModel), std::move(drafter)));
    for (Token i = 0; i < 6; ++i) {
      const Reading reading = read_all(engine.submit(request({i}, Mode::kSI, 2, 20)));
      REQUIRE(reading.in_time);
      CHECK(reading.ending.error.message == "");
      CHECK(reading.tokens == kModel.continuation({i}, 20));
      CHECK(reading.ending.metrics.drafter_error == "no drafter");
    }
    if (!starts)
      CHECK(calls == 0);
  }
}

TEST_CASE("one worker for both: a target that fails is tried once more, and fails the request") {
  std::atomic<int> failures = 0;
  Engine engine(pair_of(std::make_unique<ToyServer>(kModel, 0,
                                                    [&](Job &job) {
                                                      if (job.first == 5 && failures < 3) {
                                                        ++failures;
                                                        throw std::runtime_error("no target");
                                                      }
                                                    }),
                        std::make_unique<ToyServer>(kModel)));
  const Reading failed = read_all(engine.submit(request({1}, Mode::kNonSI, 1, 20)));
  CHECK(failed.ending.trouble == Trouble::kRequestFailed);
  const Reading retried = read_all(engine.submit(request({1}, Mode::kNonSI, 1, 20)));
  CHECK(retried.tokens == kModel.continuation({1}, 20));
}
