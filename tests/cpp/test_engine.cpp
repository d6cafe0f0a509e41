// The engine with real threads: the same text as the virtual clock, many requests, and their ends.
#include <doctest/doctest.h>

#include <poll.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <thread>

#include "core/simulate.h"
#include "runtime/simulated.h"
#include "support/effort.h"
#include "support/servers.h"

using namespace dsi;
using namespace dsi::test;

namespace {

constexpr Nanos kMs = 1'000'000;

Latency latency(Nanos ns, bool stoppable = true) { return {ns, ns, 0.0, 0.0, stoppable}; }

Engine::Config simulated(int sp, Latency target, Latency drafter, std::uint64_t seed,
                         double acceptance) {
  Engine::Config config;
  for (int i = 0; i < sp; ++i)
    config.targets.push_back(std::make_unique<SimulatedServer>(
        target, SyntheticIds(seed, acceptance), static_cast<std::uint64_t>(i)));
  config.drafter = std::make_unique<SimulatedServer>(drafter, SyntheticIds(seed, acceptance), 99);
  return config;
}

Engine::Config toys(int sp, const ToyModel &model, Nanos target_ns, Nanos drafter_ns,
                    bool stoppable = true) {
  Engine::Config config;
  for (int i = 0; i < sp; ++i)
    config.targets.push_back(std::make_unique<ToyServer>(model, target_ns, Before{}, stoppable));
  config.drafter = std::make_unique<ToyServer>(model, drafter_ns);
  return config;
}

} // namespace

TEST_CASE("real threads say what the virtual clock says, in every mode") {
  for (const Mode mode : {Mode::kNonSI, Mode::kSI, Mode::kDSI}) {
    for (const int sp : {1, 3}) {
      for (const std::uint64_t seed : {1U, 2U}) {
        Simulation one;
        one.session.policy.mode = mode;
        one.session.policy.lookahead = 2;
        one.session.max_new_tokens = 40;
        one.sp = sp;
        one.target = latency(kMs / 2);
        one.drafter = latency(kMs / 5);
        one.prompt_tokens = 2;
        one.seed = seed;
        one.acceptance = 0.8;
        Engine engine(simulated(sp, one.target, one.drafter, seed, 0.8));
        const Reading reading = read_all(engine.submit(request({0, 0}, mode, 2, 40)));
        REQUIRE(reading.in_time);
        CHECK(reading.tokens == simulate(one).tokens);
        CHECK(reading.ending.reason == FinishReason::kLength);
        CHECK(reading.ending.trouble == Trouble::kNone);
        const Ending &ending = reading.ending;
        CHECK(ending.metrics.emitted == 40);
        CHECK(ending.first_token_ns >= kMs / 2);
        CHECK(ending.total_ns >= ending.first_token_ns);
        CHECK(ending.target_busy_ns > 0);
        CHECK(ending.target_busy_ns <= ending.slot_ns);
        CHECK((ending.drafter_busy_ns > 0) == (mode != Mode::kNonSI));
      }
    }
  }
}

TEST_CASE("a simulated forward of 2.5 ms takes 2.5 ms") {
  SimulatedServer server(latency(5 * kMs / 2), SyntheticIds(1, 0.5), 0);
  Job job;
  job.request = std::make_shared<RequestContext>();
  std::vector<double> times(kSanitized ? 20 : 200);
  std::thread([&] {
    server.started();
    for (double &time : times) {
      const Nanos start = now_ns();
      server.run(job);
      time = static_cast<double>(now_ns() - start) * 1e-6;
    }
  }).join();
  std::sort(times.begin(), times.end());
  CHECK(times.front() >= 2.5);
  if (kSanitized)
    return; // these builds run at a low priority beside the other lane: anything there is late
  CHECK(times[times.size() / 10] < 2.525);
  // Where more threads want to run than there are cores, any of them is late.
  double load = 0.0;
  ::getloadavg(&load, 1);
  if (load < std::thread::hardware_concurrency())
    CHECK(times[times.size() / 2] < 2.525);
}

TEST_CASE("a stoppable forward ends when it is stopped, another one runs to its end") {
  for (const bool stoppable : {true, false}) {
    SimulatedServer server(latency(200 * kMs, stoppable), SyntheticIds(1, 0.5), 0);
    Job job;
    job.request = std::make_shared<RequestContext>();
    std::thread stopper([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      job.stopped.store(true);
      server.stop(job);
    });
    const Nanos start = now_ns();
    const Outcome outcome = server.run(job);
    stopper.join();
    CHECK((outcome.kind == Outcome::Kind::kStopped) == stoppable);
    CHECK((now_ns() - start < 150 * kMs) == stoppable);
  }
}

