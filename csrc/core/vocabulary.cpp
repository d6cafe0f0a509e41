#include "core/vocabulary.h"

#include <algorithm>

namespace dsi {

void VocabularyPair::sort_target() {
  target_sorted.clear();
  for (Token id = 0; id < static_cast<Token>(target.size()); ++id) {
    if (!is_control(id) && !target.of(id).empty())
      target_sorted.push_back(id);
  }
  std::sort(target_sorted.begin(), target_sorted.end(),
            [this](Token a, Token b) { return target.of(a) < target.of(b); });
}

bool VocabularyPair::may_grow(std::string_view text) const {
  // Whatever begins with the text follows it in order without a gap.
  const auto next = std::upper_bound(
      target_sorted.begin(), target_sorted.end(), text,
      [this](std::string_view wanted, Token id) { return wanted < target.of(id); });
  return next != target_sorted.end() && target.of(*next).substr(0, text.size()) == text;
}

} // namespace dsi
