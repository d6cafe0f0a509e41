// What one run did, and when: for pictures and traces. Filled by the virtual clock and by the
// engine alike.
#pragma once

#include <cstdint>
#include <vector>

#include "core/metrics.h"
#include "core/types.h"

namespace dsi {

// kUsed: its result reached the Session in time, which may still drop it behind a rejection.
// kUnfinished: still running when the run ended.
enum class Fate : std::uint8_t { kUsed, kWasted, kStopped, kFailed, kUnfinished };

// One stretch of a server's time.
struct SpanRecord {
  int server = 0;  // target servers 0..sp-1, the drafter is -1
  char kind = 'v'; // v verify, d draft, p prefill
  Nanos start = 0;
  Nanos end = 0;
  Position first = 0;  // first judged position, or the first draft's
  Position window = 0; // drafts judged
  Fate fate = Fate::kUsed;
};

// One token became final.
struct CommitRecord {
  Nanos time = 0;
  Position position = 0;
  char kind = 'a'; // a: an accepted draft, c: the correction of one, b: no draft was judged there
};

class RunRecord {
public:
  // To be called after each answer to a Session: what its counters say that is not here yet.
  // Accepted drafts come first, and a correction or a bonus is the last an answer commits.
  void commit(const Metrics &metrics, Nanos time, Position prompt_tokens) {
    const auto add = [&](std::int64_t &seen, std::int64_t now, char kind) {
      for (; seen < now; ++seen) {
        const auto index = static_cast<Position>(commits.size());
        commits.push_back(CommitRecord{time, prompt_tokens + index, kind});
      }
    };
    add(accepted_, metrics.accepted, 'a');
    add(rejected_, metrics.rejected, 'c');
    add(bonus_, metrics.bonus, 'b');
  }

  Nanos origin = 0;              // on the clock that was used: what all times count from
  std::vector<SpanRecord> spans; // in order of their end
  std::vector<CommitRecord> commits;

private:
  std::int64_t accepted_ = 0;
  std::int64_t rejected_ = 0;
  std::int64_t bonus_ = 0;
};

} // namespace dsi
