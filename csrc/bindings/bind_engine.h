// What the binding files share.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>

#include "core/metrics.h"
#include "core/record.h"
#include "runtime/server.h"

namespace dsi::py {

nanobind::dict metrics_dict(const Metrics &metrics);
// Adds "origin_s", what times count from on time.monotonic()'s clock (0 on the virtual one),
// "spans", (server, kind, start_s, end_s, first, window, fate) each, and "commits", (time_s,
// position, kind) each.
void add_record(nanobind::dict &dict, const RunRecord &record);

// `spec`: a SimulatedServer, NgramDrafter, TranslatedDrafter or GraphServer of this module, or any
// object with the server methods. `key` makes equal specifications jitter differently. Needs the
// GIL.
std::unique_ptr<Server> make_server(nanobind::handle spec, std::uint64_t key,
                                    std::int64_t vocab_size);

void bind_sampling(nanobind::module_ &module);
void bind_servers(nanobind::module_ &module);
void bind_engine(nanobind::module_ &module);
void bind_session(nanobind::module_ &module);
void bind_simulate(nanobind::module_ &module);
void bind_sweep(nanobind::module_ &module);
void bind_kernels(nanobind::module_ &module);

} // namespace dsi::py
