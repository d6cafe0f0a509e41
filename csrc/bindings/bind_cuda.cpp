#include "bindings/bind_cuda.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <stdexcept>
#include <utility>
#include <vector>

#include "bindings/bind_engine.h"
#include "bindings/interpreter.h"
#include "cuda/driver.h"
#include "cuda/graph_server.h"

namespace dsi::py {

namespace nb = nanobind;

namespace {

using RawGraphs = std::vector<std::pair<int, std::vector<std::uint64_t>>>; // length, segments

struct GraphSpec {
  std::string library;
  int device = 0;
  int priority = 0;
  cuda::GraphLayout layout{1, 0};
  std::uint64_t inputs = 0;
  std::uint64_t outputs = 0;
  Position capacity = 0;
  Token vocab_size = 0;
  std::vector<RawGraphs> caches;
  SharedObject owner;
  SharedObject plain;
};

cuda::Opened opened(const std::string &library) {
  const NativeSection section; // the first cuInit of a process takes up to seconds
  return cuda::Driver::open(library);
}

nb::object exception_of(const cuda::CudaError &error) {
  return nb::module_::import_("dsi_native.errors")
      .attr("CudaError")(error.what(), error.code(), error.name());
}

// On a worker, without the GIL.
JobError kept(const cuda::CudaError &error) {
  const nb::gil_scoped_acquire gil;
  return {error.what(), share(exception_of(error))};
}

void translate(const std::exception_ptr &pointer, void * /*payload*/) {
  try {
    std::rethrow_exception(pointer);
  } catch (const cuda::CudaError &error) {
    const nb::object exception = exception_of(error);
    PyErr_SetObject(exception.type().ptr(), exception.ptr());
  }
}

nb::dict cuda_driver(const std::string &library) {
  const cuda::Opened found = opened(library);
  nb::dict answer;
  answer["available"] = found.driver != nullptr;
  answer["reason"] = found.reason;
  answer["code"] = found.code;
  answer["version"] = found.driver != nullptr ? found.driver->version() : 0;
  answer["devices"] =
      found.driver != nullptr ? found.driver->device_names() : std::vector<std::string>{};
  return answer;
}

nb::dict graph_layout(int window, int edits) {
  if (window < 1 || edits < 0)
    throw std::invalid_argument("window, edits: at least 1 and 0 are needed, got " +
                                std::to_string(window) + " and " + std::to_string(edits));
  const cuda::GraphLayout layout{window, edits};
  nb::dict offsets;
  offsets["start"] = offsetof(cuda::GraphHeader, start);
  offsets["position"] = offsetof(cuda::GraphHeader, position);
  offsets["seed"] = offsetof(cuda::GraphHeader, seed);
  offsets["count"] = offsetof(cuda::GraphHeader, count);
  offsets["top_k"] = offsetof(cuda::GraphHeader, top_k);
  offsets["temperature"] = offsetof(cuda::GraphHeader, temperature);
  offsets["top_p"] = offsetof(cuda::GraphHeader, top_p);
  offsets["min_p"] = offsetof(cuda::GraphHeader, min_p);
  offsets["ids"] = layout.ids();
  offsets["offsets"] = layout.offsets();
  offsets["edit_ids"] = layout.edit_ids();
  offsets["edit_operations"] = layout.edit_operations();
  offsets["edit_values"] = layout.edit_values();
  offsets["input_bytes"] = layout.input_bytes();
  offsets["tokens"] = layout.tokens();
  offsets["status"] = layout.status();
  offsets["logprobs"] = layout.logprobs();
  offsets["output_bytes"] = layout.output_bytes();
  return offsets;
}

} // namespace

std::unique_ptr<Server> graph_server(nb::handle spec, std::uint64_t key, std::int64_t vocab_size) {
  if (!nb::isinstance<GraphSpec>(spec))
    return nullptr;
  const auto &given = nb::cast<const GraphSpec &>(spec);
  if (given.plain != nullptr && given.vocab_size > vocab_size) // it would draw ids of its own
    return make_server(nb::handle(given.plain.get()), key, vocab_size);
  const cuda::Opened found = opened(given.library);
  if (found.driver == nullptr) {
    const nb::object type = nb::module_::import_("dsi_native.errors").attr("CudaError");
    const nb::object exception = type("CUDA is unavailable: " + found.reason, found.code);
    PyErr_SetObject(type.ptr(), exception.ptr());
    throw nb::python_error();
  }
  cuda::GraphServerConfig config;
  config.context = std::make_shared<cuda::Context>(found.driver, given.device);
  config.priority = given.priority;
  config.layout = given.layout;
  config.inputs = given.inputs;
  config.outputs = given.outputs;
  config.capacity = given.capacity;
  config.vocab_size = given.vocab_size;
  config.kept = kept;
  for (const RawGraphs &graphs : given.caches) {
    cuda::GraphCache cache;
    for (const auto &[length, segments] : graphs) {
      cuda::WindowGraph window{length, {}};
      for (const std::uint64_t raw : segments)
        window.segments.push_back(cuda::GraphExec::borrowed(
            reinterpret_cast<cuda::GraphExecObject *>(static_cast<std::uintptr_t>(raw)),
            given.owner));
      cache.windows.push_back(std::move(window));
    }
    config.caches.push_back(std::move(cache));
  }
  if (given.plain != nullptr)
    config.plain = make_server(nb::handle(given.plain.get()), key, vocab_size);
  return std::make_unique<cuda::GraphServer>(std::move(config));
}

PythonServer *python_server_of(Server *server) {
  if (auto *graphs = dynamic_cast<cuda::GraphServer *>(server))
    server = graphs->plain();
  return dynamic_cast<PythonServer *>(server);
}

void bind_cuda(nb::module_ &module) {
  nb::register_exception_translator(&translate, nullptr);
  module.def("cuda_driver", &cuda_driver, nb::arg("library") = cuda::Driver::kLibrary,
             "Opens the CUDA driver: a dict of available (bool), reason (why not, else empty), "
             "code (of the driver's call that failed, 0 where none was reached), version (12040 is "
             "12.4) and devices (names). library: by dlopen's rules. Initialises CUDA in this "
             "process where it can; blocks without the GIL, up to seconds the first time.");
  module.def("graph_layout", &graph_layout, nb::arg("window"), nb::arg("edits"),
             "Byte offsets in a graph's input and output blocks, and their sizes; see "
             "csrc/cuda/graph_layout.h.");
  nb::class_<GraphSpec>(
      module, "GraphServer",
      "A server that replays captured graphs without the GIL. What it is made of stays the "
      "caller's: `owner` keeps it alive, and is let go of when the server is.")
      .def(
          "__init__",
          [](GraphSpec *self, int device, int window, int edits, std::uint64_t inputs,
             std::uint64_t outputs, Position capacity, Token vocab_size,
             std::vector<RawGraphs> caches, const nb::object &owner, const nb::object &plain,
             int priority, std::string library) {
            new (self) GraphSpec{std::move(library),
                                 device,
                                 priority,
                                 {window, edits},
                                 inputs,
                                 outputs,
                                 capacity,
                                 vocab_size,
                                 std::move(caches),
                                 share(owner),
                                 plain.is_none() ? nullptr : share(plain)};
          },
          nb::arg("device"), nb::arg("window"), nb::arg("edits"), nb::arg("inputs"),
          nb::arg("outputs"), nb::arg("capacity"), nb::arg("vocab_size"), nb::arg("caches"),
          nb::arg("owner").none(), nb::arg("plain").none() = nb::none(), nb::arg("priority") = 0,
          nb::arg("library") = cuda::Driver::kLibrary,
          "inputs, outputs: addresses on the device. caches: for each the windows (length, [graph, "
          "...]), lengths ascending from 1, "
          "graphs as raw handles. plain: a server for jobs that no graph was captured for.")
      .def_prop_ro(
          "plain",
          [](const GraphSpec &self) {
            return self.plain == nullptr ? nb::none() : nb::borrow(self.plain.get());
          },
          "The server behind the graphs, None without one.");
}

} // namespace dsi::py
