#include <nanobind/nanobind.h>

#include <stdexcept>

#include "bindings/bind_cuda.h"
#include "bindings/bind_engine.h"
#include "bindings/bind_tree.h"
#include "bindings/bind_vocabulary.h"
#include "bindings/interpreter.h"
#include "bindings/python_server.h"

namespace {

// The core's std::invalid_argument is the caller's mistake: dsi_native.errors.InvalidArgument.
void translate(const std::exception_ptr &pointer, void * /*payload*/) {
  try {
    std::rethrow_exception(pointer);
  } catch (const std::invalid_argument &error) {
    const nanobind::object type =
        nanobind::module_::import_("dsi_native.errors").attr("InvalidArgument");
    PyErr_SetString(type.ptr(), error.what());
  }
}

} // namespace

NB_MODULE(_core, module) {
  module.attr("__version__") = DSI_VERSION;
  nanobind::register_exception_translator(&translate, nullptr);
  // Off for users: whatever a framework keeps until the process is gone, such as an engine in a
  // global of a module that is never torn down, would be reported as a fault of this library. Tests
  // turn it on.
  nanobind::set_leak_warnings(false);
  module.def("_set_leak_warnings", &nanobind::set_leak_warnings, nanobind::arg("value"));
  dsi::py::bind_interpreter(module);
  dsi::py::bind_job(module);
  dsi::py::bind_sampling(module);
  dsi::py::bind_session(module);
  dsi::py::bind_simulate(module);
  dsi::py::bind_sweep(module);
  dsi::py::bind_tree(module);
  dsi::py::bind_kernels(module);
  dsi::py::bind_vocabulary(module);
  dsi::py::bind_cuda(module);
  dsi::py::bind_servers(module);
  dsi::py::bind_engine(module);
}
