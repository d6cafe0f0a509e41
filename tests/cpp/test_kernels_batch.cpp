// Many rows in one call: what is read, in which order it does not matter, and what is never read.
#include <doctest/doctest.h>

#include <sys/mman.h>

#include "kernels/sample.h"
#include "kernels/verify.h"
#include "support/kernel_rows.h"

using namespace dsi;
using namespace dsi::plain;

namespace {

// B requests with K drafts over V ids, the arrays of a call, and what came out.
struct Call {
  std::int64_t requests, drafts, width;
  std::vector<float> target, draft;
  std::vector<std::int32_t> ids, num_draft;
  std::vector<std::uint64_t> seed;
  std::vector<std::int64_t> position;
  std::vector<float> temperature;
  VerifyInput in;
  std::vector<std::int32_t> tokens, num_accepted, status;
  std::vector<float> logprob, lse;

  Call(std::int64_t b, std::int64_t k, std::int64_t v, unsigned number)
      : requests(b), drafts(k), width(v) {
    std::mt19937 random(number);
    target = random_row(random, b * (k + 1) * v, 2.0F);
    draft = random_row(random, b * k * v, 2.0F);
    for (std::int64_t i = 0; i < b * k; ++i) {
      const std::int64_t row =
          i / std::max<std::int64_t>(k, 1) * (k + 1) + i % std::max<std::int64_t>(k, 1);
      for (std::int64_t id = 0; id < v; ++id) // near each other, so that drafts are often accepted
        draft[static_cast<std::size_t>(i * v + id)] =
            target[static_cast<std::size_t>(row * v + id)] +
            0.2F * draft[static_cast<std::size_t>(i * v + id)];
    }
    ids.resize(static_cast<std::size_t>(b * k));
    for (std::int64_t request = 0; request < b; ++request) {
      seed.push_back(random());
      position.push_back(static_cast<std::int64_t>(random()));
      temperature.push_back(request % 3 == 2 ? 0.0F : 1.0F);
      num_draft.push_back(static_cast<std::int32_t>(random() % static_cast<unsigned>(k + 1)));
    }
  }

  // The drafts that the drafter's own sampler gives.
  void propose(Workspace &workspace, bool rejection) {
    std::vector<float> lses(ids.size()), cuts(ids.size());
    std::vector<std::int32_t> states(ids.size());
    std::vector<std::uint64_t> seeds;
    std::vector<std::int64_t> positions;
    for (std::int64_t i = 0; i < requests * drafts; ++i) {
      seeds.push_back(seed[static_cast<std::size_t>(i / drafts)]);
      positions.push_back(position[static_cast<std::size_t>(i / drafts)] + i % drafts);
    }
    SampleInput sampling;
    sampling.rows = requests * drafts;
    sampling.logits = {draft.data(), Dtype::kF32, width};
    sampling.seed = seeds.data();
    sampling.position = positions.data();
    sampling.tag = rejection ? 1 : 0;
    sample(sampling, {ids.data(), lses.data(), cuts.data(), states.data()}, workspace, 1);
  }

