// Ends of an engine: busy, twice, from several threads, from one of its own workers, right after
// submit.
#include <doctest/doctest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "support/servers.h"

using namespace dsi;
using namespace dsi::test;

namespace {

constexpr Nanos kMs = 1'000'000;
const ToyModel kModel{31, 50, 0.8};

Engine::Config pool(int sp, Nanos target_ns, const Before &before = {}, bool stoppable = true) {
  Engine::Config config;
  for (int i = 0; i < sp; ++i)
    config.targets.push_back(std::make_unique<ToyServer>(kModel, target_ns, before, stoppable));
  config.drafter = std::make_unique<ToyServer>(kModel, target_ns / 4);
  return config;
}

} // namespace

TEST_CASE("close while busy ends every request with kClosed and joins all threads") {
  for (const bool stoppable : {true, false}) {
    Engine::Config config = pool(2, 60 * kMs, {}, stoppable);
    config.max_running = 2;
    Engine engine(std::move(config));
    std::vector<Ticket> tickets;
    for (Token i = 0; i < 5; ++i)
      tickets.push_back(engine.submit(request({i}, Mode::kDSI, 1, 100)));
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    const Nanos start = now_ns();
    engine.close();
    CHECK(now_ns() - start < 1000 * kMs);
    for (const Ticket &ticket : tickets) {
      REQUIRE(ticket.channel->ended());
      CHECK(read_all(ticket).ending.trouble == Trouble::kClosed);
    }
    CHECK(engine.unfinished() == 0);
    engine.close();
    engine.cancel(tickets[0].id, Trouble::kCancelled, "too late");
    try {
      engine.submit(request({1}, Mode::kDSI, 1, 4));
      FAIL("a closed engine took a request");
    } catch (const EngineUnusable &error) {
      CHECK(error.trouble() == Trouble::kClosed);
    }
  }
}

TEST_CASE("close from several threads, with requests still coming in") {
  for (int round = 0; round < 10; ++round) {
    Engine engine(pool(2, kMs / 2));
    std::atomic<int> refused = 0;
    std::vector<std::jthread> threads;
    for (int i = 0; i < 2; ++i)
      threads.emplace_back([&] {
        for (int n = 0; n < 200 && refused < 2; ++n) {
          try {
            const Ticket ticket = engine.submit(request({n}, Mode::kDSI, 1, 5));
            const Reading reading = read_all(ticket);
            if (!reading.in_time)
              break;
          } catch (const EngineUnusable &) {
            ++refused;
            break;
          }
        }
      });
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
    for (int i = 0; i < 3; ++i)
      threads.emplace_back([&] {
        engine.close();
        CHECK_FALSE(engine.on_own_worker());
      });
    threads.clear();
    CHECK(refused == 2);
  }
}

TEST_CASE("destruction right after submit, and right after construction") {
  for (int round = 0; round < 30; ++round) {
    Ticket ticket;
    {
      Engine engine(pool(3, 20 * kMs));
      if (round % 3 != 0)
        ticket = engine.submit(request({round}, round % 2 == 0 ? Mode::kDSI : Mode::kSI, 2, 50));
    }
    if (round % 3 != 0)
      CHECK(read_all(ticket).ending.trouble == Trouble::kClosed);
  }
}

TEST_CASE("close on one of its own workers does not wait for itself, nor for another close") {
  Engine *self = nullptr;
  std::atomic<int> closed = 0;
  Engine engine(pool(2, kMs, [&](Job &job) {
    if (job.length > 5) {
      CHECK(self->on_own_worker());
      self->close();
      ++closed;
    }
  }));
  self = &engine;
  CHECK_FALSE(engine.on_own_worker());
  const Ticket ticket = engine.submit(request({1}, Mode::kNonSI, 1, 50));
  const Reading reading = read_all(ticket, 10.0);
  REQUIRE(reading.in_time);
  CHECK(reading.ending.trouble == Trouble::kClosed);
  engine.close();
  CHECK(closed == 1);
}

TEST_CASE("a channel outlives its engine") {
  Ticket ticket;
  {
    Engine engine(pool(1, 0));
    ticket = engine.submit(request({1}, Mode::kDSI, 1, 5));
    while (!ticket.channel->ended())
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  CHECK(read_all(ticket).tokens == kModel.continuation({1}, 5));
}
