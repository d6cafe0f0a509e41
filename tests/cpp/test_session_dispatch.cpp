// Which of several Sessions is served next.
#include <doctest/doctest.h>

#include <map>

#include "core/dispatch.h"
#include "support/session_calls.h"

using namespace dsi;
using namespace dsi::test;

namespace {

const auto any = [](const Session &) { return true; };

// One verify in flight and drafts to judge: speculative work.
void make_speculative(Session &session) {
  session.take_verify();
  draft_now(session, {3, 4});
}

} // namespace

TEST_CASE("the verify of a next position goes before speculative ones, of whatever session") {
  Session ahead(config(Mode::kDSI, 1, 20), kPrompt), fresh(config(Mode::kDSI, 1, 20), kPrompt);
  make_speculative(ahead);
  Dispatcher dispatcher;
  dispatcher.add(&ahead);
  dispatcher.add(&fresh);
  CHECK(dispatcher.next_verify(any) == &fresh);
  fresh.take_verify();
  CHECK(dispatcher.next_verify(any) == &ahead);
  ahead.take_verify();
  CHECK(dispatcher.next_verify(any) == nullptr);
}

TEST_CASE("equal sessions take turns, and a veto skips one") {
  std::deque<Session> sessions;
  Dispatcher dispatcher;
  for (int i = 0; i < 3; ++i)
    dispatcher.add(&sessions.emplace_back(config(Mode::kNonSI, 1, 100), kPrompt));
  std::map<const Session *, int> served;
  for (int i = 0; i < 30; ++i) {
    Session *session = dispatcher.next_verify(any);
    REQUIRE(session != nullptr);
    session->judged(session->take_verify().job, rows({i}));
    ++served[session];
  }
  for (const Session &session : sessions)
    CHECK(served[&session] == 10);
  for (int i = 0; i < 10; ++i)
    CHECK(dispatcher.next_verify([&](const Session &one) { return &one != &sessions[1]; }) !=
          &sessions[1]);
  CHECK(dispatcher.next_verify([](const Session &) { return false; }) == nullptr);
}

TEST_CASE("a session that ends costs no other its turn") {
  std::deque<Session> sessions;
  Dispatcher dispatcher;
  for (int i = 0; i < 4; ++i)
    dispatcher.add(&sessions.emplace_back(config(Mode::kDSI, 1, 20), kPrompt));
  CHECK(dispatcher.next_verify(any) == &sessions[0]);
  CHECK(dispatcher.next_draft() == &sessions[0]);
  dispatcher.remove(&sessions[0]);
  CHECK(dispatcher.next_verify(any) == &sessions[1]);
  CHECK(dispatcher.next_draft() == &sessions[1]);
  dispatcher.remove(&sessions[3]);
  CHECK(dispatcher.next_verify(any) == &sessions[2]);
  CHECK(dispatcher.next_verify(any) == &sessions[1]);
  dispatcher.remove(&sessions[2]);
  dispatcher.remove(&sessions[1]);
  CHECK(dispatcher.next_verify(any) == nullptr);
  CHECK(dispatcher.next_draft() == nullptr);
}
