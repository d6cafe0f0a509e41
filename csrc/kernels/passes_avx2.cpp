// The loops of passes.h with AVX2; compiled with those instructions, see CMakeLists.txt.
#if defined(__AVX2__)
#define DSI_LANES_BYTES 32
#include "kernels/passes_body.h"

const dsi::Passes dsi::kAvx2Passes = DSI_PASSES("avx2");
#endif
