// One row: its law, its draws and the rule of acceptance, against the plain rule.
#include <doctest/doctest.h>

#include <numeric>

#include "kernels/row_law.h"
#include "support/effort.h"
#include "support/kernel_rows.h"

using namespace dsi;
using namespace dsi::plain;
using dsi::test::effort;

namespace {

constexpr std::uint64_t kSeed = 20'240'517;
const std::vector<std::int64_t> kSizes = {1,  2,     15,    16,    63,    64,
                                          65, 1'000, 4'095, 4'096, 4'097, 9'000};

std::vector<Edit> random_edits(std::mt19937 &random, std::int64_t size) {
  std::vector<Edit> edits;
  const std::size_t count = random() % 20;
  for (std::size_t i = 0; i < count; ++i) {
    const auto id = static_cast<Token>(random() % static_cast<std::uint32_t>(size + 2));
    const auto operation = static_cast<EditOperation>(random() % 3);
    edits.push_back({id, operation, 0.5F + static_cast<float>(random() % 8) / 4.0F});
    if (random() % 3 == 0)
      edits.push_back({id, EditOperation::kAdd, -2.0F}); // a second one behind it
  }
  return edits;
}

std::span<const Edit> listed(EditList &list, const std::vector<Edit> &edits) {
  list.clear();
  for (const Edit &edit : edits)
    list.add(edit.id, edit.operation, edit.value);
  return list.sorted();
}

// -1 for about a third of the ids, any larger ids for the others.
std::vector<std::int32_t> random_map(std::mt19937 &random, std::int64_t size) {
  std::vector<std::int32_t> map;
  std::int32_t next = 0;
  for (std::int64_t i = 0; i < size; ++i) {
    next += 1 + static_cast<std::int32_t>(random() % 3);
    map.push_back(random() % 3 == 0 ? -1 : next);
  }
  std::shuffle(map.begin(), map.end(), random);
  return map;
}

void check_same_law(RowLaw &law, const PlainLaw &plain, std::mt19937 &random) {
  CHECK(law.argmax() == plain.argmax);
  CHECK(law.lse() == doctest::Approx(plain.lse).epsilon(1e-6));
  for (int i = 0; i < 20; ++i) {
    const auto id = static_cast<Token>(random() % plain.p.size());
    CHECK(law.kept(id) == plain.kept(id));
    CHECK(law.probability(id) ==
          doctest::Approx(plain.p[static_cast<std::size_t>(id)]).epsilon(2e-5));
    if (plain.kept(id))
      CHECK(static_cast<double>(law.logprob(id)) ==
            doctest::Approx(std::log(plain.p[static_cast<std::size_t>(id)])).epsilon(2e-5));
    else
      CHECK(law.logprob(id) == -kInf);
  }
  const auto size = static_cast<Token>(plain.p.size());
  for (const Token outside : {-1, size, std::numeric_limits<Token>::max()})
    CHECK(law.probability(outside) == 0.0);
}

} // namespace

TEST_CASE(
    "kernels: rows of any width, format, temperature, cut, edits and map have the plain law") {
  std::mt19937 random(11);
  RowLaw law;
  EditList list;
  int compared = 0;
  for (int run = 0; run < effort(300); ++run) {
    const std::int64_t size = kSizes[static_cast<std::size_t>(run) % kSizes.size()];
    const auto dtype = static_cast<Dtype>(run % 3);
    const float spread = run % 5 == 0 ? 0.5F : 4.0F;
    Stored stored(random_row(random, size, spread, run % 4 == 0 ? 0.2 : 0.0), dtype);
    const std::vector<Edit> edits = run % 2 == 0 ? random_edits(random, size) : std::vector<Edit>{};
    const std::vector<std::int32_t> map = random_map(random, size);
    stored.row.temperature = std::vector<float>{0.0F, 0.3F, 1.0F, 2.5F}[random() % 4];
    stored.row.cut = run % 3 == 0 ? 0.25F : -kInf;
    stored.row.edits = listed(list, edits);
    stored.row.map = run % 7 < 2 ? map.data() : nullptr;
    CAPTURE(run);
    const PlainLaw plain =
        law_of(stored.wide, edits, stored.row.temperature, stored.row.cut, stored.row.map);
    REQUIRE(law.prepare(stored.row, run % 2 == 0) == plain.status);
    if ((plain.status & kRowEmpty) != 0)
      continue;
    check_same_law(law, plain, random);
    for (Position at = 0; at < 4; ++at) {
      const Noise noise{kSeed, (Position{3} << 31U) + at, static_cast<std::uint32_t>(at)};
      const Drawn drawn = plain.draw(noise);
      if (drawn.margin < kClose)
        continue;
      CHECK(law.draw(noise) == drawn.token);
      ++compared;
    }
  }
  CHECK(compared > effort(300) * 3);
}

TEST_CASE("kernels: what is known of a row judges drafts like the row itself") {
  // The drafter's law once from its row, once from the edited copy, the cut and the lse.
  std::mt19937 random(12);
  RowLaw target, draft, later;
  EditList list;
  int accepted = 0, rejected = 0;
  for (int run = 0; run < effort(200); ++run) {
    const std::int64_t size = kSizes[static_cast<std::size_t>(run) % kSizes.size()];
    const std::vector<float> x = random_row(random, size, 2.0F);
    std::vector<float> y = x;
    for (float &value : y)
      value += static_cast<float>(random() % 64) / 64.0F - 0.5F;
    const Stored p(x, Dtype::kF32);
    Stored q(y, Dtype::kF32);
    const std::vector<Edit> edits = random_edits(random, size);
    q.row.edits = listed(list, edits);
    q.row.temperature = 0.8F;
    q.row.cut = run % 2 == 0 ? 0.5F : -kInf;
    const PlainLaw plain_p = law_of(x, {}, 1.0F, -kInf);
    const PlainLaw plain_q = law_of(y, edits, 0.8F, q.row.cut);
    if (((target.prepare(p.row, true) | draft.prepare(q.row, true)) & kRowEmpty) != 0)
      continue;
    std::vector<float> copy;
    draft.copy_edited(copy);
    Row known = q.row;
    known.data = copy.data();
    known.edits = {};
    REQUIRE(later.assume(known, static_cast<float>(draft.lse())) == 0);
    for (Position at = 0; at < 4; ++at) {
      CAPTURE(run);
      const Token token = draft.draw({kSeed, at, kDraftNoise});
      const PlainJudgement plain =
          judge(plain_p, token, plain_q.p[static_cast<std::size_t>(token)], plain_q.p, kSeed, at);
      if (plain.margin < kClose)
        continue;
      for (RowLaw *law : {&draft, &later}) {
        const Judgement judgement = target.judge({token, law, token}, kSeed, at);
        CHECK(judgement.token == plain.token);
        CHECK(judgement.accepted == plain.accepted);
        CHECK(judgement.status == plain.status);
      }
      ++(plain.accepted ? accepted : rejected);
    }
  }
  CHECK(accepted > effort(200));
  CHECK(rejected > effort(100));
}

TEST_CASE("kernels: point masses are kept with p, else the token is another one") {
  std::mt19937 random(13);
  RowLaw law;
  for (const std::int64_t size : {2, 64, 5'000}) {
    const Stored stored(random_row(random, size, 2.0F), Dtype::kF32);
    const PlainLaw plain = law_of(stored.wide, {}, 1.0F, -kInf);
    law.prepare(stored.row, true);
    for (Position at = 0; at < 20; ++at) {
      const Token token = at % 2 == 0 ? law.argmax() : static_cast<Token>(at % size);
      std::vector<double> q(plain.p.size(), 0.0);
      q[static_cast<std::size_t>(token)] = 1.0;
      const PlainJudgement expected = judge(plain, token, 1.0, q, kSeed, at);
      if (expected.margin < kClose)
        continue;
      const Judgement judgement = law.judge({token}, kSeed, at);
      CHECK(judgement.token == expected.token);
      CHECK(judgement.accepted == expected.accepted);
      CHECK((judgement.accepted || judgement.token != token));
    }
    // Of no vocabulary: a draw from p.
    for (const Token token : {-1, static_cast<Token>(size)}) {
      const Judgement judgement = law.judge({token}, kSeed, 5);
      CHECK(judgement.token == law.draw({kSeed, 5, kResidual}));
      CHECK(judgement.status == kDraftImpossible);
    }
  }
}

TEST_CASE("kernels: a drafter that equals the target is never rejected") {
  std::mt19937 random(14);
  const Stored stored(random_row(random, 9'000, 3.0F), Dtype::kF32);
  RowLaw target, draft;
  target.prepare(stored.row, true);
  draft.prepare(stored.row, true);
  for (Position at = 0; at < effort(2'000); ++at) {
    const Token token = draft.draw({kSeed, at, kDraftNoise});
    REQUIRE(target.judge({token, &draft, token}, kSeed, at).accepted);
  }
}

TEST_CASE("kernels: one survivor always wins, and nothing else is ever drawn") {
  RowLaw law;
  for (const std::int64_t size : kSizes) {
    std::vector<float> row(static_cast<std::size_t>(size), -kInf);
    const auto survivor = static_cast<std::size_t>(size - 1) / 2;
    row[survivor] = -20.0F;
    const Stored stored(row, Dtype::kBf16);
    REQUIRE(law.prepare(stored.row, false) == 0);
    for (Position at = 0; at < 50; ++at)
      REQUIRE(law.draw({kSeed, at, kResidual}) == static_cast<Token>(survivor));
    CHECK(law.probability(static_cast<Token>(survivor)) == 1.0);
  }
}
