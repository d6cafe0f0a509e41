// Preparing a row: status, temperature, cuts, log-probabilities.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "support/laws.h"

using namespace dsi;
using namespace dsi::laws;

namespace {

const float kNaN = std::nanf("");

std::vector<Token> kept_ids(Law &law) {
  std::vector<Token> ids;
  for (Token id = -2; id < static_cast<Token>(law.size()) + 2; ++id) {
    if (law.kept(id))
      ids.push_back(id);
  }
  return ids;
}

RowStatus status_of(const std::vector<float> &row, const SamplingParams &params = {}) {
  const RowEdits edits(params, {}, 0);
  Law law;
  return law.prepare(row, &edits, params);
}

// The second implementation: everything recounted and sorted for each row, in double where it can
// be.
void edit_plainly(std::vector<float> &row, const SamplingParams &params,
                  const std::vector<Token> &path, std::size_t prompt_tokens) {
  const auto vocabulary = static_cast<Token>(row.size());
  for (const auto &[id, bias] : params.logit_bias) {
    if (id >= 0 && id < vocabulary)
      row[static_cast<std::size_t>(id)] += bias;
  }
  const std::set<Token> seen(path.begin(), path.end());
  for (Token id = 0; id < vocabulary; ++id) {
    float &logit = row[static_cast<std::size_t>(id)];
    if (seen.count(id) == 1)
      logit = logit > 0 ? logit / params.repetition_penalty : logit * params.repetition_penalty;
    const auto generated =
        path.begin() + static_cast<std::ptrdiff_t>(std::min(prompt_tokens, path.size()));
    const auto count = static_cast<float>(std::count(generated, path.end(), id));
    logit -= params.frequency_penalty * count;
    logit -= count > 0 ? params.presence_penalty : 0.0F;
  }
  if (static_cast<std::int64_t>(path.size()) - static_cast<std::int64_t>(prompt_tokens) <
      params.min_new_tokens) {
    for (const Token id : params.stop_ids) {
      if (id >= 0 && id < vocabulary)
        row[static_cast<std::size_t>(id)] = -kInf;
    }
  }
}

struct PlainLaw {
  std::vector<Token> order; // best first, lowest id first among equals; kept ids only
  std::map<Token, double> logprob;
};

PlainLaw cut_plainly(std::vector<float> row, const SamplingParams &params) {
  for (float &z : row)
    z /= params.temperature;
  std::vector<Token> order;
  for (std::size_t i = 0; i < row.size(); ++i) {
    if (row[i] > -kInf)
      order.push_back(static_cast<Token>(i));
  }
  const auto z = [&](Token id) { return static_cast<double>(row[static_cast<std::size_t>(id)]); };
  std::stable_sort(order.begin(), order.end(), [&](Token a, Token b) { return z(a) > z(b); });
  const auto drop_below = [&](double threshold) {
    std::erase_if(order, [&](Token id) { return z(id) < threshold; });
  };
  const double best = z(order[0]);
  const auto mass = [&] {
    double total = 0.0;
    for (const Token id : order)
      total += std::exp(z(id) - best);
    return total;
  };
  if (params.top_k > 0 && static_cast<std::size_t>(params.top_k) < order.size())
    drop_below(z(order[static_cast<std::size_t>(params.top_k) - 1]));
  if (params.top_p < 1.0F) {
    const double total = mass();
    double reached = 0.0;
    std::size_t i = 0;
    while (i + 1 < order.size() &&
           (reached += std::exp(z(order[i]) - best)) < static_cast<double>(params.top_p) * total)
      ++i;
    drop_below(z(order[i]));
  }
  if (params.min_p > 0.0F)
    std::erase_if(order, [&](Token id) {
      return std::exp(z(id) - best) < static_cast<double>(params.min_p);
    });
  PlainLaw law;
  law.order = order;
  const double total = mass();
  for (const Token id : order)
    law.logprob[id] = z(id) - best - std::log(total);
  return law;
}

} // namespace

