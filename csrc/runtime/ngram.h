// Prompt lookup: the drafter that needs no model (Saxena 2023; transformers'
// prompt_lookup_num_tokens).
#pragma once

#include "runtime/server.h"

namespace dsi {

// Proposes what followed the most recent earlier occurrence of the path's last n tokens, for the
// largest n in [min_ngram, max_ngram] that occurred. A draft is a point mass. Never needs the GIL.
class NgramDrafter final : public Server {
public:
  // Throws std::invalid_argument unless 1 <= min_ngram <= max_ngram and max_drafts >= 1.
  NgramDrafter(int min_ngram, int max_ngram, int max_drafts);
  Outcome run(Job &job) override;

  // The drafts themselves; none where nothing matches.
  static std::vector<Token> propose(const TokenPrefix &path, int min_ngram, int max_ngram,
                                    int most);

private:
  int min_ngram_;
  int max_ngram_;
  int max_drafts_;
};

} // namespace dsi
