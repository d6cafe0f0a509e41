// One text in two vocabularies: the target's path, and the drafter's ids that spell it, aligned by
// byte offset. Ids are never compared across the two; equal offsets are.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/token_sequence.h"
#include "core/vocabulary.h"

namespace dsi {

// Of one request. The drafter's ids may reach beyond the path: text that was drafted and not
// proposed yet. Not thread-safe.
class Alignment {
public:
  explicit Alignment(std::shared_ptr<const VocabularyPair> pair);

  // Makes the drafter's ids spell `path`, or with keep_ahead a text that begins with it. Of the
  // path the first `frozen` tokens never change again. What was spelled and drafted before stays up
  // to the last token that agrees with the new text; only the text behind that is given to
  // `encode`, apart from single tokens that both vocabularies have. Text that `encode` leaves out
  // is offered again with what follows it. After a throw the next call starts over. Cost: O(tokens
  // behind the last call's `frozen`), and the encoding.
  void follow(std::span<const Token> path, Position frozen, bool keep_ahead, const Encoder &encode);
  // The drafter drew `drafter_id` behind ids().
  void push(Token drafter_id);

  std::span<const Token> ids() const { return ids_; } // the drafter's context
  TokenPrefix kept_ids() { return ids_.prefix(ids_.size()); }
  std::string_view ahead() const; // text drafted behind the path
  // The part of ahead() that is whole characters, or bytes that cannot become one.
  std::string_view ahead_whole() const;
  // The end of the path's text: whole tokens, at most `most` bytes, none of them a control token.
  // Begins with a space where one of these tokens does, so where words begin.
  std::string_view lead(std::size_t most) const;

private:
  std::size_t agreed(std::span<const Token> path) const; // leading tokens of `path` known already
  void replace_text(std::size_t offset, std::size_t agreed_bytes, const std::string &fresh,
                    const Encoder &encode);
  void drop_ids_behind(std::int64_t offset);
  void spell(std::size_t first, const Encoder &encode);
  void spell_run(std::int64_t begin, std::int64_t end, Token single, const Encoder &encode);

  std::shared_ptr<const VocabularyPair> pair_;
  std::string text_; // of the path, and behind it what was drafted
  std::vector<Token> path_;
  std::vector<std::int64_t> path_ends_; // where in text_ each token's bytes end
  TokenSequence ids_;                   // the opening, then what spells text_
  std::vector<std::int64_t> ends_;      // of ids_
  std::size_t frozen_ = 0;
};

// `text` without the beginning of a UTF-8 character at its end.
std::string_view whole_characters(std::string_view text);

} // namespace dsi
