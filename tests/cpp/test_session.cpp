// The decode loop fed by hand: windows, frontiers, rejections, the end of drafts and of the
// request.
#include <doctest/doctest.h>

#include <memory>
#include <stdexcept>

#include "support/session_calls.h"

using namespace dsi;
using namespace dsi::test;

TEST_CASE("bad requests are refused by name") {
  CHECK_THROWS_WITH_AS(Session(config(Mode::kDSI, 1, 5), {}),
                       "prompt: at least one token is needed, got none", std::invalid_argument);
  CHECK_THROWS_WITH_AS(Session(config(Mode::kDSI, 1, 0), kPrompt),
                       "max_new_tokens: at least 1 is needed, got 0", std::invalid_argument);
  CHECK_THROWS_AS(Session(config(Mode::kDSI, 0, 5), kPrompt), std::invalid_argument);
  SessionConfig no_window = config(Mode::kDSI, 1, 5);
  no_window.policy.max_window = 0;
  CHECK_THROWS_AS(Session(no_window, kPrompt), std::invalid_argument);
  SessionConfig full = config(Mode::kDSI, 1, 5);
  full.target_context = 3;
  CHECK_THROWS_WITH_AS(Session(full, kPrompt),
                       "prompt: 3 tokens leave no room in the target's context of 3",
                       std::invalid_argument);
}

TEST_CASE("the empty window is verified at once, before any draft") {
  Session session(config(Mode::kDSI, 2, 10), kPrompt);
  CHECK(session.verify_urgency() == Urgency::kUrgent);
  const VerifyTask task = session.take_verify();
  CHECK(task.first == 3);
  CHECK(task.window == 0);
  CHECK(task.urgent);
  CHECK(session.verify_urgency() == Urgency::kNone);
}

TEST_CASE("windows do not overlap but for the frontier, and one judged early waits for its turn") {
  Session session(config(Mode::kDSI, 2, 20), kPrompt);
  const VerifyTask empty = session.take_verify();
  draft_now(session, {3, 4});
  CHECK(session.verify_urgency() == Urgency::kSpeculative);
  const VerifyTask second = session.take_verify();
  CHECK(second.first == 3); // the frontier of the empty window
  CHECK(second.window == 2);
  draft_now(session, {5});
  CHECK(session.verify_urgency() == Urgency::kNone); // below the lookahead
  draft_now(session, {6, 7});
  const VerifyTask third = session.take_verify();
  CHECK(third.first == 5);
  CHECK(third.window == 3);

  session.judged(third.job, rows({5, 6, 7, 8}));
  CHECK(emitted(session).empty());
  session.judged(second.job, rows({3, 4, 5}));
  CHECK(emitted(session) == Tokens{3, 4, 5, 6, 7, 8});
  CHECK(session.take_stale() == std::vector<JobId>{empty.job}); // its only row is committed
  session.judged(empty.job, rows({3}));
  CHECK(emitted(session).empty());
  CHECK(session.metrics().accepted == 5);
  CHECK(session.metrics().bonus == 1);
  CHECK(session.metrics().wasted_verifies == 1);
}

TEST_CASE(
    "a frontier draft that exists when the forward ends is judged, another one is not there") {
  Session session(config(Mode::kDSI, 2, 20), kPrompt);
  const VerifyTask task = session.take_verify();
  CHECK(session.frontier_draft(task.job) == nullptr);
  draft_now(session, {3});
  REQUIRE(session.frontier_draft(task.job) != nullptr);
  CHECK(session.frontier_draft(task.job)->id == 3);
  session.judged(task.job, rows({3}));
  CHECK(session.metrics().accepted == 1);
  CHECK(session.frontier_draft(task.job) == nullptr);
}

TEST_CASE("a rejection bumps the epoch, keeps the correction, and older work changes nothing") {
  Session session(config(Mode::kDSI, 1, 20), kPrompt);
  const VerifyTask first = session.take_verify();
  draft_now(session, {3, 4});
  const VerifyTask second = session.take_verify();
  const DraftTask drafting = session.take_draft();
  session.judged(first.job, rows({30}));
  CHECK(session.epoch() == 1);
  CHECK(emitted(session) == Tokens{30});
  CHECK(session.take_stale() == std::vector<JobId>{second.job, drafting.job});
  CHECK(session.frontier_draft(second.job) == nullptr);

  session.judged(second.job, rows({3, 4, 5}));
  session.drafted(drafting.job, drafts({5, 6}));
  CHECK(emitted(session).empty());
  CHECK(session.path().size() == 4);
  CHECK(session.verify_urgency() == Urgency::kUrgent);
  CHECK(session.take_verify().first == 4);
  const Metrics &metrics = session.metrics();
  CHECK(metrics.rejected == 1);
  CHECK(metrics.drafts_unjudged == 1);
  CHECK(metrics.wasted_verifies == 1);
}

