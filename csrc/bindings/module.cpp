#include <nanobind/nanobind.h>

#include <stdexcept>

#include "bindings/bind_engine.h"
#include "bindings/interpreter.h"
#include "bindings/python_server.h"

namespace {

// The core's std::invalid_argument is the caller's mistake: dsi_native.errors.InvalidArgument.
void translate(const std::exception_ptr &pointer, void * /*payload*/) {
  try {
    std::rethrow_exception(pointer);
  } catch (const std::invalid_argument &error) {
    const nanobind::object type = nanobind::module_::import_("dsi_native.errors").attr("InvalidArgument");
    PyErr_SetString(type.ptr(), error.what());
  }
}

} // namespace

NB_MODULE(_core, module) {
  module.attr("__version__") = DSI_VERSION;
  nanobind::register_exception_translator(&translate, nullptr);
  dsi::py::bind_interpreter(module);
  dsi::py::bind_job(module);
  dsi::py::bind_sampling(module);
  dsi::py::bind_session(module);
  dsi::py::bind_simulate(module);
  dsi::py::bind_servers(module);
  dsi::py::bind_engine(module);
}
