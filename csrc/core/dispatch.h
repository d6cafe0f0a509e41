// Which of several Sessions a free server works for next. Pure; the driver serialises the calls.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "core/session.h"

namespace dsi {

// Round robin within a class of urgency: the verify of a next position goes before any speculative
// one, of whatever session. Within a session there is no queue, so work is always of the newest
// epoch.
class Dispatcher {
public:
  void add(Session *session) { sessions_.push_back(session); } // not owned
  void remove(Session *session) {
    const auto found = std::find(sessions_.begin(), sessions_.end(), session);
    const auto index = static_cast<std::size_t>(found - sessions_.begin());
    if (found != sessions_.end()) {
      sessions_.erase(found);
      verify_turn_ -= index < verify_turn_ ? 1 : 0; // those behind it move up: nobody is skipped
      draft_turn_ -= index < draft_turn_ ? 1 : 0;
    }
  }
  const std::vector<Session *> &sessions() const { return sessions_; }

  // `allowed(session)` may veto, e.g. a retry on the server that has just failed. Null: no work.
  template <typename Allowed> Session *next_verify(Allowed allowed) {
    for (const Urgency urgency : {Urgency::kUrgent, Urgency::kSpeculative}) {
      if (Session *session = next(verify_turn_, [&](Session &candidate) {
            return candidate.verify_urgency() == urgency && allowed(candidate);
          })) {
        return session;
      }
    }
    return nullptr;
  }

  Session *next_draft() {
    return next(draft_turn_, [](Session &candidate) { return candidate.wants_draft(); });
  }

private:
  template <typename Wanted> Session *next(std::size_t &turn, Wanted wanted) {
    for (std::size_t i = 0; i < sessions_.size(); ++i) {
      const std::size_t index = (turn + i) % sessions_.size();
      if (wanted(*sessions_[index])) {
        turn = index + 1;
        return sessions_[index];
      }
    }
    return nullptr;
  }

  std::vector<Session *> sessions_;
  std::size_t verify_turn_ = 0;
  std::size_t draft_turn_ = 0;
};

} // namespace dsi
