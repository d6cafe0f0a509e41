// A simulated schedule as text: one line per server, `width` characters per unit of time.
#pragma once

#include <algorithm>
#include <map>
#include <string>

#include "core/simulate.h"

namespace dsi::test {

// A verify reads first+window, a draft its position, a prefill "pre"; positions count from the
// first new token. A span ends in '|' where it was used, 'x' where it was stopped, '~' where it was
// wasted.
inline std::string timeline(const SimulationResult &result, Position prompt_tokens, Nanos unit,
                            int width = 4) {
  std::map<int, std::string> lines;
  for (const SpanRecord &span : result.record.spans) {
    if (span.fate == Fate::kUnfinished)
      continue;
    std::string &line = lines[span.server];
    const auto column = [&](Nanos time) { return static_cast<std::size_t>(time * width / unit); };
    line.resize(std::max(line.size(), column(span.start)), ' ');
    std::string text = span.kind == 'p' ? "pre" : std::to_string(span.first - prompt_tokens);
    if (span.kind == 'v')
      text.append("+").append(std::to_string(span.window));
    text.resize(column(span.end) - column(span.start), '.');
    if (!text.empty())
      text.back() = span.fate == Fate::kUsed ? '|' : span.fate == Fate::kStopped ? 'x' : '~';
    line += text;
  }
  std::string all = "\n";
  for (const auto &[server, line] : lines) {
    all.append(server < 0 ? "draft" : "target").append(server < 0 ? "er" : std::to_string(server));
    all.append(" ").append(line).append("\n");
  }
  return all.append("end ").append(std::to_string(result.total / unit)).append("\n");
}

} // namespace dsi::test
