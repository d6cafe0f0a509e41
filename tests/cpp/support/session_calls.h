// Short words for tests that feed a Session by hand.
#pragma once

#include <initializer_list>
#include <vector>

#include "core/session.h"

namespace dsi::test {

inline std::vector<JudgedRow> rows(std::initializer_list<Token> tokens) {
  std::vector<JudgedRow> made;
  for (const Token token : tokens)
    made.push_back({token, 0.0F, {}});
  return made;
}

inline std::vector<Draft> drafts(std::initializer_list<Token> tokens) {
  std::vector<Draft> made;
  for (const Token token : tokens)
    made.push_back({token, nullptr});
  return made;
}

inline std::vector<Token> emitted(Session &session) {
  std::vector<Token> tokens;
  for (const JudgedRow &row : session.take_emitted())
    tokens.push_back(row.token);
  return tokens;
}

inline SessionConfig config(Mode mode, int lookahead, std::int64_t max_new_tokens) {
  SessionConfig made;
  made.policy.mode = mode;
  made.policy.lookahead = lookahead;
  made.max_new_tokens = max_new_tokens;
  return made;
}

// The prompt of all hand-fed tests: positions 0, 1 and 2, so the first new token is at 3.
inline const std::vector<Token> kPrompt{90, 91, 92};

// Takes the draft task and answers it at once.
inline void draft_now(Session &session, std::initializer_list<Token> tokens) {
  session.drafted(session.take_draft().job, drafts(tokens));
}

using Tokens = std::vector<Token>;

} // namespace dsi::test
