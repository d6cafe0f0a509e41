#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include "functions.h"

namespace py = pybind11;
using Array = py::array_t<float, py::array::c_style>;

PYBIND11_MODULE(with_pybind11, m) {
  m.def("nothing", &nothing);
  m.def("pointer", &first_of);
  // noconvert: neither library may copy what it cannot take as it is.
  m.def(
      "array",
      [](const Array &array) {
        return first_of(reinterpret_cast<std::uintptr_t>(array.data()),
                        static_cast<std::size_t>(array.size()));
      },
      py::arg().noconvert());
}
