// The knobs of one Session. non-SI, SI and DSI are values of `mode`, not separate loops.
#pragma once

#include "core/types.h"

namespace dsi {

struct Policy {
  Mode mode = Mode::kDSI;
  int lookahead = 1;    // drafts per verification task, >= 1
  int run_ahead = 64;   // drafts that may exist beyond the committed prefix, >= lookahead
  int max_window = 64;  // drafts one verify may judge, >= lookahead
  bool prefill = false; // DSI: every target server prefills the prompt at the start
};

} // namespace dsi
