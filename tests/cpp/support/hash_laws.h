// A target and a drafter with real laws: the logits of a row are a hash of the whole prefix. Judged
// and drafted by the very Judge that serves real models.
#pragma once

#include <cmath>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "core/simulate.h"
#include "runtime/judge.h"
#include "toy_model.h"

namespace dsi::test {

struct HashLaws {
  std::uint64_t seed = 0;
  int vocab_size = 5;
  double spread = 1.5;     // of the target's logits
  double difference = 1.0; // of the drafter's from them

  void target_row(std::span<const Token> prefix, float *row) const {
    const std::uint64_t hash = hash_of(seed, prefix);
    for (int id = 0; id < vocab_size; ++id)
      row[id] = static_cast<float>(spread * noise(hash, id));
  }
  void drafter_row(std::span<const Token> prefix, float *row) const {
    target_row(prefix, row);
    const std::uint64_t hash = hash_of(seed + 1, prefix);
    for (int id = 0; id < vocab_size; ++id)
      row[id] += static_cast<float>(difference * noise(hash, id));
  }
  // Rows for positions first..path.size().
  std::vector<float> target_rows(std::span<const Token> path, Position first) const {
    const auto start = static_cast<std::size_t>(first);
    std::vector<float> logits((path.size() - start + 1) * static_cast<std::size_t>(vocab_size));
    for (std::size_t end = start; end <= path.size(); ++end)
      target_row(path.first(end),
                 logits.data() + (end - start) * static_cast<std::size_t>(vocab_size));
    return logits;
  }

private:
  static double noise(std::uint64_t hash, int id) {
    return 2.0 * unit_interval(mix(hash + 977 * static_cast<std::uint64_t>(id))) - 1.0;
  }
};

inline Outcome judge_rows(Judge &judge, const Job &job, const HashLaws &laws,
                          RowHook *hook = nullptr) {
  const std::vector<float> logits = laws.target_rows(job.tokens, job.first);
  return judge.verify(job, {logits.data(), job.length - job.first + 1, laws.vocab_size}, hook);
}

inline Draft draft_row(Judge &judge, const Job &job, const HashLaws &laws) {
  std::vector<float> row(static_cast<std::size_t>(laws.vocab_size));
  laws.drafter_row(job.tokens, row.data());
  return judge.draft(job, row, nullptr).drafts.front();
}

// The same models behind the virtual clock.
class LawModel final : public VirtualModel {
public:
  LawModel(HashLaws laws, SamplingParams sampling, Position prompt_tokens) : laws_(laws) {
    auto context = std::make_shared<RequestContext>();
    context->prompt_tokens = prompt_tokens;
    context->sampling = std::move(sampling);
    context_ = std::move(context);
  }
  // What the drafter claims its draft was drawn from; the truth where not set.
  std::function<std::shared_ptr<const DraftLaw>(const Draft &)> claim;

  Draft draft(std::span<const Token> path) override {
    Draft draft = draft_row(judge_, job_of(path), laws_);
    if (claim)
      draft.law = claim(draft);
    return draft;
  }

  std::vector<JudgedRow> judge(std::span<const Token> path, Position first, const Draft *frontier,
                               const Session & /*session*/) override {
    Job job;
    fill(job, path);
    job.first = first;
    if (context_->sampling.verification == Verification::kRejection) {
      for (auto at = static_cast<std::size_t>(first); at < path.size(); ++at)
        job.laws.push_back(draft(path.first(at)).law); // a draft's law follows from its prefix
    }
    if (frontier != nullptr)
      job.frontier = [frontier] { return std::optional<Draft>(*frontier); };
    return judge_rows(judge_, job, laws_).rows;
  }

private:
  void fill(Job &job, std::span<const Token> path) const {
    job.request = context_;
    job.tokens = path;
    job.length = static_cast<Position>(path.size());
  }
  const Job &job_of(std::span<const Token> path) {
    fill(drafting_, path);
    return drafting_;
  }

  HashLaws laws_;
  std::shared_ptr<const RequestContext> context_;
  Judge judge_;
  Job drafting_;
};

} // namespace dsi::test
