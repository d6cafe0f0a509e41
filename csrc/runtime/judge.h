// From a model's rows of logits to judged rows and drafts. One Judge belongs to one worker.
#pragma once

#include <span>

#include "kernels/law.h"
#include "runtime/server.h"

namespace dsi {

// Rows of raw logits, row-major, valid during the call.
struct Logits {
  const float *data = nullptr;
  std::int64_t rows = 0;
  std::int64_t vocab_size = 0;
  std::span<const float> row(std::int64_t index) const {
    return {data + index * vocab_size, static_cast<std::size_t>(vocab_size)};
  }
};

// A user's logits processor. Called after bias, penalties and min tokens, before temperature and
// cuts, once per row and only for rows whose window prefix the target agreed with, with the row's
// own prefix.
class RowHook {
public:
  virtual ~RowHook() = default;
  virtual void apply(std::span<const Token> prefix, std::span<float> row) = 0; // may throw
};

class Judge {
public:
  // Judges rows job.first .. job.tokens.size(); `logits` has one row for each. Rows behind a
  // mismatch, and behind a row that cannot be judged, are left out; where that is the first, the
  // outcome is kFailed.
  Outcome verify(const Job &job, const Logits &logits, RowHook *hook);
  // The draft for position job.tokens.size() from one row of the drafter's logits.
  Outcome draft(const Job &job, std::span<const float> logits, RowHook *hook);

  struct Drawn {
    Token id = -1;                 // in the row's own vocabulary; -1: none, see `failure`
    std::shared_ptr<DraftLaw> law; // where it was drawn from, if it was and is asked for
    Outcome failure; // kFailed: a broken row; kDone: no id that takes part is possible
  };
  // An id for position `at` from a row in a drafter's own vocabulary. No hook sees such a row.
  Drawn draw(const Job &job, std::span<const float> logits, const RowMap &map, Position at,
             bool with_law);

private:
  static Outcome broken_draft_row(const Job &job, RowStatus status);
  RowStatus prepare(const Job &job, std::span<const float> logits, const RowEdits &edits,
                    std::span<const Token> prefix, RowHook *hook);
  JudgedRow judge_row(const Job &job, Position position);

  Law law_;
  std::vector<float> row_; // the edited row a hook works on
};

// The message of a job that failed over a row of the "target" or "drafter".
std::string undrawable(const char *whose, Position position, RowStatus status);

} // namespace dsi
