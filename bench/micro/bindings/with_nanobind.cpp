#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include "functions.h"

namespace nb = nanobind;
using Array = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

NB_MODULE(with_nanobind, m) {
  m.def("nothing", &nothing);
  m.def("pointer", &first_of);
  m.def("array", [](const Array &array) {
    return first_of(reinterpret_cast<std::uintptr_t>(array.data()), array.size());
  });
}