TEST_CASE("a simulated server pays its TTFT once per request, and again once it was released") {
  SimulatedServer server({20 * kMs, kMs, 0.0, 0.0, true}, SyntheticIds(1, 0.5), 0);
  Job job;
  auto context = std::make_shared<RequestContext>();
  context->id = 1;
  job.request = context;
  const auto slow = [&] {
    const Nanos start = now_ns();
    server.run(job);
    return now_ns() - start >= 20 * kMs;
  };
  CHECK(slow());
  CHECK_FALSE(slow());
  server.release(1);
  CHECK(slow());
}

TEST_CASE("requests side by side: each its own text, none starves") {
  const ToyModel model{5, 50, 0.8};
  Engine engine(toys(2, model, kMs, kMs / 4));
  std::vector<Ticket> tickets;
  std::vector<std::vector<Token>> prompts{{1}, {2, 3}, {4}, {5, 6, 7}};
  for (const auto &prompt : prompts)
    tickets.push_back(engine.submit(request(prompt, Mode::kDSI, 2, 60)));
  std::vector<Nanos> totals;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    const Reading reading = read_all(tickets[i]);
    REQUIRE(reading.in_time);
    CHECK(reading.tokens == model.continuation(prompts[i], 60));
    totals.push_back(reading.ending.total_ns);
  }
  const auto [least, most] = std::minmax_element(totals.begin(), totals.end());
  CHECK(static_cast<double>(*most) < 2.0 * static_cast<double>(*least));
  CHECK(engine.unfinished() == 0);
}

TEST_CASE("requests beyond max_running wait their turn") {
  const ToyModel model{6, 50, 0.8};
  Engine::Config config = toys(2, model, kMs / 4, kMs / 10);
  config.max_running = 2;
  Engine engine(std::move(config));
  std::vector<Ticket> tickets;
  for (Token i = 0; i < 7; ++i)
    tickets.push_back(engine.submit(request({i}, i % 2 == 0 ? Mode::kDSI : Mode::kSI, 2, 20)));
  CHECK(engine.unfinished() >= 5);
  for (Token i = 0; i < 7; ++i) {
    const Reading reading = read_all(tickets[static_cast<std::size_t>(i)]);
    REQUIRE(reading.in_time);
    CHECK(reading.tokens == model.continuation({i}, 20));
    if (i > 1)
      CHECK(reading.ending.queued_ns > kMs);
  }
}

TEST_CASE("cancel ends one request at once, running or waiting, and no other") {
  const ToyModel model{7, 50, 0.8};
  Engine::Config config = toys(1, model, 250 * kMs, kMs, false);
  config.max_running = 2;
  Engine engine(std::move(config));
  const Ticket running = engine.submit(request({1}, Mode::kNonSI, 1, 1000));
  const Ticket other = engine.submit(request({2}, Mode::kNonSI, 1, 2));
  const Ticket waiting = engine.submit(request({3}, Mode::kNonSI, 1, 1));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const Nanos start = now_ns();
  engine.cancel(waiting.id, Trouble::kCancelled, "not wanted any more");
  engine.cancel(running.id, Trouble::kCancelled, "nor this");
  for (const Ticket &ticket : {waiting, running}) {
    const Reading reading = read_all(ticket);
    REQUIRE(reading.in_time);
    CHECK(reading.ending.trouble == Trouble::kCancelled);
    CHECK(reading.ending.reason == FinishReason::kCancelled);
    CHECK(reading.tokens.empty());
  }
  CHECK(now_ns() - start < 200 * kMs); // while the forward goes on
  engine.cancel(running.id, Trouble::kCancelled, "again");
  engine.cancel(12345, Trouble::kCancelled, "unknown");
  const Reading reading = read_all(other);
  REQUIRE(reading.in_time);
  CHECK(reading.tokens == model.continuation({2}, 2));
  CHECK(reading.ending.trouble == Trouble::kNone);
}

TEST_CASE("a request that nobody waits for ends when its time is up") {
  const ToyModel model{8, 50, 0.8};
  Engine::Config config = toys(1, model, 2 * kMs, kMs);
  config.max_running = 1;
  Engine engine(std::move(config));
  RequestSpec spec = request({1}, Mode::kDSI, 1, 100000);
  spec.timeout_ns = 60 * kMs;
  const Ticket endless = engine.submit(spec);
  spec.timeout_ns = 20 * kMs;
  const Ticket queued = engine.submit(spec);
  for (const Ticket &ticket : {endless, queued}) {
    const Reading reading = read_all(ticket);
    REQUIRE(reading.in_time);
    CHECK(reading.ending.trouble == Trouble::kTimeout);
    CHECK(reading.ending.error.message == "the request ran out of time");
  }
}

TEST_CASE("tokens that come with the end, after a reader found nothing, are not lost") {
  Channel channel;
  CHECK(channel.take(0).empty());
  CHECK_FALSE(channel.drained());
  channel.push(std::vector<JudgedRow>(1));
  channel.end({});
  CHECK(channel.ended());
  CHECK_FALSE(channel.drained()); // what it would have taken for the end
  CHECK(channel.take(0).size() == 1);
  CHECK(channel.drained());
}

