// One run of Algorithm 1 with two drafters, as a picture.
#include <doctest/doctest.h>

#include <map>
#include <string>

#include "core/simulate_tree.h"

using namespace dsi;

namespace {

// One line per server, a character per 100 ns. A forward begins with the position it speaks of,
// counted from the first new token; it ends in '|' where it was of use, 'x' where it was stopped.
std::string picture(const TreeResult &result, Position prompt_tokens) {
  std::map<std::pair<int, int>, std::string> lines;
  for (const TreeSpan &span : result.spans) {
    std::string &line = lines[{span.drafter, span.server}];
    line.resize(static_cast<std::size_t>(span.start / 100), ' ');
    std::string text = std::to_string(span.position - prompt_tokens);
    text.resize(static_cast<std::size_t>((span.end - span.start) / 100), '.');
    text.back() = span.fate == Fate::kStopped ? 'x' : '|';
    line += text;
  }
  std::string all = "\n";
  for (const auto &[server, line] : lines) {
    all += server.first < 0 ? "target   " : "drafter" + std::to_string(server.first + 1) + " ";
    all += std::to_string(server.second) + " " + line + "\n";
  }
  return all + "end " + std::to_string(result.total / 100) + "\n";
}

} // namespace

TEST_CASE("tree, golden: where the fast drafter is wrong the slow one's draft lives") {
  TreeSimulation tree;
  tree.tokens = 4;
  tree.target = {1000, 1000};
  tree.drafters = {{300, 300}, {500, 500}};
  tree.right = {{true, false, true}, {true, true, false}};
  tree.record = true;
  const TreeResult result = simulate_tree(tree);
  // The path of the text exists at 0, 3, 8 (of drafter 2) and 11; target servers 0, 1, 3 and 0
  // judge it. Behind the wrong draft of 6 both drafters go on until 13, when it is found out.
  CHECK(picture(result, tree.prompt_tokens) == R"(
target   0 0........| 3........|
target   1    1........|3...x
target   2       2.....x
target   3         2........|
target   4          3..x
target   5            3x
drafter1 0 0.|1.|2.|
drafter1 1         2.|
drafter2 0 0...| 2...|
drafter2 1    1...|2...|
end 21
)");
  CHECK(result.metrics.drafters[0].accepted == 2);
  CHECK(result.metrics.drafters[1].accepted == 1);
}