TEST_CASE("status: NaN, +inf and nothing left, wherever they are") {
  for (std::size_t size = 1; size <= 40; ++size) {
    for (std::size_t at = 0; at < size; ++at) {
      std::vector<float> row(size, -kInf);
      row[at] = kNaN;
      REQUIRE(status_of(row) == RowStatus::kNaN);
      row[at] = kInf;
      REQUIRE(status_of(row) == RowStatus::kInfinite);
      row[size - 1 - at] = -kNaN;
      REQUIRE(status_of(row) == RowStatus::kNaN);
      row.assign(size, -kInf);
      row[at] = -3.0F;
      REQUIRE(status_of(row) == RowStatus::kOk);
    }
    REQUIRE(status_of(std::vector<float>(size, -kInf)) == RowStatus::kNothingLeft);
    REQUIRE(status_of(std::vector<float>(size, kNaN)) == RowStatus::kNaN);
    REQUIRE(status_of(std::vector<float>(size, kNaN), at_temperature(1.0F)) == RowStatus::kNaN);
  }
  CHECK(status_of({}) == RowStatus::kNothingLeft);
  for (const RowStatus status :
       {RowStatus::kOk, RowStatus::kNaN, RowStatus::kNothingLeft, RowStatus::kInfinite})
    CHECK(std::string(describe(status)).size() > 10);
}

TEST_CASE("status: edits that leave nothing, or make NaN, are seen") {
  SamplingParams params;
  params.min_new_tokens = 1;
  params.stop_ids = {0, 1};
  CHECK(status_of({1.0F, 2.0F}, params) == RowStatus::kNothingLeft);
  CHECK(status_of({1.0F, 2.0F, 3.0F}, params) == RowStatus::kOk);
  CHECK(status_of({kNaN, 2.0F, 3.0F}, params) == RowStatus::kNaN); // not hidden by the ban
  SamplingParams bias;
  bias.logit_bias = {{0, kInf}};
  CHECK(status_of({1.0F, 2.0F}, bias) == RowStatus::kInfinite);
  CHECK(status_of({-kInf, 2.0F}, bias) == RowStatus::kNaN);
  bias.logit_bias = {{0, -kInf}};
  CHECK(status_of({1.0F, 2.0F}, bias) == RowStatus::kOk);
}

TEST_CASE("a law recovers after a row that could not be prepared") {
  Law law;
  std::vector<float> room;
  CHECK(law.prepare(room = {0.0F, kNaN}, nullptr, at_temperature(1.0F)) == RowStatus::kNaN);
  CHECK(law.prepare(room = {0.0F, 0.0F, 0.0F}, nullptr, at_temperature(1.0F)) == RowStatus::kOk);
  CHECK(law.logprob(2) == doctest::Approx(-std::log(3.0)));
  CHECK(law.prepare(room = {0.0F, 0.0F}, nullptr, at_temperature(1.0F)) == RowStatus::kOk);
  CHECK(law.logprob(1) == doctest::Approx(-std::log(2.0)));
  CHECK_FALSE(law.kept(2));
}

TEST_CASE("greedy: the lowest id among equals, whatever the cuts say") {
  std::vector<float> row(100, -1.0F);
  row[99] = row[37] = row[70] = 4.0F;
  for (const float temperature : {0.0F, 1e-6F, 9.9e-6F}) {
    SamplingParams params = at_temperature(temperature);
    params.top_k = 1;
    params.top_p = 0.01F;
    params.min_p = 0.9F;
    Law law;
    REQUIRE(law.prepare(row, nullptr, params) == RowStatus::kOk);
    CHECK(law.greedy());
    CHECK(law.argmax() == 37);
    CHECK(law.draw_coupled(1, 2) == 37);
    CHECK(law.draw(1, 2, 1) == 37);
    CHECK(kept_ids(law).size() == 100);
    const double lse = std::log(3 * std::exp(4.0) + 97 * std::exp(-1.0));
    CHECK(law.logprob(70) == doctest::Approx(4.0 - lse)); // temperature 1, no cut
    const std::vector<float> one_hot = probabilities_of(law);
    CHECK(one_hot[37] == 1.0F);
    CHECK(std::count(one_hot.begin(), one_hot.end(), 0.0F) == 99);
  }
  Law warm;
  REQUIRE(warm.prepare(row, nullptr, at_temperature(1e-5F)) == RowStatus::kOk);
  CHECK_FALSE(warm.greedy());
}

TEST_CASE("temperature: finite logits stay finite, -inf stays out") {
  Law law;
  const std::vector<float> row = {3e38F, -3e38F, -kInf, 3.1e38F};
  REQUIRE(law.prepare(row, nullptr, at_temperature(1e-4F)) == RowStatus::kOk);
  CHECK(kept_ids(law) == std::vector<Token>{0, 1, 3});
  CHECK(law.argmax() == 0); // both at the clamp
  const std::vector<float> p = probabilities_of(law);
  CHECK(p == std::vector<float>{0.5F, 0.0F, 0.0F, 0.5F});
}

