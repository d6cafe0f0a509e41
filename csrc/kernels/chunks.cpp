#include "kernels/chunks.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace dsi {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kLargest = std::numeric_limits<float>::max();

std::span<const Edit> edits_between(std::span<const Edit> edits, std::int64_t begin,
                                    std::int64_t end) {
  const auto before = [](const Edit &edit, std::int64_t id) { return edit.id < id; };
  const auto first = std::lower_bound(edits.begin(), edits.end(), begin, before);
  return {first, std::lower_bound(first, edits.end(), end, before)};
}

} // namespace

float scaled(float x, float inverse) {
  if (!(x > -kInf))
    return -kInf;
  // Before the product, too: with an infinite temperature it would be NaN.
  return std::clamp(std::min(x, kLargest) * inverse, -kLargest, kLargest);
}

ChunkReader::ChunkReader() : buffer_(std::make_unique<Buffer>()) {}

void ChunkReader::open(const Row &row) {
  row_ = row;
  scales_ = false;
}

void ChunkReader::scale_while_reading(float inverse) {
  inverse_ = inverse;
  scales_ = true;
}

std::int64_t ChunkReader::padded(std::int64_t chunk) const {
  const std::int64_t count = std::min(row_.size - chunk * kChunk, kChunk);
  return (count + kPadding - 1) / kPadding * kPadding;
}

const float *ChunkReader::read(std::int64_t chunk) {
  const std::int64_t begin = chunk * kChunk;
  const std::int64_t count = std::min(row_.size - begin, kChunk);
  const bool edited_here = !edits_between(row_.edits, begin, begin + count).empty();
  if (row_.dtype == Dtype::kF32 && count == kChunk && !edited_here && row_.map == nullptr &&
      !scales_)
    return static_cast<const float *>(row_.data) + begin;
  float *const to = buffer_->values;
  if (row_.dtype == Dtype::kF32) {
    std::memcpy(to, static_cast<const float *>(row_.data) + begin,
                static_cast<std::size_t>(count) * sizeof(float));
  } else {
    const auto *const from = static_cast<const std::uint16_t *>(row_.data) + begin;
    const auto widen = row_.dtype == Dtype::kBf16 ? passes().widen_bf16 : passes().widen_f16;
    const std::int64_t whole = count / 16 * 16;
    widen(from, to, whole);
    if (whole < count) {
      std::uint16_t rest[16] = {};
      std::memcpy(rest, from + whole, static_cast<std::size_t>(count - whole) * sizeof *rest);
      widen(rest, to + whole, 16);
    }
  }
  patch(begin, count);
  std::fill(to + count, to + padded(chunk), -kInf);
  return to;
}

void ChunkReader::pad_whole(std::int64_t chunk) {
  if (row_.size - chunk * kChunk < kChunk)
    std::fill(buffer_->values + padded(chunk), buffer_->values + kChunk, -kInf);
}

void ChunkReader::patch(std::int64_t begin, std::int64_t count) {
  float *const to = buffer_->values;
  for (const Edit &edit : edits_between(row_.edits, begin, begin + count))
    to[edit.id - begin] = edited(to[edit.id - begin], edit);
  if (row_.map != nullptr) {
    const std::int64_t whole = count / 16 * 16;
    passes().leave_out(to, row_.map + begin, whole);
    for (std::int64_t i = whole; i < count; ++i)
      to[i] = row_.map[begin + i] < 0 ? -kInf : to[i];
  }
  if (scales_) {
    for (std::int64_t i = 0; i < count; ++i)
      to[i] = scaled(to[i], inverse_);
  }
}

float ChunkReader::at(std::int64_t id) const {
  if (row_.map != nullptr && row_.map[id] < 0)
    return -kInf;
  float x = 0.0F;
  if (row_.dtype == Dtype::kF32) {
    x = static_cast<const float *>(row_.data)[id];
  } else {
    const std::uint16_t half[16] = {static_cast<const std::uint16_t *>(row_.data)[id]};
    float wide[16];
    (row_.dtype == Dtype::kBf16 ? passes().widen_bf16 : passes().widen_f16)(half, wide, 16);
    x = wide[0];
  }
  for (const Edit &edit : edits_between(row_.edits, id, id + 1))
    x = edited(x, edit);
  return scales_ ? scaled(x, inverse_) : x;
}

} // namespace dsi
