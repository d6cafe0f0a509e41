// A target and a drafter without weights: the next token is a hash of the whole prefix, so a row
// judged behind a wrong draft really says something else.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/latency.h"
#include "core/types.h"

namespace dsi::test {

inline std::uint64_t hash_of(std::uint64_t seed, std::span<const Token> prefix) {
  std::uint64_t hash = mix(seed);
  for (const Token token : prefix)
    hash = mix(hash ^ static_cast<std::uint64_t>(token));
  return hash;
}

struct ToyModel {
  std::uint64_t seed = 0;
  int vocab_size = 5;
  double acceptance = 0.7; // how often the draft is what the target says

  Token target(std::span<const Token> prefix) const {
    return static_cast<Token>(hash_of(seed, prefix) % static_cast<std::uint64_t>(vocab_size));
  }
  Token draft(std::span<const Token> prefix) const {
    const bool right = unit_interval(mix(hash_of(seed, prefix) + 1)) < acceptance;
    return right ? target(prefix) : (target(prefix) + 1) % vocab_size;
  }
  // What the target says behind `prefix`, `count` tokens of it.
  std::vector<Token> continuation(std::vector<Token> prefix, std::int64_t count) const {
    std::vector<Token> tokens;
    for (std::int64_t i = 0; i < count; ++i) {
      tokens.push_back(target(prefix));
      prefix.push_back(tokens.back());
    }
    return tokens;
  }
};

} // namespace dsi::test