TEST_CASE("the event descriptor is readable while there is news") {
  const ToyModel model{9, 50, 0.8};
  Engine engine(toys(1, model, 5 * kMs, kMs));
  const Ticket ticket = engine.submit(request({1}, Mode::kNonSI, 1, 2));
  pollfd waiting{ticket.channel->event_fd(), POLLIN, 0};
  std::vector<Token> tokens;
  while (!ticket.channel->ended()) {
    REQUIRE(::poll(&waiting, 1, 10000) == 1);
    for (const JudgedRow &row : ticket.channel->take(0))
      tokens.push_back(row.token);
  }
  for (const JudgedRow &row : ticket.channel->take(0))
    tokens.push_back(row.token);
  CHECK(tokens == model.continuation({1}, 2));
  // Made after the end, it is readable too.
  const Ticket late = engine.submit(request({2}, Mode::kNonSI, 1, 1));
  while (!late.channel->ended())
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  waiting.fd = late.channel->event_fd();
  CHECK(::poll(&waiting, 1, 0) == 1);
}

TEST_CASE("lookahead follows what was measured and never changes the text") {
  const ToyModel model{10, 50, 0.9};
  Engine engine(toys(2, model, 3 * kMs, kMs / 2));
  for (const Mode mode : {Mode::kDSI, Mode::kSI}) {
    RequestSpec spec = request({1}, mode, 1, 60);
    spec.auto_lookahead = true;
    const Reading reading = read_all(engine.submit(spec));
    REQUIRE(reading.in_time);
    CHECK(reading.tokens == model.continuation({1}, 60));
    CHECK(reading.ending.lookahead >
          1); // Equation 1 asks for 3; the toy drafter sends several at once
    CHECK(reading.ending.target_forward_ns > 2.5 * kMs);
    CHECK(reading.ending.drafter_forward_ns < 2.5 * kMs);
  }
}

TEST_CASE("idle servers prefill while the first forward runs") {
  std::atomic<int> prefills = 0;
  const ToyModel model{11, 50, 1.0};
  Engine::Config config;
  const Before count = [&](Job &job) {
    if (job.kind == JobKind::kPrefill)
      ++prefills;
  };
  for (int i = 0; i < 3; ++i)
    config.targets.push_back(std::make_unique<ToyServer>(model, 2 * kMs, count));
  config.drafter = std::make_unique<ToyServer>(model, kMs);
  Engine engine(std::move(config));
  RequestSpec spec = request({1, 2, 3}, Mode::kDSI, 1, 10);
  spec.session.policy.prefill = true;
  Reading reading = read_all(engine.submit(spec));
  REQUIRE(reading.in_time);
  CHECK(reading.tokens == model.continuation({1, 2, 3}, 10));
  CHECK(prefills == 2);
  spec.session.policy.mode = Mode::kSI;
  reading = read_all(engine.submit(spec));
  CHECK(prefills == 2);
}

TEST_CASE("a bad request or configuration is refused and changes nothing") {
  CHECK_THROWS_AS(Engine(Engine::Config{}), std::invalid_argument);
  const ToyModel model{12, 50, 0.8};
  Engine::Config none = toys(1, model, 0, 0);
  none.max_running = 0;
  CHECK_THROWS_AS(Engine(std::move(none)), std::invalid_argument);
  Engine engine(toys(1, model, 0, 0));
  CHECK_THROWS_AS(engine.submit(request({}, Mode::kDSI, 1, 4)), std::invalid_argument);
  CHECK_THROWS_AS(engine.submit(request({1}, Mode::kDSI, 0, 4)), std::invalid_argument);
  CHECK_THROWS_AS(engine.submit(request({1}, Mode::kDSI, 1, 0)), std::invalid_argument);
  CHECK(engine.unfinished() == 0);
  CHECK(engine.sp() == 1);
  const Reading reading = read_all(engine.submit(request({1}, Mode::kDSI, 1, 4)));
  CHECK(reading.tokens == model.continuation({1}, 4));
}

TEST_CASE("without a drafter every mode is non-SI") {
  const ToyModel model{13, 50, 0.8};
  Engine::Config config = toys(2, model, 0, 0);
  config.drafter.reset();
  Engine engine(std::move(config));
  for (const Mode mode : {Mode::kNonSI, Mode::kSI, Mode::kDSI}) {
    const Reading reading = read_all(engine.submit(request({1}, mode, 3, 20)));
    REQUIRE(reading.in_time);
    CHECK(reading.tokens == model.continuation({1}, 20));
    CHECK(reading.ending.metrics.draft_jobs == 0);
    CHECK(reading.ending.metrics.drafter_error.empty());
  }
}