TEST_CASE("a bonus overtakes the draft: equal goes on, other is dropped, neither bumps the epoch") {
  for (const Token late : {3, 33}) {
    Session session(config(Mode::kDSI, 1, 20), kPrompt);
    const DraftTask drafting = session.take_draft();
    session.judged(session.take_verify().job, rows({3}));
    CHECK(session.metrics().bonus == 1);
    session.drafted(drafting.job, drafts({late, 4}));
    CHECK(session.epoch() == 0);
    CHECK(session.path().size() == (late == 3 ? 5U : 4U));
    CHECK(session.take_draft().from == (late == 3 ? 5 : 4));
    CHECK(session.metrics().drafts_unjudged == (late == 3 ? 0 : 1));
  }
}

TEST_CASE("a row drawn without a draft is a bonus, also where a draft has come since") {
  for (const Token chosen : {5, 50}) { // what the target says where the draft says 5
    Session session(config(Mode::kDSI, 1, 20), kPrompt);
    const VerifyTask empty = session.take_verify();
    draft_now(session, {3, 4});
    const VerifyTask window = session.take_verify();
    std::vector<JudgedRow> judged = rows({3, 4, chosen});
    judged.back().bonus = true;
    session.judged(window.job, std::move(judged)); // nothing came from the empty window yet
    CHECK(session.committed() == 6);
    CHECK(session.metrics().bonus == 1);
    session.stopped(empty.job);

    Session late(config(Mode::kDSI, 1, 20), kPrompt);
    late.take_verify();
    draft_now(late, {3});
    const VerifyTask first = late.take_verify();
    draft_now(late, {4});
    const VerifyTask second = late.take_verify();
    judged = rows({4, chosen});
    judged.back().bonus = true;
    late.judged(second.job, std::move(judged)); // waits for the first
    draft_now(late, {5, 6});
    late.judged(first.job, rows({3, 4}));
    CHECK(emitted(late) == Tokens{3, 4, chosen});
    CHECK(late.metrics().accepted == 2);
    CHECK(late.metrics().rejected == 0);
    CHECK(late.metrics().bonus == 1);
    CHECK(late.epoch() == (chosen == 5 ? 0 : 1));
    CHECK(late.path().size() == (chosen == 5 ? 7U : 6U));
    CHECK(late.metrics().drafts_unjudged == (chosen == 5 ? 0 : 2));
  }
}

TEST_CASE("rows behind a mismatch may be missing; positions without a row are offered again") {
  Session session(config(Mode::kDSI, 3, 20), kPrompt);
  const VerifyTask empty = session.take_verify();
  draft_now(session, {3, 4, 5});
  const VerifyTask window = session.take_verify();
  session.judged(window.job, rows({3, 4})); // no error, but two rows are missing
  CHECK(emitted(session) == Tokens{3, 4});
  CHECK(session.take_stale() == std::vector<JobId>{empty.job});
  REQUIRE(session.verify_urgency() == Urgency::kUrgent);
  const VerifyTask again = session.take_verify();
  CHECK(again.first == 5);
  CHECK(again.window == 1);
}

TEST_CASE("at the end the partial window is sent, and no draft is made that could not be used") {
  Session session(config(Mode::kDSI, 4, 4), kPrompt); // new tokens at 3, 4, 5, 6
  const VerifyTask empty = session.take_verify();
  const DraftTask drafting = session.take_draft();
  CHECK(drafting.from == 3);
  CHECK(drafting.max_drafts == 3); // 6 is the target's own
  session.drafted(drafting.job, drafts({3, 4, 5, 6, 7}));
  CHECK(session.path().size() == 6);
  CHECK_FALSE(session.wants_draft());
  REQUIRE(session.verify_urgency() == Urgency::kSpeculative);
  const VerifyTask flush = session.take_verify();
  CHECK(flush.window == 3);
  session.judged(empty.job, rows({3}));
  session.judged(flush.job, rows({3, 4, 5, 6}));
  CHECK(emitted(session) == Tokens{3, 4, 5, 6});
  CHECK(session.reason() == FinishReason::kLength);
}

TEST_CASE("one token is wanted: nothing is drafted") {
  Session session(config(Mode::kDSI, 1, 1), kPrompt);
  CHECK_FALSE(session.wants_draft());
  session.judged(session.take_verify().job, rows({7}));
  CHECK(session.reason() == FinishReason::kLength);
}

TEST_CASE("contexts: the target's ends the request, the drafter's ends the drafts") {
  SessionConfig limited = config(Mode::kDSI, 1, 50);
  limited.target_context = 6;
  limited.drafter_context = 4;
  Session session(limited, kPrompt);
  CHECK(session.take_draft().max_drafts == 1);
  session.judged(session.take_verify().job, rows({3}));
  CHECK_FALSE(session.wants_draft());
  session.judged(session.take_verify().job, rows({4}));
  session.judged(session.take_verify().job, rows({5}));
  CHECK(session.reason() == FinishReason::kLength);
  CHECK(emitted(session) == Tokens{3, 4, 5});
}

