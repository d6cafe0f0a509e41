// Servers that fail, never start, or answer nothing: who pays for it, and with what.
#include <doctest/doctest.h>

#include <atomic>
#include <map>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>

#include "support/servers.h"

using namespace dsi;
using namespace dsi::test;

namespace {

constexpr Nanos kMs = 1'000'000;
const ToyModel kModel{21, 50, 0.8};

// A pool whose target servers do `before(slot, job)` first.
Engine::Config pool(int sp, const std::function<void(int, Job &)> &before, Before drafter = {},
                    Nanos target_ns = kMs / 2) {
  Engine::Config config;
  for (int i = 0; i < sp; ++i)
    config.targets.push_back(
        std::make_unique<ToyServer>(kModel, target_ns, [before, i](Job &job) { before(i, job); }));
  config.drafter = std::make_unique<ToyServer>(kModel, kMs / 5, std::move(drafter));
  return config;
}

} // namespace

TEST_CASE("a target that fails once is replaced by another one, and the text is right") {
  for (const Mode mode : {Mode::kNonSI, Mode::kSI, Mode::kDSI}) {
    std::atomic<int> calls = 0;
    std::atomic<int> failed_on = -1, retried_on = -1;
    std::atomic<Position> failed_at = -1;
    Engine engine(pool(2, [&](int slot, Job &job) {
      if (++calls == 4) {
        failed_on = slot;
        failed_at = job.first;
        throw std::runtime_error("out of memory");
      }
      if (failed_on >= 0 && retried_on < 0 && job.first == failed_at)
        retried_on = slot;
    }));
    const Reading reading = read_all(engine.submit(request({1}, mode, 2, 30)));
    REQUIRE(reading.in_time);
    CHECK(reading.tokens == kModel.continuation({1}, 30));
    CHECK(reading.ending.trouble == Trouble::kNone);
    CHECK(reading.ending.metrics.failed_verifies == 1);
    if (mode != Mode::kDSI) // there another window may have covered the position
      CHECK(retried_on == 1 - failed_on);
  }
}

TEST_CASE("one server: it is asked again itself") {
  std::atomic<int> calls = 0;
  Engine engine(pool(1, [&](int, Job &) {
    if (++calls == 2)
      throw std::runtime_error("once");
  }));
  const Reading reading = read_all(engine.submit(request({1}, Mode::kNonSI, 1, 5)));
  REQUIRE(reading.in_time);
  CHECK(reading.tokens == kModel.continuation({1}, 5));
}

TEST_CASE("a job that fails twice fails its request with the first error; the next request works") {
  std::atomic<int> failures = 0;
  Engine engine(pool(2, [&](int, Job &job) {
    if (job.request->id == 1 && job.first == 4) {
      const int number = ++failures;
      throw CausedError({"failure " + std::to_string(number), std::make_shared<int>(number)});
    }
  }));
  const Reading failed = read_all(engine.submit(request({1, 2}, Mode::kNonSI, 1, 30)));
  REQUIRE(failed.in_time);
  CHECK(failed.tokens == kModel.continuation({1, 2}, 2)); // what was committed before
  CHECK(failed.ending.trouble == Trouble::kRequestFailed);
  CHECK(failed.ending.reason == FinishReason::kError);
  CHECK(failed.ending.error.message == "failure 1");
  REQUIRE(failed.ending.error.cause != nullptr);
  CHECK(*static_cast<int *>(failed.ending.error.cause.get()) == 1);
  CHECK(failures == 2);
  const Reading next = read_all(engine.submit(request({1, 2}, Mode::kNonSI, 1, 30)));
  REQUIRE(next.in_time);
  CHECK(next.tokens == kModel.continuation({1, 2}, 30));
}

