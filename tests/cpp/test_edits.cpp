// The edits of a row, rule by rule; random rows are compared in test_acceptance.cpp.
#include <doctest/doctest.h>

#include <vector>

#include "core/sampling.h"

using namespace dsi;

TEST_CASE("edits: each rule on numbers done by hand, in the order bias, penalties") {
  SamplingParams params;
  params.logit_bias = {{0, -3.0F}, {0, 1.0F}, {99, 1.0F}, {-1, 1.0F}};
  params.repetition_penalty = 2.0F;
  params.frequency_penalty = 0.25F;
  params.presence_penalty = 0.5F;
  const std::vector<Token> path = {0, 1, /* generated: */ 1, 2, 2, 77, -1};
  const RowEdits edits(params, path, 2);
  std::vector<float> row = {1.0F, 4.0F, -1.0F, 5.0F};
  edits.apply(row);
  CHECK(row[0] == -2.0F); // 1 - 3 + 1 = -1, then times 2; only in the prompt
  CHECK(row[1] == 1.25F); // 4 / 2, then - 0.25 - 0.5
  CHECK(row[2] == -3.0F); // -1 * 2, then - 2 * 0.25 - 0.5
  CHECK(row[3] == 5.0F);
}

TEST_CASE("min tokens: stop ids are impossible up to the row that would be one too early") {
  SamplingParams params;
  params.min_new_tokens = 2;
  params.stop_ids = {1, 50, -1};
  const std::vector<Token> prompt = {3, 3, 3};
  RowEdits edits(params, prompt, 3);
  const auto allowed = [&] {
    std::vector<float> row(4, 0.0F);
    edits.apply(row);
    return row[1] == 0.0F;
  };
  CHECK_FALSE(allowed());
  edits.push(0);
  CHECK_FALSE(allowed());
  edits.push(0);
  CHECK(allowed());
}
