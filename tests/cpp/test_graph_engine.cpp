// Graph servers under the engine: the text is the model's, whatever the device does.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "support/effort.h"
#include "support/graph_rig.h"

using namespace dsi;
using namespace dsi::test;

namespace {

const ToyModel kModel{21, 50, 0.8};

// A pool of graph servers, each on the device that `devices` says, and a drafter on the last one.
struct Pool {
  std::vector<std::unique_ptr<GraphRig>> rigs;
  std::unique_ptr<Engine> engine; // last: its servers end before what they own

  Pool(const std::vector<int> &devices, RigOptions options, int drafter_device = 0) {
    Engine::Config config;
    for (const int device : devices) {
      options.device = device;
      rigs.push_back(std::make_unique<GraphRig>(kModel, options));
      config.targets.push_back(rigs.back()->server());
    }
    options.drafts = true;
    options.device = drafter_device;
    options.delay_ns /= 5;
    rigs.push_back(std::make_unique<GraphRig>(kModel, options));
    config.drafter = rigs.back()->server();
    engine = std::make_unique<Engine>(std::move(config));
  }
  Reading ask(std::vector<Token> prompt, Mode mode, std::int64_t tokens, int lookahead = 2) {
    return read_all(engine->submit(request(std::move(prompt), mode, lookahead, tokens)));
  }
  void says_the_truth(const std::vector<Token> &prompt, Mode mode, std::int64_t tokens) {
    const Reading reading = ask(prompt, mode, tokens);
    REQUIRE(reading.in_time);
    CHECK(reading.ending.trouble == Trouble::kNone);
    CHECK(reading.tokens == kModel.continuation(prompt, tokens));
  }
};

constexpr Mode kModes[] = {Mode::kNonSI, Mode::kSI, Mode::kDSI};

// A segment's turn takes anything up to a millisecond, so that streams overtake each other.
struct Unsteady {
  std::atomic<std::uint64_t> turns = 0;
  static int wait(void *unsteady) {
    const std::uint64_t turn = static_cast<Unsteady *>(unsteady)->turns++;
    std::this_thread::sleep_for(std::chrono::microseconds(mix(turn) % 1000));
    return 0;
  }
};

// Breaks the device at the `at`th segment that it runs.
struct Bomb {
  int at;
  std::atomic<int> turns = 0;
  static int tick(void *bomb) {
    auto &self = *static_cast<Bomb *>(bomb);
    return ++self.turns == self.at ? 719 : 0;
  }
};

} // namespace