TEST_CASE("cuts: ties at the threshold stay") {
  Law law;
  const std::vector<float> row = {1.0F, 3.0F, 2.0F, 2.0F, 0.0F, 2.0F};
  SamplingParams params = at_temperature(1.0F);
  params.top_k = 2;
  REQUIRE(law.prepare(row, nullptr, params) == RowStatus::kOk);
  CHECK(kept_ids(law) == std::vector<Token>{1, 2, 3, 5});
  params.top_k = 1;
  REQUIRE(law.prepare(row, nullptr, params) == RowStatus::kOk);
  CHECK(kept_ids(law) == std::vector<Token>{1});
  CHECK(law.logprob(1) == 0.0F);
  CHECK(law.logprob(2) == -kInf);
  CHECK(law.logprob(-1) == -kInf);
  CHECK(law.logprob(6) == -kInf);
  params.top_k = 0;
  params.top_p =
      0.5F; // e^3 holds 0.437 of the mass, so a second one is needed, and its equals stay
  REQUIRE(law.prepare(row, nullptr, params) == RowStatus::kOk);
  CHECK(kept_ids(law) == std::vector<Token>{1, 2, 3, 5});
}

TEST_CASE("top-p: the smallest set that reaches the mass, after top-k and renormalised") {
  std::vector<float> row;
  for (const double p : {0.4, 0.3, 0.2, 0.1})
    row.push_back(static_cast<float>(std::log(p)));
  const auto kept_with = [&](std::int32_t top_k, float top_p) {
    SamplingParams params = at_temperature(1.0F);
    params.top_k = top_k;
    params.top_p = top_p;
    Law law;
    REQUIRE(law.prepare(row, nullptr, params) == RowStatus::kOk);
    return kept_ids(law).size();
  };
  CHECK(kept_with(0, 0.39F) == 1);
  CHECK(kept_with(0, 0.41F) == 2);
  CHECK(kept_with(0, 0.69F) == 2);
  CHECK(kept_with(0, 0.71F) == 3);
  CHECK(kept_with(0, 0.99F) == 4);
  CHECK(kept_with(0, 1.0F) == 4);
  CHECK(kept_with(0, 0.0F) == 1);
  CHECK(kept_with(2, 0.56F) == 1); // 0.4 of 0.7 is 0.571
  CHECK(kept_with(2, 0.58F) == 2);
  CHECK(kept_with(4, 0.71F) == 3); // a top-k as wide as the row is off
}

TEST_CASE("top-k: exactly k ids near the best one, the rest far below") {
  std::vector<float> row(50, -30.0F);
  row[7] = row[20] = row[41] = 1.0F;
  SamplingParams params = at_temperature(1.0F);
  for (const std::int32_t k : {2, 3, 4}) {
    params.top_k = k;
    Law law;
    REQUIRE(law.prepare(row, nullptr, params) == RowStatus::kOk);
    CHECK(kept_ids(law).size() == (k == 4 ? 50 : 3));
  }
}

TEST_CASE("min-p is relative to the most likely id") {
  SamplingParams params = at_temperature(1.0F);
  std::vector<float> row;
  for (const double p : {0.05, 0.5, 0.25, 0.2})
    row.push_back(static_cast<float>(std::log(p)));
  Law law;
  params.min_p = 0.45F;
  REQUIRE(law.prepare(row, nullptr, params) == RowStatus::kOk);
  CHECK(kept_ids(law) == std::vector<Token>{1, 2});
  params.min_p = 0.39F;
  REQUIRE(law.prepare(row, nullptr, params) == RowStatus::kOk);
  CHECK(kept_ids(law) == std::vector<Token>{1, 2, 3});
  params.min_p = 1.0F;
  REQUIRE(law.prepare(row, nullptr, params) == RowStatus::kOk);
  CHECK(kept_ids(law) == std::vector<Token>{1});
}

