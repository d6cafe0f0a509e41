// The loops of passes.h with what every machine has (SSE2 on x86-64).
#define DSI_LANES_BYTES 16
#include "kernels/passes_body.h"

const dsi::Passes dsi::kBaselinePasses = DSI_PASSES("baseline");
