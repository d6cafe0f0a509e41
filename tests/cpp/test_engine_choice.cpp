// Which server a verify is given to.
#include <doctest/doctest.h>

#include <thread>

#include "support/gates.h"

using namespace dsi;
using namespace dsi::test;

TEST_CASE("the retry waits for another server though the one that failed is free first") {
  const ToyModel right{22, 50, 1.0};
  Gates gates;
  Engine::Config config;
  for (int i = 0; i < 2; ++i)
    config.targets.push_back(gated(right, gates, i));
  config.drafter = std::make_unique<ToyServer>(right, 0);
  Engine engine(std::move(config));
  std::vector<Ticket> tickets{engine.submit(request({1}, Mode::kDSI, 1, 30))};
  CHECK(gates.at(0) == 1);
  CHECK(gates.at(1) == 1);
  gates.let_go(0);
  CHECK(gates.at(0) == 1); // a window ahead of the one at server 1
  for (Token i = 2; i < 4; ++i)
    tickets.push_back(engine.submit(request({i}, Mode::kNonSI, 1, 5)));
  gates.let_go(0, true);
  CHECK(gates.at(0) == 2);
  gates.let_go(1); // commits up to the failure: now it counts
  CHECK(gates.at(1) == 3);
  gates.let_go(0);
  CHECK(gates.at(0) == 2); // request 1 is next, and waits for server 1
  gates.open();
  for (Token i = 1; i < 4; ++i) {
    const Reading reading = read_all(tickets[static_cast<std::size_t>(i - 1)]);
    REQUIRE(reading.in_time);
    CHECK(reading.tokens == right.continuation({i}, i == 1 ? 30 : 5));
  }
}

TEST_CASE("a verify goes to the server that knows most of its path, not to the one free last") {
  const ToyModel right{23, 50, 1.0};
  constexpr int kDrafter = 2;
  Gates gates;
  Engine::Config config;
  for (int i = 0; i < 2; ++i)
    config.targets.push_back(gated(right, gates, i));
  config.drafter = gated(right, gates, kDrafter);
  Engine engine(std::move(config));
  std::vector<Ticket> tickets;
  for (Token i = 1; i < 3; ++i) {
    tickets.push_back(engine.submit(request({i}, Mode::kSI, 1, 9)));
    CHECK(gates.at(kDrafter) == static_cast<RequestId>(i));
    gates.let_go(kDrafter);
    CHECK(gates.at(i - 1) == static_cast<RequestId>(i));
  }
  gates.let_go(0);
  CHECK(gates.at(kDrafter) == 1);
  gates.let_go(1);
  while (tickets[1].channel->take(0).empty()) // until server 1 is free
    std::this_thread::yield();
  gates.let_go(kDrafter);
  CHECK(gates.at(0) == 1);
  gates.open();
  const Reading reading = read_all(tickets[0]);
  REQUIRE(reading.in_time);
  CHECK(reading.tokens == right.continuation({1}, 9));
  CHECK(read_all(tickets[1]).in_time);
}
