// HashLaws with several drafters behind the virtual clock of trees, judged and drafted by the Judge
// that serves real models.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "core/simulate_tree.h"
#include "hash_laws.h"

namespace dsi::test {

class LawTree final : public TreeModel {
public:
  // `differences`: of each drafter's logits from the target's.
  LawTree(const HashLaws &laws, std::vector<double> differences, SamplingParams sampling,
          Position prompt_tokens)
      : laws_(laws), differences_(std::move(differences)) {
    auto context = std::make_shared<RequestContext>();
    context->prompt_tokens = prompt_tokens;
    context->sampling = std::move(sampling);
    job_.request = std::move(context);
  }

  Token draft(int drafter, std::span<const Token> path) override {
    fill(path);
    const auto j = static_cast<std::size_t>(drafter);
    const auto size = static_cast<std::size_t>(laws_.vocab_size);
    const HashLaws noise{laws_.seed + 1000 * (j + 1), laws_.vocab_size, differences_[j], 0.0};
    std::vector<float> row(size), difference(size);
    laws_.target_row(path, row.data());
    noise.target_row(path, difference.data());
    for (std::size_t id = 0; id < size; ++id)
      row[id] += difference[id];
    return judge_.draft(job_, row, nullptr).drafts.front().id;
  }

  JudgedRow judge(std::span<const Token> path) override {
    fill(path);
    return judge_rows(judge_, job_, laws_).rows.front();
  }

private:
  void fill(std::span<const Token> path) {
    job_.tokens = path;
    job_.length = job_.first = static_cast<Position>(path.size());
  }

  HashLaws laws_;
  std::vector<double> differences_;
  Job job_;
  Judge judge_;
};

} // namespace dsi::test