TEST_CASE(
    "a server that fails over three requests in a row leaves; with the last one the engine fails") {
  std::mutex mutex;
  std::set<RequestId> failed; // over which server 1 failed
  std::atomic<bool> all_fail = false;
  Engine engine(pool(2, [&](int slot, Job &job) {
    if (slot == 1) {
      const std::scoped_lock lock(mutex);
      failed.insert(job.request->id);
    }
    if (slot == 1 || all_fail)
      throw std::runtime_error("the device is gone");
  }));
  const auto count = [&] {
    const std::scoped_lock lock(mutex);
    return failed.size();
  };
  const auto ask = [&](Token i) {
    const Reading reading = read_all(engine.submit(request({i}, Mode::kDSI, 1, 10)));
    REQUIRE(reading.in_time);
    CHECK(reading.tokens == kModel.continuation({i}, 10));
  };
  for (Token i = 0; i < 200 && count() < 3; ++i)
    ask(i);
  CHECK(count() == 3);
  for (Token i = 0; i < 5; ++i)
    ask(i);
  CHECK(count() == 3);
  all_fail = true;
  for (Token i = 0; i < 2; ++i)
    CHECK(read_all(engine.submit(request({i}, Mode::kNonSI, 1, 10))).ending.trouble ==
          Trouble::kRequestFailed);
  const Reading last = read_all(engine.submit(request({2}, Mode::kNonSI, 1, 10)));
  REQUIRE(last.in_time);
  CHECK((last.ending.trouble == Trouble::kEngineFailed ||
         last.ending.trouble == Trouble::kRequestFailed));
  try {
    engine.submit(request({3}, Mode::kNonSI, 1, 10));
    FAIL("a failed engine took a request");
  } catch (const EngineUnusable &error) {
    CHECK(error.trouble() == Trouble::kEngineFailed);
    CHECK(error.error().message == "no target server is left: the device is gone");
  }
}

TEST_CASE("failures with a success between them cost a server nothing but time") {
  RequestId last = 0;
  Engine engine(pool(1, [&](int, Job &job) {
    if (std::exchange(last, job.request->id) != job.request->id)
      throw std::runtime_error("the first forward of each request");
  }));
  for (Token i = 0; i < 6; ++i) {
    const Reading reading = read_all(engine.submit(request({i}, Mode::kNonSI, 1, 4)));
    REQUIRE(reading.in_time);
    CHECK(reading.tokens == kModel.continuation({i}, 4));
    CHECK(reading.ending.metrics.failed_verifies == 1);
  }
}

TEST_CASE("an engine that fails says so to every open request, running and waiting") {
  std::atomic<bool> fail = false;
  Engine::Config config = pool(1, [&](int, Job &) {
    if (fail)
      throw std::runtime_error("gone");
  });
  config.max_running = 4;
  Engine engine(std::move(config));
  std::vector<Ticket> tickets;
  for (Token i = 0; i < 8; ++i)
    tickets.push_back(engine.submit(request({i}, Mode::kDSI, 1, 100000)));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  fail = true;
  int engine_failed = 0;
  for (const Ticket &ticket : tickets) {
    const Reading reading = read_all(ticket);
    REQUIRE(reading.in_time);
    engine_failed += reading.ending.trouble == Trouble::kEngineFailed ? 1 : 0;
    CHECK(reading.ending.error.message.find("gone") != std::string::npos);
  }
  CHECK(engine_failed >= 5); // two failures end at most one request each before the third ends all
}

TEST_CASE("a server that cannot be started never runs a job") {
  std::atomic<int> ran = 0;
  const auto refuse = [] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    throw std::runtime_error("no weights");
  };
  const auto count = [&](Job &) { ++ran; };
  Engine::Config config;
  config.targets.push_back(std::make_unique<UnstartableServer>(refuse, count));
  config.targets.push_back(std::make_unique<ToyServer>(kModel, kMs / 2));
  config.targets.push_back(std::make_unique<UnstartableServer>(refuse, count));
  config.drafter = std::make_unique<UnstartableServer>(refuse, count);
  Engine engine(std::move(config));
  for (const Mode mode :
       {Mode::kSI, Mode::kDSI, Mode::kNonSI}) { // the first while they still start
    const Reading reading = read_all(engine.submit(request({1}, mode, 2, 40)));
    REQUIRE(reading.in_time);
    CHECK(reading.ending.error.message == "");
    CHECK(reading.tokens == kModel.continuation({1}, 40));
    if (mode != Mode::kNonSI)
      CHECK(reading.ending.metrics.drafter_error == "no weights");
  }
  CHECK(ran == 0);

  Engine::Config hopeless;
  hopeless.targets.push_back(std::make_unique<UnstartableServer>(refuse, count));
  hopeless.targets.push_back(std::make_unique<UnstartableServer>(refuse, count));
  Engine failed(std::move(hopeless));
  const Reading reading = read_all(failed.submit(request({1}, Mode::kNonSI, 1, 5)));
  REQUIRE(reading.in_time);
  CHECK(reading.ending.error.message.find("no weights") != std::string::npos);
  CHECK(ran == 0);
}

