// What goes wrong around a Session, fed by hand: servers that fail, give up or answer twice, and
// the counters that must add up all the same.
#include <doctest/doctest.h>

#include "support/session_calls.h"

using namespace dsi;
using namespace dsi::test;

TEST_CASE("a failed verify is tried once more; the second failure ends the request with the first "
          "error") {
  Session session(config(Mode::kDSI, 1, 20), kPrompt);
  session.verify_failed(session.take_verify().job, {"first", nullptr});
  CHECK_FALSE(session.finished());
  CHECK(session.retrying());
  CHECK(session.verify_urgency() == Urgency::kUrgent);
  SUBCASE("the retry works") {
    session.judged(session.take_verify().job, rows({3}));
    CHECK_FALSE(session.retrying());
    CHECK(emitted(session) == Tokens{3});
    session.verify_failed(session.take_verify().job, {"third", nullptr}); // counted anew
    CHECK_FALSE(session.finished());
  }
  SUBCASE("the retry fails") {
    session.verify_failed(session.take_verify().job, {"second", nullptr});
    CHECK(session.reason() == FinishReason::kError);
    CHECK(session.error().message == "first");
    CHECK(session.verify_urgency() == Urgency::kNone);
  }
}

TEST_CASE("a failure over drafts that turn out wrong does not count against the request") {
  Session session(config(Mode::kDSI, 1, 20), kPrompt);
  const VerifyTask empty = session.take_verify();
  draft_now(session, {3, 4});
  const VerifyTask window = session.take_verify();
  draft_now(session, {5});
  const VerifyTask ahead = session.take_verify();
  session.verify_failed(ahead.job, {"over 3 4 5", nullptr});
  session.judged(window.job, rows({3, 40}));
  CHECK(session.epoch() == 1);
  CHECK_FALSE(session.retrying());
  session.stopped(empty.job);
  const Metrics &metrics = session.metrics();
  CHECK(metrics.verifies == 3);
  CHECK(metrics.failed_verifies == 1);
  CHECK(metrics.wasted_verifies == 0); // the failed one is not counted twice
  CHECK(metrics.stopped_verifies == 1);
}

TEST_CASE("a failure ahead of its turn counts when its turn comes") {
  Session session(config(Mode::kDSI, 1, 20), kPrompt);
  const VerifyTask empty = session.take_verify();
  draft_now(session, {3});
  const VerifyTask ahead = session.take_verify();
  session.verify_failed(ahead.job, {"early", nullptr});
  CHECK_FALSE(session.retrying()); // the empty window may still answer for position 3
  session.judged(empty.job, rows({3}));
  CHECK(session.retrying());
  REQUIRE(session.verify_urgency() == Urgency::kUrgent);
  const VerifyTask again = session.take_verify();
  CHECK(again.first == 4);
  session.verify_failed(again.job, {"late", nullptr});
  CHECK(session.error().message == "early");
}

TEST_CASE("two windows that fail side by side are one failure, and there is still a retry") {
  Session session(config(Mode::kDSI, 1, 20), kPrompt);
  const VerifyTask empty = session.take_verify();
  draft_now(session, {3});
  const VerifyTask window = session.take_verify();
  session.verify_failed(window.job, {"window", nullptr});
  session.verify_failed(empty.job, {"empty", nullptr});
  CHECK_FALSE(session.finished());
  CHECK(session.retrying());
  session.judged(session.take_verify().job, rows({3, 4}));
  CHECK(emitted(session) == Tokens{3, 4});
}

TEST_CASE("a drafter that fails costs speed only, also over a stale job") {
  for (const bool stale : {true, false}) {
    Session session(config(Mode::kDSI, 1, 20), kPrompt);
    draft_now(session, {3});
    const DraftTask task = session.take_draft();
    if (stale)
      session.judged(session.take_verify().job, rows({30}));
    CHECK(session.wants_draft() == stale);
    session.draft_failed(task.job, {"died", nullptr});
    CHECK(session.metrics().drafter_error == "died");
    CHECK_FALSE(session.wants_draft());
    session.draft_failed(task.job, {"twice", nullptr});
    CHECK(session.metrics().drafter_error == "died");
    session.judged(session.take_verify().job, rows({stale ? 4 : 3}));
    CHECK(emitted(session).back() == (stale ? 4 : 3));
  }
}

