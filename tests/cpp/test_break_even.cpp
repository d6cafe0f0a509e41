#include "core/break_even.h"

#include <doctest/doctest.h>

#include <algorithm>

using namespace dsi;

namespace {

constexpr Nanos kMs = 1'000'000;

struct Run {
  BreakEven switch_{0.8};
  Nanos now = 0;
  std::int64_t drafted = 0;
  std::int64_t plain = 0;

  // One token after the other, at what drafting and plain decoding take each.
  void tokens(int count, Nanos drafting_ns, Nanos plain_ns, double estimate_ns) {
    for (int i = 0; i < count; ++i) {
      const bool drafting = switch_.drafting();
      now += drafting ? drafting_ns : plain_ns;
      ++(drafting ? drafted : plain);
      switch_.committed(1, now, estimate_ns);
    }
  }
};

} // namespace

TEST_CASE("drafting that obviously pays is never stopped, not even to measure") {
  Run run;
  run.tokens(1000, 5 * kMs, 10 * kMs, 10.0 * kMs);
  CHECK(run.plain == 0);
  CHECK(run.switch_.pauses() == 0);
}

TEST_CASE("where it is doubtful, a few plain tokens decide, once") {
  Run run;
  run.tokens(1000, 9 * kMs, 10 * kMs, 10.0 * kMs);
  CHECK(run.switch_.pauses() == 0);
  CHECK(run.plain > 0);
  CHECK(run.plain <= 8);
}

TEST_CASE("drafting that costs is stopped, and tried again after longer and longer pauses") {
  Run run;
  run.tokens(4000, 20 * kMs, 10 * kMs, 10.0 * kMs);
  CHECK(run.switch_.pauses() >= 4);
  CHECK(run.switch_.undrafted() == run.plain);
  CHECK(run.drafted < 4000 / 10);
  CHECK(run.now < 4000 * 11 * kMs);
}

TEST_CASE("drafting that pays again is taken up for good") {
  Run run;
  run.tokens(200, 20 * kMs, 10 * kMs, 0.0);
  CHECK(run.switch_.pauses() > 0);
  const std::int64_t plain = run.plain;
  run.tokens(2000, 4 * kMs, 10 * kMs, 0.0);
  CHECK(run.switch_.drafting());
  CHECK(run.plain - plain < 200);
}

TEST_CASE("the prompt's time counts for neither side") {
  Run run;
  run.now = 10'000 * kMs;
  run.switch_.committed(1, run.now, 0.0);
  run.tokens(300, 9 * kMs, 10 * kMs, 0.0);
  CHECK(run.switch_.pauses() == 0);
}