TEST_CASE("a drafter that fails costs speed, never the text") {
  std::atomic<int> calls = 0;
  Engine engine(pool(
      2, [](int, Job &) {},
      [&](Job &) {
        if (++calls > 3)
          throw std::runtime_error("the drafter broke");
      }));
  for (Token i = 0; i < 6; ++i) {
    const Mode mode = i % 2 == 0 ? Mode::kSI : Mode::kDSI;
    const Reading reading = read_all(engine.submit(request({i}, mode, 2, 25)));
    REQUIRE(reading.in_time);
    CHECK(reading.tokens == kModel.continuation({i}, 25));
    CHECK(reading.ending.metrics.drafter_error == "the drafter broke");
  }
  CHECK(calls <= 6); // three failures over three requests: it has left the pool
}

TEST_CASE("requests that waited while the drafter was lost run without it") {
  Engine::Config config = pool(
      1, [](int, Job &) {}, [](Job &) { throw std::runtime_error("gone"); });
  config.max_running = 1;
  Engine engine(std::move(config));
  std::vector<Ticket> tickets;
  for (Token i = 0; i < 8; ++i)
    tickets.push_back(engine.submit(request({i}, Mode::kSI, 2, 6)));
  for (Token i = 0; i < 8; ++i) {
    const Reading reading = read_all(tickets[static_cast<std::size_t>(i)], 10.0);
    REQUIRE(reading.in_time);
    CHECK(reading.tokens == kModel.continuation({i}, 6));
    CHECK(reading.ending.metrics.drafter_error == "gone");
  }
}

namespace {

// Answers without an answer.
class EmptyServer final : public Server {
public:
  explicit EmptyServer(Outcome::Kind kind) : kind_(kind) {}
  Outcome run(Job & /*job*/) override {
    Outcome outcome;
    outcome.kind = kind_;
    return outcome;
  }

private:
  Outcome::Kind kind_;
};

} // namespace

TEST_CASE("a server that gives no rows, or stops unasked, has failed: no endless loop") {
  for (const Outcome::Kind kind : {Outcome::Kind::kDone, Outcome::Kind::kStopped}) {
    Engine::Config config;
    config.targets.push_back(std::make_unique<EmptyServer>(kind));
    Engine engine(std::move(config));
    const Reading reading = read_all(engine.submit(request({1}, Mode::kNonSI, 1, 5)), 10.0);
    REQUIRE(reading.in_time);
    CHECK(reading.ending.trouble == Trouble::kRequestFailed);
    CHECK_FALSE(reading.ending.error.message.empty());
  }
}

TEST_CASE("anything may be thrown") {
  Engine engine(pool(1, [](int, Job &) { throw 42; }));
  const Reading reading = read_all(engine.submit(request({1}, Mode::kNonSI, 1, 5)));
  REQUIRE(reading.in_time);
  CHECK(reading.ending.error.message == "an exception that is no std::exception");
}

TEST_CASE("a prefill that fails is not repeated, and one of a cancelled request is stopped") {
  std::atomic<int> prefills = 0;
  const auto refuse = [&](int, Job &job) {
    if (job.kind == JobKind::kPrefill) {
      ++prefills;
      throw std::runtime_error("no room");
    }
  };
  {
    Engine engine(pool(3, refuse, {}, 20 * kMs));
    RequestSpec spec = request({1}, Mode::kDSI, 1, 5);
    spec.session.policy.prefill = true;
    const Reading reading = read_all(engine.submit(spec));
    REQUIRE(reading.in_time);
    CHECK(reading.tokens == kModel.continuation({1}, 5));
    CHECK(prefills <= 2);
  }
  Engine engine(pool(
      2, [](int, Job &) {}, {}, 400 * kMs));
  RequestSpec spec = request({1}, Mode::kDSI, 1, 5);
  spec.session.policy.prefill = true;
  const Nanos start = now_ns();
  const Ticket ticket = engine.submit(spec);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  engine.cancel(ticket.id, Trouble::kCancelled, "no more");
  std::vector<Ticket> next; // one for each server
  for (Token i = 2; i < 4; ++i)
    next.push_back(engine.submit(request({i}, Mode::kNonSI, 1, 1)));
  for (const Ticket &one : next)
    CHECK(read_all(one).tokens.size() == 1);
  CHECK(now_ns() - start < 700 * kMs); // one forward, none after it
}
