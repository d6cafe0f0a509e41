#include "runtime/ngram.h"

#include <algorithm>
#include <stdexcept>

namespace dsi {

NgramDrafter::NgramDrafter(int min_ngram, int max_ngram, int max_drafts)
    : min_ngram_(min_ngram), max_ngram_(max_ngram), max_drafts_(max_drafts) {
  if (min_ngram < 1 || max_ngram < min_ngram) {
    throw std::invalid_argument(
        "min_ngram, max_ngram: 1 <= min_ngram <= max_ngram is needed, got " +
        std::to_string(min_ngram) + " and " + std::to_string(max_ngram));
  }
  if (max_drafts < 1) {
    throw std::invalid_argument("max_drafts: at least 1 is needed, got " +
                                std::to_string(max_drafts));
  }
}

std::vector<Token> NgramDrafter::propose(const TokenPrefix &path, int min_ngram, int max_ngram,
                                         int most) {
  const auto size = static_cast<std::ptrdiff_t>(path.size());
  // One pass from the end: the longest suffix that ends at each earlier token, up to max_ngram.
  std::ptrdiff_t best_length = 0;
  std::ptrdiff_t best_end = 0; // drafts start here
  for (std::ptrdiff_t end = size - 1; end >= 1 && best_length < max_ngram; --end) {
    std::ptrdiff_t length = 0;
    while (length < max_ngram && length < end &&
           path[static_cast<std::size_t>(end - 1 - length)] ==
               path[static_cast<std::size_t>(size - 1 - length)]) {
      ++length;
    }
    if (length > best_length) {
      best_length = length;
      best_end = end;
    }
  }
  if (best_length < min_ngram) {
    return {};
  }
  const std::ptrdiff_t count = std::min<std::ptrdiff_t>(most, size - best_end);
  return {path.data() + best_end, path.data() + best_end + count};
}

Outcome NgramDrafter::run(Job &job) {
  Outcome outcome;
  for (const Token id :
       propose(job.tokens, min_ngram_, max_ngram_, std::min(job.max_drafts, max_drafts_))) {
    outcome.drafts.push_back(Draft{id, nullptr});
  }
  return outcome;
}

} // namespace dsi
