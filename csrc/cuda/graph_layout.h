// What a captured graph reads and writes: one block of the device's memory in, one out, each copied
// whole. Their layout is fixed here; the Python side that captures reads it through the bindings.
#pragma once

#include <cstddef>
#include <cstdint>

namespace dsi::cuda {

// The first 64 bytes of the input block.
struct GraphHeader {
  std::int64_t start = 0;    // positions before the first id, all of them cached
  std::int64_t position = 0; // of the token that row 0 draws: start + 1
  std::uint64_t seed = 0;
  std::int32_t count = 0; // ids that count; what follows them is padding
  std::int32_t top_k = 0; // 0: off
  float temperature = 0.0F;
  float top_p = 1.0F;
  float min_p = 0.0F;
  std::int32_t reserved[5] = {};
};
static_assert(sizeof(GraphHeader) == 64);

// Byte offsets of the arrays behind the header, and of those in the output block:
//   in:  header, ids int32 [window], offsets int64 [window + 1], then edits: ids int32, operations
//        int32, values float32, [edits] each; row i's are offsets[i] .. offsets[i+1]
//   out: tokens int32, status int32 (bits of dsi_native.kernels.Status), logprobs float32,
//        [window] each
struct GraphLayout {
  int window; // the longest
  int edits;  // room for them, over all rows of a window

  std::size_t ids() const { return sizeof(GraphHeader); }
  std::size_t offsets() const { return round_up(ids() + words(window)); }
  std::size_t edit_ids() const { return offsets() + 8 * (static_cast<std::size_t>(window) + 1); }
  std::size_t edit_operations() const { return edit_ids() + words(edits); }
  std::size_t edit_values() const { return edit_operations() + words(edits); }
  std::size_t input_bytes() const { return edit_values() + words(edits); }
  std::size_t input_bytes_unedited() const { return edit_ids(); }

  std::size_t tokens() const { return 0; }
  std::size_t status() const { return words(window); }
  std::size_t logprobs() const { return 2 * words(window); }
  std::size_t output_bytes() const { return 3 * words(window); }

private:
  static std::size_t words(int count) { return 4 * static_cast<std::size_t>(count); }
  static std::size_t round_up(std::size_t bytes) { return (bytes + 15) / 16 * 16; }
};

} // namespace dsi::cuda
