// No memory is asked for once the room has grown.
#include <doctest/doctest.h>

#include <cstdlib>
#include <new>

#include "kernels/sample.h"
#include "kernels/verify.h"
#include "support/kernel_rows.h"

using namespace dsi;
using namespace dsi::plain;

namespace {

thread_local std::int64_t allocations = 0;

} // namespace

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)

// The sanitizers' allocator must stay theirs; it tells of each allocation. GCC lacks their header.
extern "C" int __sanitizer_install_malloc_and_free_hooks(void (*)(const volatile void *,
                                                                  std::size_t),
                                                         void (*)(const volatile void *));
namespace {
const int hooked = __sanitizer_install_malloc_and_free_hooks(
    [](const volatile void *, std::size_t) { ++allocations; }, [](const volatile void *) {});
}

#else

void *operator new(std::size_t bytes) {
  ++allocations;
  if (void *const memory = std::malloc(bytes))
    return memory;
  throw std::bad_alloc();
}
void *operator new(std::size_t bytes, std::align_val_t alignment) {
  ++allocations;
  const auto align = static_cast<std::size_t>(alignment);
  if (void *const memory = std::aligned_alloc(align, (bytes + align - 1) / align * align))
    return memory;
  throw std::bad_alloc();
}
void operator delete(void *memory) noexcept { std::free(memory); }
void operator delete(void *memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void *memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void *memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

#endif

namespace {

// One call of everything, on rows of `width` ids.
void call_all(Workspace &workspace, std::int64_t width) {
  static std::mt19937 random(41);
  constexpr std::int64_t kDrafts = 2;
  static const std::vector<float> logits = random_row(random, 5 * 9'000, 3.0F, 0.1);
  static const std::vector<std::int64_t> offsets = {0, 2, 3, 5};
  static const std::vector<std::int32_t> ids = {7, 3, 4, 6, 5};
  static const std::vector<std::int32_t> operations = {0, 1, 2, 0, 1};
  static const std::vector<float> values = {1.0F, 1.1F, -kInf, 2.0F, 1.3F};
  static const std::vector<std::int32_t> drafts = {8, 9};
  const std::uint64_t seed[kDrafts] = {5, 6};
  const std::int64_t position[kDrafts] = {70, 71};
  std::int32_t tokens[3], accepted[1], status[2];
  float numbers[3], more[3];
  for (const bool rejection : {false, true}) {
    VerifyInput in;
    in.requests = 1;
    in.drafts = kDrafts;
    in.rejection = rejection;
    in.with_logprobs = true;
    in.target = {logits.data(), Dtype::kF32, width};
    in.draft = {logits.data() + 3 * width, Dtype::kF32, width};
    in.draft_ids = drafts.data();
    in.seed = seed;
    in.position = position;
    in.edits = {offsets.data(), ids.data(), operations.data(), values.data(), 5};
    in.draft_edits = {offsets.data(), ids.data(), operations.data(), values.data(), 3};
    verify(in, {tokens, accepted, numbers, more, status}, workspace, 1);
  }
  SampleInput in;
  in.rows = kDrafts;
  in.logits = {logits.data(), Dtype::kF32, width};
  const std::int32_t top_k[kDrafts] = {50, 0};
  const float top_p[kDrafts] = {0.9F, 0.8F};
  const float min_p[kDrafts] = {0.0F, 0.01F};
  in.top_k = top_k;
  in.top_p = top_p;
  in.min_p = min_p;
  in.seed = seed;
  in.position = position;
  sample(in, {tokens, numbers, more, status}, workspace, 1);
  cut(in, numbers, workspace, 1);
}

} // namespace

TEST_CASE("kernels: no memory is asked for behind the first call of a size") {
  Workspace workspace;
  const std::int64_t before = allocations;
  call_all(workspace, 9'000);
  CHECK(allocations > before); // the count works
  const std::int64_t grown = allocations;
  for (const std::int64_t width : {9'000, 64, 4'096, 9'000})
    call_all(workspace, width);
  CHECK(allocations == grown);
}
