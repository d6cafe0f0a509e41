// A forward of the toy model on the fake device.
#pragma once

#include "fake_cuda.h"

namespace fake_cuda {

// Runs one segment. What it returns breaks the device: 700 where it would write outside the cache.
int run_toy(const fake_cuda_toy &toy);

} // namespace fake_cuda