TEST_CASE("work that a server gives up unasked is offered again and counted as stopped") {
  Session session(config(Mode::kDSI, 1, 20), kPrompt);
  session.stopped(session.take_verify().job);
  CHECK(session.verify_urgency() == Urgency::kUrgent);
  session.stopped(session.take_draft().job);
  CHECK(session.wants_draft());
  CHECK(session.metrics().verifies == 1);
  CHECK(session.metrics().stopped_verifies == 1);
}

TEST_CASE("a second answer to one job changes nothing, also while its rows wait for their turn") {
  Session session(config(Mode::kDSI, 1, 20), kPrompt);
  session.take_verify();
  draft_now(session, {3});
  const VerifyTask ahead = session.take_verify();
  session.judged(ahead.job, rows({30, 4})); // before the empty window, whose row this is too
  CHECK(emitted(session) == Tokens{30});
  session.judged(ahead.job, rows({31}));
  session.verify_failed(ahead.job, {"again", nullptr});
  session.stopped(ahead.job);
  CHECK(emitted(session).empty());
  CHECK(session.metrics().failed_verifies == 0);

  Session waiting(config(Mode::kDSI, 1, 20), kPrompt);
  const VerifyTask first = waiting.take_verify();
  draft_now(waiting, {3, 4});
  const VerifyTask second = waiting.take_verify();
  draft_now(waiting, {5});
  const VerifyTask third = waiting.take_verify();
  waiting.judged(third.job, rows({5, 6}));
  waiting.judged(third.job, rows({9, 9}));
  waiting.stopped(third.job);
  waiting.judged(second.job, rows({3, 4, 5}));
  CHECK(emitted(waiting) == Tokens{3, 4, 5, 6});
  waiting.judged(first.job, rows({3}));
  CHECK(waiting.metrics().wasted_verifies == 1);
}

TEST_CASE("cancel ends at once; rows judged ahead of their turn were wasted") {
  Session session(config(Mode::kDSI, 1, 20), kPrompt);
  const VerifyTask empty = session.take_verify();
  draft_now(session, {3, 4});
  const VerifyTask second = session.take_verify();
  draft_now(session, {5});
  const VerifyTask third = session.take_verify();
  session.judged(third.job, rows({5, 6}));
  session.cancel(FinishReason::kCancelled, {"the reader left", nullptr});
  CHECK(session.reason() == FinishReason::kCancelled);
  CHECK(session.take_stale() == std::vector<JobId>{empty.job, second.job});
  CHECK(session.path().size() == kPrompt.size());
  session.cancel(FinishReason::kError, {"too late", nullptr});
  CHECK(session.reason() == FinishReason::kCancelled);
  CHECK(session.error().message == "the reader left");
  session.judged(empty.job, rows({3}));
  session.stopped(second.job);
  CHECK(emitted(session).empty());
  CHECK(session.metrics().wasted_verifies == 2);
  CHECK(session.metrics().stopped_verifies == 1);
  CHECK(session.metrics().drafts_unjudged == 3);
}

TEST_CASE("acceptance is counted by the distance from the target's last own token") {
  Session session(config(Mode::kDSI, 3, 20), kPrompt);
  draft_now(session, {3, 4, 5});
  session.judged(session.take_verify().job, rows({3, 4, 50}));
  draft_now(session, {6});
  session.judged(session.take_verify().job, rows({6, 7}));
  const Metrics &metrics = session.metrics();
  CHECK(metrics.judged_at == std::vector<std::int64_t>{2, 1, 1});
  CHECK(metrics.accepted_at == std::vector<std::int64_t>{2, 1, 0});
  CHECK(metrics.emitted == 5);
  CHECK(metrics.accepted + metrics.rejected + metrics.bonus == 5);
}
