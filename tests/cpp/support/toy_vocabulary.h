// Vocabularies of a few tokens, encoded by the longest match.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/vocabulary.h"

namespace dsi::test {

inline TokenBytes table(const std::vector<std::string> &tokens) {
  TokenBytes bytes;
  bytes.offsets.push_back(0);
  for (const std::string &token : tokens) {
    bytes.blob += token;
    bytes.offsets.push_back(static_cast<std::int64_t>(bytes.blob.size()));
  }
  return bytes;
}

// Bytes that no token begins with are left out.
inline Spelling longest_match(const std::vector<std::string> &tokens, std::string_view text) {
  Spelling spelling;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t best = tokens.size();
    for (std::size_t id = 0; id < tokens.size(); ++id) {
      const std::string &token = tokens[id];
      if (!token.empty() && text.substr(at, token.size()) == token &&
          (best == tokens.size() || token.size() > tokens[best].size()))
        best = id;
    }
    if (best == tokens.size()) {
      ++at;
      continue;
    }
    at += tokens[best].size();
    spelling.ids.push_back(static_cast<Token>(best));
    spelling.ends.push_back(static_cast<std::int64_t>(at));
  }
  return spelling;
}

inline std::string text_of(const std::vector<std::string> &tokens, std::span<const Token> ids) {
  std::string text;
  for (const Token id : ids)
    text += tokens[static_cast<std::size_t>(id)];
  return text;
}

inline std::shared_ptr<VocabularyPair> pair_of(const std::vector<std::string> &target,
                                               const std::vector<std::string> &drafter) {
  auto pair = std::make_shared<VocabularyPair>();
  pair->target = table(target);
  pair->drafter = table(drafter);
  pair->target_control.resize(target.size());
  pair->target_opens.resize(target.size());
  pair->t2d.assign(target.size(), -1);
  for (std::size_t id = 0; id < drafter.size(); ++id) {
    const auto found = std::find(target.begin(), target.end(), drafter[id]);
    const bool common = found != target.end() && !drafter[id].empty();
    const auto same = static_cast<Token>(found - target.begin());
    pair->d2t.push_back(common ? same : -1);
    pair->noise_ids.push_back(common                ? same
                              : drafter[id].empty() ? -1
                                                    : static_cast<Token>(target.size() + id));
    if (common)
      pair->t2d[static_cast<std::size_t>(same)] = static_cast<Token>(id);
  }
  pair->sort_target();
  return pair;
}

} // namespace dsi::test
