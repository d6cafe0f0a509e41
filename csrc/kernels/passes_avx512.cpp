// The loops of passes.h with AVX-512; compiled with those instructions, see CMakeLists.txt.
#if defined(__AVX512F__)
#define DSI_LANES_BYTES 64
#include "kernels/passes_body.h"

const dsi::Passes dsi::kAvx512Passes = DSI_PASSES("avx512");
#endif
