// What one Session counted. Plain numbers; ratios are computed by whoever shows them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace dsi {

struct Metrics {
  std::int64_t emitted = 0;  // tokens committed
  std::int64_t accepted = 0; // drafts the target agreed with
  std::int64_t rejected = 0; // drafts it did not; each one cost an epoch
  std::int64_t bonus = 0;    // tokens committed where no draft was judged
  std::int64_t drafted = 0;  // drafts that joined the chain or met a committed token
  std::int64_t drafts_unjudged =
      0; // drafts thrown away behind a rejection, or left over at the end

  std::int64_t verifies = 0;         // verify jobs handed out
  std::int64_t wasted_verifies = 0;  // finished, and nothing of them was committed
  std::int64_t stopped_verifies = 0; // stopped before their end
  std::int64_t failed_verifies = 0;  // raised
  std::int64_t draft_jobs = 0;

  // Index: how far the draft stood behind the last token the target chose itself.
  std::vector<std::int64_t> judged_at;
  std::vector<std::int64_t> accepted_at;

  std::string drafter_error; // not empty: drafting ended for this request, and why
};

} // namespace dsi
