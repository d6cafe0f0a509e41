// What the calls over many rows share: the layout of their arguments, and their room.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <memory>
#include <thread>
#include <vector>

#include "kernels/row_law.h"

namespace dsi {

// Rows of logits one after the other. `data` null: none.
struct Rows {
  const void *data = nullptr; // [rows, width] of `dtype`
  Dtype dtype = Dtype::kF32;
  std::int64_t width = 0;
  Row row(std::int64_t index) const {
    Row row;
    row.data = static_cast<const std::byte *>(data) +
               index * width * static_cast<std::int64_t>(bytes_of(dtype));
    row.dtype = dtype;
    row.size = width;
    return row;
  }
};

// Edits of all rows: those of row r are offsets[r] .. offsets[r+1]-1, in the order they are
// applied. What lies outside the arrays is left out, also unknown operations. `offsets` null: none.
struct BatchEdits {
  const std::int64_t *offsets = nullptr;    // [rows + 1]
  const std::int32_t *ids = nullptr;        // [count]
  const std::int32_t *operations = nullptr; // [count], of EditOperation
  const float *values = nullptr;            // [count]
  std::int64_t count = 0;
  std::span<const Edit> of_row(std::int64_t row, EditList &list) const; // kept in `list`
};

// What came of one row of verify().
struct RowVerdict {
  Token token = -1;
  float logprob = 0.0F;
  float lse = 0.0F;
  std::uint32_t status = 0;
};

// The room of one thread.
struct RowRoom {
  RowLaw target;
  RowLaw draft;
  EditList target_edits;
  EditList draft_edits;
};

// Grows to what the largest call needed. One call at a time.
class Workspace {
public:
  // work(index, room) for 0 <= index < count, each once, begun in ascending order, in the caller's
  // thread and at most threads - 1 others, which are gone when it returns. Blocks. The first
  // exception of `work` is thrown here, behind the last thread's end. Starting a thread costs about
  // 20 us; with threads = 1 nothing is started or allocated.
  template <class Work> void run(std::int64_t count, int threads, Work work) {
    const auto wanted = static_cast<std::size_t>(
        std::clamp<std::int64_t>(threads, 1, std::max<std::int64_t>(count, 1)));
    while (rooms_.size() < wanted)
      rooms_.push_back(std::make_unique<RowRoom>());
    if (wanted <= 1) {
      for (std::int64_t index = 0; index < count; ++index)
        work(index, *rooms_[0]);
      return;
    }
    std::atomic<std::int64_t> next{0}; // hands out indices only; the joins order everything else
    std::vector<std::exception_ptr> errors(wanted);
    const auto work_off = [&](std::size_t thread) {
      try {
        for (std::int64_t index = 0;
             (index = next.fetch_add(1, std::memory_order_relaxed)) < count;)
          work(index, *rooms_[thread]);
      } catch (...) {
        errors[thread] = std::current_exception();
      }
    };
    {
      std::vector<std::jthread> others;
      others.reserve(wanted - 1);
      for (std::size_t thread = 1; thread < wanted; ++thread)
        others.emplace_back(work_off, thread);
      work_off(0);
    }
    for (const std::exception_ptr &error : errors) {
      if (error)
        std::rethrow_exception(error);
    }
  }

  // For verify(): what came of each row, and per request the first row that ended it.
  std::vector<RowVerdict> verdicts;
  std::vector<std::int32_t> ends;

private:
  std::vector<std::unique_ptr<RowRoom>> rooms_;
};

} // namespace dsi