TEST_CASE("graphs: the text is the reference's in every mode, with one server and with several") {
  for (const int sp : {1, 3}) {
    for (const int segments : {1, 3}) {
      const FakeMachine machine;
      RigOptions options;
      options.segments = segments;
      options.caches = 2;
      options.delay_ns = 100'000;
      Pool pool(std::vector<int>(static_cast<std::size_t>(sp), 0), options);
      for (const Mode mode : kModes)
        pool.says_the_truth({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, mode, 30);
    }
  }
}

TEST_CASE("graphs: several requests at once share servers that keep one past each") {
  const FakeMachine machine(2);
  RigOptions options;
  options.delay_ns = 50'000;
  Pool pool({0, 1}, options, 1);
  std::vector<Ticket> tickets;
  for (Token i = 0; i < 6; ++i)
    tickets.push_back(pool.engine->submit(request({i, i + 1}, kModes[i % 3], 2, 20)));
  for (Token i = 0; i < 6; ++i) {
    const Reading reading = read_all(tickets[static_cast<std::size_t>(i)]);
    REQUIRE(reading.in_time);
    CHECK(reading.tokens == kModel.continuation({i, i + 1}, 20));
  }
}

TEST_CASE("graphs: slow and reordered completions change nothing but the time") {
  const FakeMachine machine(2);
  Unsteady unsteady;
  RigOptions options;
  options.segments = 2;
  options.before = Unsteady::wait;
  options.user = &unsteady;
  Pool pool({0, 0, 1}, options, 1);
  for (int round = 0; round < effort(20); ++round)
    pool.says_the_truth({static_cast<Token>(round), 3}, Mode::kDSI, 25);
}

TEST_CASE("graphs: calls that fail now and then are made up for") {
  const FakeMachine machine;
  RigOptions options;
  options.segments = 2;
  Pool pool({0, 0}, options);
  for (const char *symbol : {"cuGraphLaunch", "cuMemcpyHtoDAsync", "cuEventRecord",
                             "cuEventSynchronize", "cuMemcpyDtoHAsync"}) {
    for (const Mode mode : kModes) {
      fake_cuda_fail(symbol, 2, 9);
      pool.says_the_truth({5, 6}, mode, 20);
    }
  }
}

TEST_CASE("graphs: a device that breaks takes its servers along, the others go on") {
  for (const Mode mode : kModes) {
    const FakeMachine machine(2);
    Bomb bomb{13};
    RigOptions options;
    options.before = Bomb::tick;
    options.user = &bomb;
    options.capacity = 128;
    options.segments = 2;
    Pool pool({0, 1}, options, 1);
    // The other rigs share the options, and with them the bomb; which one it hits does not matter.
    const Reading reading = pool.ask({1, 2, 3}, mode, 40);
    REQUIRE(reading.in_time);
    CHECK(reading.ending.trouble == Trouble::kNone);
    CHECK(reading.tokens == kModel.continuation({1, 2, 3}, 40));
    for (int i = 0; i < 4; ++i)
      pool.says_the_truth({static_cast<Token>(i)}, mode, 10);
  }
}

TEST_CASE("graphs: with the drafter's device goes speed, never the text") {
  const FakeMachine machine(2);
  RigOptions options;
  options.delay_ns = 100'000;
  Pool pool({0, 0}, options, 1);
  pool.says_the_truth({4}, Mode::kDSI, 10);
  fake_cuda_break(1, 700);
  pool.says_the_truth({5}, Mode::kDSI, 20);
  const Reading reading = pool.ask({6}, Mode::kSI, 20);
  CHECK(reading.tokens == kModel.continuation({6}, 20));
  CHECK(reading.ending.metrics.accepted == 0);
}

TEST_CASE("graphs: with the last device the engine fails, and says with what") {
  const FakeMachine machine;
  Pool pool({0, 0}, {});
  pool.says_the_truth({4}, Mode::kDSI, 10);
  fake_cuda_break(0, 700);
  const Reading reading = pool.ask({5}, Mode::kNonSI, 20);
  REQUIRE(reading.in_time);
  CHECK(reading.tokens.empty());
  CHECK(reading.ending.trouble != Trouble::kNone);
  CHECK(reading.ending.error.message.find("CUDA_ERROR_ILLEGAL_ADDRESS (700)") != std::string::npos);
  try {
    pool.engine->submit(request({3}, Mode::kNonSI, 1, 10));
    FAIL("a failed engine took a request");
  } catch (const EngineUnusable &error) {
    CHECK(error.trouble() == Trouble::kEngineFailed);
    CHECK(error.error().message.find("no target server is left: cu") == 0);
  }
}

TEST_CASE("graphs: an engine that is closed waits for two segments, not for a forward") {
  const FakeMachine machine;
  RigOptions options;
  options.segments = 40;
  options.delay_ns = 10'000'000;
  Pool pool({0, 0}, options);
  const Ticket ticket = pool.engine->submit(request({1, 2}, Mode::kDSI, 1, 10));
  while (fake_cuda_calls("cuGraphLaunch") < 3)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  pool.engine->close();
  // Of three servers' forwards, 40 segments each.
  CHECK(fake_cuda_calls("cuGraphLaunch") < 60);
  const Reading reading = read_all(ticket);
  REQUIRE(reading.in_time);
  CHECK(reading.ending.trouble == Trouble::kClosed);
}
