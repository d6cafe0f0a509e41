// Graph servers as Python makes them, and what it may know of the CUDA driver.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>

#include "bindings/python_server.h"

namespace dsi::py {

// The server that a GraphServer of this module stands for, null where `spec` is none. `key` and
// `vocab_size` as in make_server(), for the plain server behind it. Needs the GIL. Throws
// std::invalid_argument and cuda::CudaError.
std::unique_ptr<Server> graph_server(nanobind::handle spec, std::uint64_t key,
                                     std::int64_t vocab_size);

// The Python server that `server` is, or that it has behind it; null: none.
PythonServer *python_server_of(Server *server);

void bind_cuda(nanobind::module_ &module);

} // namespace dsi::py
