// Drafts from a drafter with another vocabulary (arXiv 2502.05202).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>

#include "core/alignment.h"
#include "runtime/judge.h"
#include "runtime/server.h"

namespace dsi {

// Belongs to one drafter server. What it proposes are ids of the target:
//   TLI: the drafter's law, renormalised on the tokens both have, draws one token per forward; in
//     rejection mode that law travels with the draft.
//   SLEM: the drafter draws tokens of its own; the text they spell, encoded by the target's
//     tokenizer, is the draft. A token that more text may still change is held back. A draft
//     carries no law: it stands where it is the target's own token.
// Both skip what cannot be a draft: the drafter's control tokens without a counterpart.
class Translator {
public:
  struct Config {
    std::shared_ptr<const VocabularyPair> pair;
    Encoder encode_target;
    Encoder encode_drafter;
    Position context = -1; // the drafter's own limit, in its own ids; -1: none
    // Bytes of the path's text that encode_target is given before the drafted text. For
    // vocabularies whose spelling of a place depends on where its word began; the others need none.
    std::size_t lead_bytes = 0;
    bool hold_back = true; // false: a token that may still grow is proposed like the others
  };
  // The drafter's row of logits behind `ids`, valid until the next call; nothing where the job was
  // stopped. May throw.
  using Forward = std::function<std::optional<std::span<const float>>(const TokenPrefix &ids)>;

  explicit Translator(Config config) : config_(std::move(config)) {}

  // No drafts where there is nothing to propose: no common token has any mass, or the drafter's
  // context is full. Throws what `forward` and the encoders throw.
  Outcome draft(const Job &job, Judge &judge, const Forward &forward);
  void release(RequestId request) { alignments_.erase(request); }

private:
  Outcome draft_token(const Job &job, Alignment &text, Judge &judge, const Forward &forward);
  Outcome draft_text(const Job &job, Alignment &text, Judge &judge, const Forward &forward);
  bool full(const Alignment &text) const {
    return config_.context >= 0 && static_cast<Position>(text.ids().size()) >= config_.context;
  }

  Config config_;
  std::unordered_map<RequestId, Alignment> alignments_;
};

} // namespace dsi