TEST_CASE("a dry drafter is asked again only behind another path, and does not hold windows back") {
  Session session(config(Mode::kDSI, 4, 20), kPrompt);
  const VerifyTask empty = session.take_verify();
  draft_now(session, {3});
  CHECK(session.verify_urgency() == Urgency::kNone);
  draft_now(session, {});
  CHECK_FALSE(session.wants_draft());
  CHECK(session.verify_urgency() == Urgency::kSpeculative);
  const VerifyTask window = session.take_verify();
  session.judged(empty.job, rows({3}));
  CHECK_FALSE(session.wants_draft()); // the path is the same
  session.judged(window.job, rows({3, 4}));
  CHECK(session.wants_draft());
  draft_now(session, {5});
  session.judged(session.take_verify().job, rows({50}));
  REQUIRE(session.epoch() == 1);
  draft_now(session, {});
  CHECK_FALSE(session.wants_draft()); // in a later epoch too
}

TEST_CASE("drafts stop at the run-ahead cap and go on when something is committed") {
  SessionConfig capped = config(Mode::kDSI, 2, 50);
  capped.policy.run_ahead = 3;
  Session session(capped, kPrompt);
  const VerifyTask task = session.take_verify();
  CHECK(session.take_draft().max_drafts == 3);
  session.drafted(2, drafts({3, 4, 5, 6}));
  CHECK(session.path().size() == 6);
  CHECK_FALSE(session.wants_draft());
  session.judged(task.job, rows({3}));
  CHECK(session.take_draft().max_drafts == 1);
  session.set_lookahead(8, 2, 64); // never below the lookahead
  CHECK(session.policy().run_ahead == 8);
}

TEST_CASE("an id outside the vocabulary ends the drafting, the drafts before it stay") {
  for (const Token outside : {-1, 100}) {
    SessionConfig small = config(Mode::kDSI, 1, 20);
    small.vocab_size = 100;
    Session session(small, kPrompt);
    draft_now(session, {3, outside, 5});
    CHECK(session.path().size() == 4);
    CHECK_FALSE(session.wants_draft());
    CHECK(session.metrics().drafter_error.find(std::to_string(outside)) != std::string::npos);
    session.judged(session.take_verify().job, rows({3, 4}));
    CHECK(emitted(session) == Tokens{3, 4});
  }
}

TEST_CASE("SI drafts, then verifies, never both at once; non-SI never drafts") {
  Session session(config(Mode::kSI, 2, 20), kPrompt);
  CHECK(session.verify_urgency() == Urgency::kNone);
  draft_now(session, {3});
  CHECK(session.verify_urgency() == Urgency::kNone);
  draft_now(session, {4});
  const VerifyTask task = session.take_verify();
  CHECK(task.window == 2);
  CHECK_FALSE(session.wants_draft());
  session.judged(task.job, rows({3, 40}));
  CHECK(emitted(session) == Tokens{3, 40});
  CHECK(session.verify_urgency() == Urgency::kNone);
  session.end_drafting("gone");
  CHECK(session.verify_urgency() == Urgency::kUrgent);

  Session plain(config(Mode::kNonSI, 1, 20), kPrompt);
  CHECK_FALSE(plain.wants_draft());
  CHECK(plain.take_verify().window == 0);
  CHECK(plain.verify_urgency() == Urgency::kNone);
}

TEST_CASE("a stop inside a window wins over the cap, and what follows it is dropped") {
  SessionConfig stopping = config(Mode::kDSI, 3, 4);
  stopping.stop_ids = {5};
  Session session(stopping, kPrompt);
  draft_now(session, {3, 5, 6});
  const VerifyTask task = session.take_verify();
  session.judged(task.job, rows({3, 5, 6, 7}));
  CHECK(emitted(session) == Tokens{3, 5});
  CHECK(session.reason() == FinishReason::kStopToken);
  CHECK(session.path().size() == 5);

  SessionConfig last = config(Mode::kNonSI, 1, 1); // stop and cap at the same token
  last.stop_ids = {5};
  Session at_cap(last, kPrompt);
  at_cap.judged(at_cap.take_verify().job, rows({5}));
  CHECK(at_cap.reason() == FinishReason::kStopToken);
}

TEST_CASE("a stop string across tokens of one window says where it begins") {
  auto bytes = std::make_shared<TokenBytes>();
  bytes->blob = "Hello world";
  bytes->offsets = {0, 3, 7, 11}; // "Hel" "lo w" "orld"
  SessionConfig stopping = config(Mode::kDSI, 2, 3);
  stopping.stop_strings.emplace(bytes, std::vector<std::string>{"o wor"});
  Session session(stopping, kPrompt);
  draft_now(session, {0, 1});
  session.judged(session.take_verify().job, rows({0, 1, 2}));
  CHECK(emitted(session) == Tokens{0, 1, 2});
  CHECK(session.reason() == FinishReason::kStopString); // though it is the last token allowed
  CHECK(session.stop_bytes() == 4);
}
