// What Python may know of the CUDA driver.
#include "bindings/bind_cuda.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings/interpreter.h"
#include "cuda/driver.h"

namespace dsi::py {

namespace nb = nanobind;

namespace {

nb::dict cuda_driver(const std::string &library) {
  cuda::Opened opened;
  {
    const NativeSection section; // the first cuInit of a process takes up to seconds
    opened = cuda::Driver::open(library);
  }
  nb::dict answer;
  answer["available"] = opened.driver != nullptr;
  answer["reason"] = opened.reason;
  answer["code"] = opened.code;
  answer["version"] = opened.driver != nullptr ? opened.driver->version() : 0;
  answer["devices"] =
      opened.driver != nullptr ? opened.driver->device_names() : std::vector<std::string>{};
  return answer;
}

} // namespace

void bind_cuda(nb::module_ &module) {
  module.def("cuda_driver", &cuda_driver, nb::arg("library") = cuda::Driver::kLibrary,
             "Opens the CUDA driver: a dict of available (bool), reason (why not, else empty), "
             "code (of the driver's call that failed, 0 where none was reached), version (12040 is "
             "12.4) and devices (names). library: by dlopen's rules. Initialises CUDA in this "
             "process where it can; blocks without the GIL, up to seconds the first time.");
}

} // namespace dsi::py