  void run(Workspace &workspace, bool rejection, int threads = 1) {
    in.requests = requests;
    in.drafts = drafts;
    in.rejection = rejection;
    in.with_logprobs = true;
    if (in.target.data == nullptr)
      in.target = {target.data(), Dtype::kF32, width};
    in.draft = {draft.data(), Dtype::kF32, width};
    in.draft_ids = ids.data();
    in.num_draft = num_draft.data();
    in.seed = seed.data();
    in.position = position.data();
    in.temperature = temperature.data();
    const auto rows = static_cast<std::size_t>(requests * (drafts + 1));
    tokens.assign(rows, -7);
    logprob.assign(rows, 7.0F);
    lse.assign(rows, 7.0F);
    num_accepted.assign(static_cast<std::size_t>(requests), -7);
    status.assign(static_cast<std::size_t>(requests), -7);
    verify(in, {tokens.data(), num_accepted.data(), logprob.data(), lse.data(), status.data()},
           workspace, threads);
  }
};

bool same(const std::vector<float> &a, const std::vector<float> &b) { // NaN equals NaN
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

} // namespace

TEST_CASE("kernels: neither threads nor instruction sets nor the batch change a result") {
  for (const bool rejection : {false, true}) {
    CAPTURE(rejection);
    Workspace workspace;
    Call call(5, 4, 5'000, 31);
    call.propose(workspace, rejection);
    call.run(workspace, rejection);
    const Call first = call;
    int accepted = 0;
    for (const std::int32_t count : first.num_accepted)
      accepted += count;
    CHECK(accepted > 0);
    with_variants([&](const std::string &name) {
      CAPTURE(name);
      for (const int threads : {1, 2, 7}) {
        call.run(workspace, rejection, threads);
        CHECK(call.tokens == first.tokens);
        CHECK(call.num_accepted == first.num_accepted);
        CHECK(call.status == first.status);
        CHECK(same(call.logprob, first.logprob));
        CHECK(same(call.lse, first.lse));
      }
    });
    for (std::int64_t b = 0; b < call.requests; ++b) { // each request alone
      Call one(1, call.drafts, call.width, 0);
      const auto copy = [b](auto &to, const auto &from) {
        const auto size = static_cast<std::ptrdiff_t>(to.size());
        std::copy_n(from.begin() + b * size, size, to.begin());
      };
      copy(one.target, call.target);
      copy(one.draft, call.draft);
      copy(one.ids, call.ids);
      copy(one.num_draft, call.num_draft);
      copy(one.seed, call.seed);
      copy(one.position, call.position);
      copy(one.temperature, call.temperature);
      one.run(workspace, rejection);
      std::vector<std::int32_t> expected(one.tokens.size());
      copy(expected, call.tokens);
      CHECK(one.tokens == expected);
    }
  }
}

TEST_CASE("kernels: rows behind the first rejection are never read") {
  // Pages that may not be read hold them: reading one ends the test.
  constexpr std::int64_t kWidth = 4'096;
  constexpr std::size_t kBytes = kWidth * sizeof(float);
  for (const bool rejection : {false, true}) {
    Workspace workspace;
    Call call(1, 3, kWidth, 32);
    call.num_draft = {3};
    call.ids = {-1, 5, 5};
    void *const pages =
        mmap(nullptr, 4 * kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(pages != MAP_FAILED);
    std::copy_n(call.target.begin(), kWidth, static_cast<float *>(pages));
    REQUIRE(mprotect(static_cast<char *>(pages) + kBytes, 3 * kBytes, PROT_NONE) == 0);
    call.in.target = {pages, Dtype::kF32, kWidth};
    call.run(workspace, rejection);
    CHECK(call.num_accepted[0] == 0);
    CHECK(call.tokens[0] >= 0);
    CHECK(call.tokens[1] == -1);
    CHECK(call.status[0] == 0);
    munmap(pages, 4 * kBytes);
  }
}

TEST_CASE("kernels: ids, counts and edits from outside are not used as indices") {
  Workspace workspace;
  Call call(2, 2, 100, 33);
  call.num_draft = {9, -9};
  call.ids = {100, std::numeric_limits<std::int32_t>::min(),
              std::numeric_limits<std::int32_t>::max(), 0};
  const std::vector<std::int64_t> offsets = {-5, 2, 1, 900, 3, 3, 3};
  const std::vector<std::int32_t> edited = {-1, 100, 2'000'000'000, 4};
  const std::vector<std::int32_t> operations = {0, 1, 2, 77};
  const std::vector<float> values = {1.0F, 2.0F, 3.0F, 4.0F};
  call.in.edits = {offsets.data(), edited.data(), operations.data(), values.data(), 4};
  const std::vector<std::int32_t> map(100, 2'000'000'000);
  for (const bool rejection : {false, true}) {
    call.in.d2t = rejection ? map.data() : nullptr;
    call.in.d2t_size = 100;
    call.in.t2d = rejection ? map.data() : nullptr;
    call.run(workspace, rejection);
    CHECK(call.num_accepted == std::vector<std::int32_t>{0, 0});
    for (const std::int32_t token : {call.tokens[0], call.tokens[3]})
      CHECK((token >= 0 && token < 100));
    CHECK(call.status[0] == (rejection ? static_cast<int>(kDraftImpossible) : 0));
  }
}

TEST_CASE("kernels: rows far behind 2^32 elements are where they are") {
  const float origin = 0.0F;
  const Rows rows{&origin, Dtype::kBf16, 151'936};
  CHECK(reinterpret_cast<std::uintptr_t>(rows.row(40'000).data) -
            reinterpret_cast<std::uintptr_t>(&origin) ==
        std::uint64_t{40'000} * 151'936 * 2);
}

TEST_CASE("kernels: what a thread throws reaches the caller, behind all threads") {
  Workspace workspace;
  std::atomic<int> done{0};
  CHECK_THROWS_WITH(workspace.run(50, 3,
                                  [&](std::int64_t index, RowRoom &) {
                                    if (index == 20)
                                      throw std::runtime_error("the row broke");
                                    ++done;
                                  }),
                    "the row broke");
  CHECK(done >= 20);
}
