// Vocabularies as the engine's bindings need them.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>

#include "bindings/python_server.h"
#include "core/vocabulary.h"

namespace dsi::py {

struct TokenBytesTable {
  std::shared_ptr<const TokenBytes> bytes;
};

// Calls a Python function (bytes) -> (ids int32 [n], ends int64 [n]) with the GIL, on any thread.
// What it raises comes as CausedError. Needs the GIL to be made.
Encoder encoder(nanobind::handle function);

// The PythonServer that a TranslatedDrafter stands for; null where `spec` is none. Needs the GIL.
std::unique_ptr<PythonServer> translated_server(nanobind::handle spec);

void bind_vocabulary(nanobind::module_ &module);

} // namespace dsi::py
