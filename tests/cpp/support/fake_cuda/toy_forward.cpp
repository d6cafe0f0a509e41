#include "toy_forward.h"

#include <cstring>
#include <span>

#include "../toy_model.h"
#include "core/sampling.h"
#include "cuda/graph_layout.h"

namespace fake_cuda {

namespace {

constexpr int kIllegalAddress = 700;

template <typename T> T *at(unsigned long long block, std::size_t offset) {
  return reinterpret_cast<T *>(static_cast<std::uintptr_t>(block) + offset);
}

} // namespace

int run_toy(const fake_cuda_toy &toy) {
  if (toy.before != nullptr) {
    if (const int error = toy.before(toy.user))
      return error;
  }
  const dsi::cuda::GraphLayout layout{toy.widest, toy.edits};
  dsi::cuda::GraphHeader header;
  std::memcpy(&header, at<void>(toy.inputs, 0), sizeof(header));
  if (header.start < 0 || header.start + toy.length > toy.capacity || header.count < 1 ||
      header.count > toy.length || header.position != header.start + 1)
    return kIllegalAddress;
  // Padding is cached too, as a real forward would.
  if (toy.segment == 0)
    std::memcpy(toy.cache + header.start, at<int>(toy.inputs, layout.ids()),
                sizeof(int) * static_cast<std::size_t>(toy.length));
  if (toy.segment != toy.segments - 1)
    return 0;
  const dsi::test::ToyModel model{toy.seed, toy.vocab_size, toy.acceptance};
  const auto *offsets = at<std::int64_t>(toy.inputs, layout.offsets());
  for (int row = 0; row < toy.length; ++row) {
    const std::span<const dsi::Token> prefix(toy.cache,
                                             static_cast<std::size_t>(header.start + row + 1));
    dsi::Token token = toy.acceptance < 0 ? model.target(prefix) : model.draft(prefix);
    // The one edit that a model without logits can obey: an id that is forbidden.
    for (std::int64_t i = offsets[row]; i < offsets[row + 1]; ++i) {
      const bool set = at<std::int32_t>(toy.inputs, layout.edit_operations())[i] ==
                       static_cast<std::int32_t>(dsi::EditOperation::kSet);
      if (set && at<dsi::Token>(toy.inputs, layout.edit_ids())[i] == token)
        token = (token + 1) % toy.vocab_size;
    }
    at<dsi::Token>(toy.outputs, layout.tokens())[row] = token;
    at<std::int32_t>(toy.outputs, layout.status())[row] = 0;
    at<float>(toy.outputs, layout.logprobs())[row] = -static_cast<float>(token);
  }
  return 0;
}

} // namespace fake_cuda
