#pragma once

#include <nanobind/nanobind.h>

namespace dsi::py {

void bind_tree(nanobind::module_ &module);

} // namespace dsi::py
