// What the ids of one vocabulary, or of two, stand for. Built once, shared, read-only.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/types.h"

namespace dsi {

// id -> the bytes this token adds to the output.
struct TokenBytes {
  std::string blob;                  // all tokens' bytes, one after another
  std::vector<std::int64_t> offsets; // [V+1]; token id has blob[offsets[id], offsets[id+1])

  std::int64_t size() const { return static_cast<std::int64_t>(offsets.size()) - 1; } // V
  // Empty for ids outside the table.
  std::string_view of(Token id) const {
    if (id < 0 || static_cast<std::int64_t>(id) >= size())
      return {};
    const auto at = static_cast<std::size_t>(id);
    return std::string_view(blob).substr(static_cast<std::size_t>(offsets[at]),
                                         static_cast<std::size_t>(offsets[at + 1] - offsets[at]));
  }
};

// The target's vocabulary and a drafter's other one.
struct VocabularyPair {
  TokenBytes target;      // control tokens: the text that stands for them in a prompt
  TokenBytes drafter;     // control tokens: nothing
  std::vector<Token> t2d; // [target's V]; -1: the drafter has no such token
  std::vector<Token> d2t; // [drafter's V]; -1: the target has no such token
  // [drafter's V]: d2t where there is one, an id of its own behind the target's where the token
  // spells something, -1 where it does not. One array says which ids may be drafted as text, and
  // which noise each draws with.
  std::vector<Token> noise_ids;
  std::vector<bool> target_control; // [target's V]: never part of a longer text
  std::vector<bool> target_opens;   // [target's V]: a start-of-text token
  std::vector<Token> opening;       // what the drafter's own texts begin with

  std::vector<Token> target_sorted; // ids of the target by their bytes; see sort_target()

  void sort_target();
  // Whether a token of the target begins with `text` and is longer: more text may end in it.
  bool may_grow(std::string_view text) const;
  Token drafter_id(Token target_id) const { return look_up(t2d, target_id); }
  Token target_id(Token drafter_id) const { return look_up(d2t, drafter_id); }
  bool is_control(Token target_id) const { return flag(target_control, target_id); }
  bool opens(Token target_id) const { return flag(target_opens, target_id); }

private:
  static Token look_up(const std::vector<Token> &map, Token id) {
    return id >= 0 && static_cast<std::size_t>(id) < map.size() ? map[static_cast<std::size_t>(id)]
                                                                : -1;
  }
  static bool flag(const std::vector<bool> &flags, Token id) {
    return id >= 0 && static_cast<std::size_t>(id) < flags.size() &&
           flags[static_cast<std::size_t>(id)];
  }
};

// A piece of text in one vocabulary.
struct Spelling {
  std::vector<Token> ids;
  std::vector<std::int64_t> ends; // per id: where in the piece what it stands for ends
};

// Spells a piece from the middle of a text; may throw.
using Encoder = std::function<Spelling(std::string_view)>;

} // namespace dsi
