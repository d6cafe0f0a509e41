// Schedules to look at; support/timeline.h says how to read them.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "core/simulate.h"
#include "support/timeline.h"

using namespace dsi;
using namespace dsi::test;

namespace {

// A letter per draft: 'y' is right, 'n' is wrong. Time is counted in drafter forwards.
struct Setting {
  Mode mode = Mode::kDSI;
  int lookahead = 1;
  int sp = 1;
  Nanos target = 3;
  std::string drafts;
  bool stoppable = true;
  Nanos drafter = 1;
  Nanos ttft = 0; // of the target; with prefill
};

std::string schedule(const Setting &setting) {
  Simulation one;
  one.session.policy.mode = setting.mode;
  one.session.policy.lookahead = setting.lookahead;
  one.session.policy.prefill = setting.ttft > 0;
  one.session.max_new_tokens = static_cast<std::int64_t>(setting.drafts.size());
  one.sp = setting.sp;
  one.target = {setting.ttft > 0 ? setting.ttft : setting.target, setting.target, 0.0, 0.0,
                setting.stoppable};
  one.drafter = {setting.drafter, setting.drafter, 0.0, 0.0, setting.stoppable};
  one.right.emplace();
  for (const char letter : setting.drafts)
    one.right->push_back(letter == 'y');
  one.record = true;
  return timeline(simulate(one), one.prompt_tokens, 1);
}

} // namespace

TEST_CASE("non-SI: one forward after another") {
  CHECK(schedule({Mode::kNonSI, 1, 1, 3, "yyyy"}) == R"(
target0 0+0........|1+0........|2+0........|3+0........|
end 12
)");
}

TEST_CASE("SI, all drafts right: draft two, verify, one bonus") {
  CHECK(schedule({Mode::kSI, 2, 1, 3, "yyyyyy"}) == R"(
drafter 0..|1..|            3..|4..|
target0         0+2........|        3+2........|
end 10
)");
}

TEST_CASE("SI, the second draft is wrong") {
  CHECK(schedule({Mode::kSI, 2, 1, 3, "ynyyyy"}) == R"(
drafter 0..|1..|            2..|3..|
target0         0+2........|        2+2........|5+0........|
end 13
)");
}

TEST_CASE("DSI, all drafts right: verifies overlap, (S-1)*d + T") {
  CHECK(schedule({Mode::kDSI, 1, 4, 3, "yyyyyy"}) == R"(
drafter 0..|1..|2..|3..|4..|
target0 0+0........|2+1........|
target1     0+1........|3+1........|
target2         1+1........|4+1........|
end 8
)");
}

TEST_CASE("DSI, all drafts wrong: S*T, speculative work is stopped") {
  CHECK(schedule({Mode::kDSI, 1, 4, 3, "nnnn"}) == R"(
drafter 0..|1..|2..|1..|2..|    2..|
target0 0+0........|1+0........|2+0........|3+0........|
target1     0+1....x    1+1....x    2+1....x
target2         1+1x        2+1x
end 12
)");
}

TEST_CASE(
    "DSI, one rejection: both its neighbours are stopped and an empty window starts at once") {
  CHECK(schedule({Mode::kDSI, 1, 4, 3, "yynyyy"}) == R"(
drafter 0..|1..|2..|3..|4..|3..|4..|
target0 0+0........|2+1....x3+0........|
target1     0+1........|3+1x    3+1........|
target2         1+1........|        4+1........|
end 10
)");
}

TEST_CASE("DSI, the same where nothing can be stopped: the server that found it goes on") {
  CHECK(schedule({Mode::kDSI, 1, 4, 3, "yynyyy", false}) == R"(
drafter 0..|1..|2..|3..|4..|3..|4..|
target0 0+0........|2+1........~3+1........|
target1     0+1........|3+1........~4+1........|
target2         1+1........|3+0........|
end 10
)");
}

TEST_CASE("DSI, lookahead 2: the last window is sent though it is not full") {
  CHECK(schedule({Mode::kDSI, 2, 3, 4, "yyyyyy"}) == R"(
drafter 0..|1..|2..|3..|4..|
target0 0+0............|2+2............|
target1         0+2............|
target2                     4+1............|
end 9
)");
}

TEST_CASE("DSI, lookahead 2, the fourth draft is wrong") {
  CHECK(schedule({Mode::kDSI, 2, 3, 4, "yyynyy"}) == R"(
drafter 0..|1..|2..|3..|4..|            4..|
target0 0+0............|2+2............|4+0............|
target1         0+2............|
target2                     4+1........x    4+1............|
end 13
)");
}

TEST_CASE("DSI on one server: all drafts there are go into the next window") {
  CHECK(schedule({Mode::kDSI, 1, 1, 3, "yyyyyy"}) == R"(
drafter 0..|1..|2..|3..|4..|
target0 0+0........|1+2........|4+1........|
end 9
)");
}

TEST_CASE("DSI, a drafter slower than the target costs nothing") {
  CHECK(schedule({Mode::kDSI, 1, 2, 2, "yyyy", true, 3}) == R"(
drafter 0..........|1..........|
target0 0+0....|1+0....|2+0....|3+0....|
end 8
)");
}

TEST_CASE("DSI with a slow first forward: idle servers prefill meanwhile") {
  CHECK(schedule({Mode::kDSI, 1, 3, 2, "yyyyy", true, 1, 5}) == R"(
drafter 0..|1..|2..|3..|
target0 0+0................|
target1 pre........|0+3....|
target2 pre........|    3+1....|
end 6
)");
}