TEST_CASE("edits and cuts agree with the second implementation on random rows") {
  std::mt19937 random(11);
  const auto uniform = [&](float low, float high) {
    return std::uniform_real_distribution<float>(low, high)(random);
  };
  const auto coin = [&] { return random() % 2 == 0; };
  Law law;
  for (int run = 0; run < 1500; ++run) {
    const std::size_t size = 1 + random() % (run % 50 == 0 ? 6000 : 80);
    SamplingParams params = at_temperature(uniform(0.2F, 2.5F));
    params.top_k = coin() ? static_cast<std::int32_t>(random() % (size + 2)) : 0;
    params.top_p = coin() ? uniform(0.01F, 1.0F) : 1.0F;
    params.min_p = coin() ? uniform(0.0F, 0.5F) : 0.0F;
    params.repetition_penalty = coin() ? uniform(0.5F, 2.0F) : 1.0F;
    params.presence_penalty = coin() ? uniform(-1.0F, 2.0F) : 0.0F;
    params.frequency_penalty = coin() ? uniform(-1.0F, 2.0F) : 0.0F;
    params.min_new_tokens = static_cast<std::int32_t>(random() % 6);
    for (std::size_t i = 0; i < random() % 4; ++i) {
      params.logit_bias.emplace_back(static_cast<Token>(random() % (size + 3)) - 1,
                                     uniform(-9.0F, 9.0F));
      params.stop_ids.push_back(static_cast<Token>(random() % (size + 3)) - 1);
    }
    std::vector<float> row(size);
    const bool steps = coin(); // many equals
    for (float &x : row)
      x = steps ? 0.5F * std::round(uniform(-12.0F, 12.0F)) : uniform(-12.0F, 12.0F);
    row[random() % size] = coin() ? -kInf : 0.0F;

    std::vector<Token> path(random() % 12);
    for (Token &token : path)
      token = static_cast<Token>(random() % std::min<std::size_t>(size + 1, 10));
    const std::size_t prompt_tokens = std::min<std::size_t>(path.size(), random() % 8);
    // The first part when the edits are built, the rest pushed: drafts count as the path does.
    const std::size_t built = prompt_tokens + random() % (path.size() - prompt_tokens + 1);
    RowEdits edits(params, std::span(path).first(built), static_cast<Position>(prompt_tokens));
    for (std::size_t i = built; i < path.size(); ++i)
      edits.push(path[i]);

    std::vector<float> expected = row;
    edit_plainly(expected, params, path, prompt_tokens);
    std::vector<float> edited = row;
    edits.apply(edited);
    REQUIRE(edited == expected);

    const bool possible =
        std::any_of(expected.begin(), expected.end(), [](float x) { return x > -kInf; });
    const RowStatus status = law.prepare(row, &edits, params);
    REQUIRE(status == (possible ? RowStatus::kOk : RowStatus::kNothingLeft));
    if (!possible)
      continue;
    const PlainLaw plain = cut_plainly(expected, params);
    const auto top = law.top(static_cast<std::int32_t>(size));
    REQUIRE(top.size() == plain.order.size());
    const std::vector<float> p = probabilities_of(law);
    double total = 0.0;
    for (std::size_t i = 0; i < top.size(); ++i) {
      const auto [id, logprob] = top[i];
      REQUIRE(id == plain.order[i]);
      REQUIRE(law.kept(id));
      REQUIRE(logprob == doctest::Approx(plain.logprob.at(id)).epsilon(1e-5));
      REQUIRE(p[static_cast<std::size_t>(id)] ==
              doctest::Approx(std::exp(plain.logprob.at(id))).epsilon(1e-5));
    }
    for (const float mass : p)
      total += static_cast<double>(mass);
    REQUIRE(total == doctest::Approx(1.0).epsilon(1e-5));
    REQUIRE(kept_ids(law).size() == top.size());
    REQUIRE(law.argmax() == plain.order[0]);
  }
}

TEST_CASE("top: as many as asked for, best first, lowest id first among equals") {
  Law law;
  std::vector<float> row(300, -40.0F);
  row[250] = 2.0F;
  row[8] = row[200] = row[9] = 1.0F;
  REQUIRE(law.prepare(row, nullptr, at_temperature(1.0F)) == RowStatus::kOk);
  CHECK(law.top(0).empty());
  CHECK(law.top(-1).empty());
  const auto three = law.top(3);
  REQUIRE(three.size() == 3);
  CHECK(three[0].first == 250);
  CHECK(three[1].first == 8);
  CHECK(three[2].first == 9);
  const auto six = law.top(6); // reaches into the far ones
  REQUIRE(six.size() == 6);
  CHECK(six[4].first == 0);
  CHECK(six[5].first == 1);
  CHECK(law.top(1000).size() == 300);
}
