// A row in chunks of float32, whatever it is stored as.
#pragma once

#include <memory>

#include "kernels/passes.h"
#include "kernels/row.h"

namespace dsi {

class ChunkReader {
public:
  ChunkReader();
  void open(const Row &row); // reads nothing; the row outlives its use here

  std::int64_t chunks() const { return (row_.size + kChunk - 1) / kChunk; }
  // How many ids of a chunk a pass has to look at: what is behind the row's end is -inf.
  std::int64_t padded(std::int64_t chunk) const;
  // x of chunk*kChunk, ... : edited, -inf where the map leaves it out, padded() values. The row
  // itself where that will do, else a copy that lives until the next read().
  const float *read(std::int64_t chunk);
  // Makes the chunk that was read last kChunk values long.
  void pad_whole(std::int64_t chunk);
  float at(std::int64_t id) const; // the same for one id inside the row

  // From now on read() gives clamped z instead of x. For rows that leave float32's range.
  void scale_while_reading(float inverse);
  bool scales() const { return scales_; }

private:
  void patch(std::int64_t begin, std::int64_t count);

  struct alignas(64) Buffer {
    float values[kChunk];
  };
  Row row_;
  std::unique_ptr<Buffer> buffer_;
  float inverse_ = 1.0F;
  bool scales_ = false;
};

// x * inverse inside float32's range; -inf for -inf and NaN.
float scaled(float x, float inverse);

} // namespace dsi
