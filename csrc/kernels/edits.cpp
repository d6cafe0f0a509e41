#include <algorithm>

#include "kernels/batch.h"

namespace dsi {

void EditList::clear() {
  edits_.clear();
  ascending_ = true;
}

void EditList::add(Token id, EditOperation operation, float value) {
  if (id < 0)
    return;
  ascending_ = ascending_ && (edits_.empty() || edits_.back().id <= id);
  edits_.push_back({id, operation, value});
}

std::span<const Edit> EditList::sorted() {
  if (ascending_)
    return edits_;
  // By the index as a second key: std::stable_sort would ask for memory.
  order_.clear();
  for (const Edit &edit : edits_)
    order_.push_back(std::uint64_t{static_cast<std::uint32_t>(edit.id)} << 32U | order_.size());
  std::sort(order_.begin(), order_.end());
  sorted_.clear();
  for (const std::uint64_t key : order_)
    sorted_.push_back(edits_[static_cast<std::uint32_t>(key)]);
  return sorted_;
}

std::span<const Edit> BatchEdits::of_row(std::int64_t row, EditList &list) const {
  list.clear();
  if (offsets == nullptr)
    return {};
  const std::int64_t begin = std::max<std::int64_t>(offsets[row], 0);
  const std::int64_t end = std::min(offsets[row + 1], count);
  for (std::int64_t i = begin; i < end; ++i) {
    if (operations[i] >= 0 && operations[i] <= static_cast<std::int32_t>(EditOperation::kSet))
      list.add(ids[i], static_cast<EditOperation>(operations[i]), values[i]);
  }
  return list.sorted();
}

} // namespace dsi
