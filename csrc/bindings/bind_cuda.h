#pragma once

#include <nanobind/nanobind.h>

namespace dsi::py {

void bind_cuda(nanobind::module_ &module);

} // namespace dsi::py
