// The driver's side: each function checks what a driver checks, then works on the Machine.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

#include "fake_cuda.h"
#include "machine.h"
#include "toy_forward.h"

#define FAKE extern "C" __attribute__((visibility("default")))

namespace {

using namespace fake_cuda;

constexpr int kInvalidValue = 1;
constexpr int kOutOfMemory = 2;
constexpr int kInvalidDevice = 101;
constexpr int kInvalidContext = 201;
constexpr int kInvalidHandle = 400;
constexpr int kNotReady = 600;

Machine &machine() { return Machine::instance(); }

thread_local std::vector<Device *> current; // contexts pushed by this thread

// A graph that takes `delay_ns` and then does `work`.
void *graph_of(int device, Stream::Work work, std::int64_t delay_ns) {
  auto *graph = new GraphHandle;
  graph->device = machine().device(device);
  graph->work = [work = std::move(work), delay_ns] {
    if (delay_ns > 0)
      std::this_thread::sleep_for(std::chrono::nanoseconds(delay_ns));
    return work();
  };
  ++machine().objects;
  return graph;
}

// What stands against a call that needs a context, or 0.
int refused(const char *symbol) {
  if (const int fault = machine().due(symbol))
    return fault;
  return current.empty() ? kInvalidContext : current.back()->error.load();
}

template <typename Handle> Handle *as(void *handle, Kind kind) {
  auto *typed = static_cast<Handle *>(handle);
  return typed != nullptr && typed->kind == kind ? typed : nullptr;
}

template <typename Handle> int destroyed(void *handle, Kind kind) {
  Handle *typed = as<Handle>(handle, kind);
  if (typed == nullptr)
    return kInvalidHandle;
  typed->kind = Kind{};
  delete typed;
  --machine().objects;
  return 0;
}

int copied(const char *symbol, void *to, const void *from, std::size_t bytes, void *stream,
           bool to_device) {
  if (const int code = refused(symbol))
    return code;
  auto *handle = as<StreamHandle>(stream, Kind::kStream);
  if (handle == nullptr)
    return kInvalidHandle;
  if (!machine().holds(to, bytes, !to_device) || !machine().holds(from, bytes, to_device))
    return kInvalidValue;
  handle->stream->push([=] {
    std::memcpy(to, from, bytes);
    return 0;
  });
  return 0;
}

void *pointer(std::uint64_t device_pointer) {
  return reinterpret_cast<void *>(static_cast<std::uintptr_t>(device_pointer));
}

struct Name {
  int code;
  const char *name;
};
constexpr Name kNames[] = {
    {0, "CUDA_SUCCESS"},
    {1, "CUDA_ERROR_INVALID_VALUE"},
    {2, "CUDA_ERROR_OUT_OF_MEMORY"},
    {100, "CUDA_ERROR_NO_DEVICE"},
    {101, "CUDA_ERROR_INVALID_DEVICE"},
    {201, "CUDA_ERROR_INVALID_CONTEXT"},
    {400, "CUDA_ERROR_INVALID_HANDLE"},
    {600, "CUDA_ERROR_NOT_READY"},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS"},
    {719, "CUDA_ERROR_LAUNCH_FAILED"},
    {803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"},
    {999, "CUDA_ERROR_UNKNOWN"},
};

} // namespace

// -- switches -----------------------------------------------------------------------------------

FAKE void fake_cuda_reset(int devices) { machine().reset(devices); }
FAKE void fake_cuda_set_init(int code) { machine().init = code; }
FAKE void fake_cuda_set_version(int version) { machine().version = version; }
FAKE void fake_cuda_fail(const char *symbol, int code, int after) {
  machine().fail(symbol, code, after);
}
FAKE void fake_cuda_break(int device, int code) { machine().device(device)->error = code; }
FAKE int fake_cuda_live(void) { return machine().live(); }
FAKE long long fake_cuda_calls(const char *symbol) { return machine().calls(symbol); }
FAKE int fake_cuda_moments(fake_cuda_moment *moments, int most) {
  const std::vector<Machine::Moment> all = machine().moments();
  const std::size_t count = std::min(all.size(), static_cast<std::size_t>(most));
  for (std::size_t i = 0; i < count; ++i) {
    const Machine::Moment &moment = all[all.size() - count + i];
    moments[i] = {moment.at_ns, moment.kind};
  }
  return static_cast<int>(count);
}
FAKE void fake_cuda_spin(const volatile int *end) {
  volatile unsigned x = 0;
  while (*end == 0)
    x = x * 31 + 7;
}
FAKE void *fake_cuda_graph(int device, fake_cuda_kernel run, void *user, long long delay_ns) {
  return graph_of(
      device, [run, user] { return run != nullptr ? run(user) : 0; }, delay_ns);
}
FAKE void *fake_cuda_toy_graph(const fake_cuda_toy *toy) {
  return graph_of(
      toy->device, [toy = *toy] { return run_toy(toy); }, toy->delay_ns);
}

FAKE unsigned long long fake_cuda_memory(long long bytes) {
  void *block = std::calloc(static_cast<std::size_t>(bytes), 1);
  machine().keep_block(block, static_cast<std::size_t>(bytes), false);
  return reinterpret_cast<std::uintptr_t>(block);
}

// -- the driver and its devices -----------------------------------------------------------------

FAKE int cuInit(unsigned) {
  const int fault = machine().due("cuInit");
  return fault != 0 ? fault : machine().init.load();
}

FAKE int cuDriverGetVersion(int *version) {
  *version = machine().version;
  return machine().due("cuDriverGetVersion");
}

FAKE int cuGetErrorName(int error, const char **name) {
  *name = nullptr;
  for (const Name &known : kNames) {
    if (known.code == error)
      *name = known.name;
  }
  return *name != nullptr ? 0 : kInvalidValue;
}

FAKE int cuDeviceGetCount(int *count) {
  *count = machine().device_count();
  return machine().due("cuDeviceGetCount");
}

FAKE int cuDeviceGet(int *device, int ordinal) {
  *device = ordinal;
  const int fault = machine().due("cuDeviceGet");
  return fault != 0 ? fault : machine().device(ordinal) != nullptr ? 0 : kInvalidDevice;
}

FAKE int cuDeviceGetName(char *name, int length, int device) {
  std::snprintf(name, static_cast<std::size_t>(length), "Fake GPU %d", device);
  return machine().due("cuDeviceGetName");
}

FAKE int cuDevicePrimaryCtxRetain(void **context, int device) {
  if (const int fault = machine().due("cuDevicePrimaryCtxRetain"))
    return fault;
  Device *found = machine().device(device);
  if (found == nullptr)
    return kInvalidDevice;
  ++found->retained;
  *context = found;
  return found->error;
}

FAKE int cuDevicePrimaryCtxRelease_v2(int device) {
  --machine().device(device)->retained;
  return 0;
}

FAKE int cuCtxPushCurrent_v2(void *context) {
  if (const int fault = machine().due("cuCtxPushCurrent"))
    return fault;
  current.push_back(static_cast<Device *>(context));
  return 0;
}

FAKE int cuCtxPopCurrent_v2(void **context) {
  if (current.empty())
    return kInvalidContext;
  *context = current.back();
  current.pop_back();
  return 0;
}

// -- streams, events, graphs --------------------------------------------------------------------

FAKE int cuStreamCreateWithPriority(void **stream, unsigned, int) {
  if (const int code = refused("cuStreamCreateWithPriority"))
    return code;
  auto *handle = new StreamHandle;
  handle->stream = std::make_shared<Stream>(*current.back());
  ++machine().objects;
  *stream = handle;
  return 0;
}

FAKE int cuStreamDestroy_v2(void *stream) { return destroyed<StreamHandle>(stream, Kind::kStream); }

FAKE int cuStreamSynchronize(void *stream) {
  if (const int code = refused("cuStreamSynchronize"))
    return code;
  auto *handle = as<StreamHandle>(stream, Kind::kStream);
  if (handle == nullptr)
    return kInvalidHandle;
  handle->stream->wait(handle->stream->last());
  return handle->stream->device().error;
}

FAKE int cuEventCreate(void **event, unsigned) {
  if (const int code = refused("cuEventCreate"))
    return code;
  auto *handle = new EventHandle;
  handle->device = current.back();
  ++machine().objects;
  *event = handle;
  return 0;
}

FAKE int cuEventDestroy_v2(void *event) { return destroyed<EventHandle>(event, Kind::kEvent); }

FAKE int cuEventRecord(void *event, void *stream) {
  if (const int code = refused("cuEventRecord"))
    return code;
  auto *mark = as<EventHandle>(event, Kind::kEvent);
  auto *queue = as<StreamHandle>(stream, Kind::kStream);
  if (mark == nullptr || queue == nullptr || mark->device != &queue->stream->device())
    return kInvalidHandle;
  const std::scoped_lock lock(mark->mutex);
  mark->stream = queue->stream;
  mark->number = queue->stream->push([] {
    machine().note('e');
    return 0;
  });
  return 0;
}

FAKE int cuEventQuery(void *event) {
  if (const int fault = machine().due("cuEventQuery"))
    return fault;
  auto *mark = as<EventHandle>(event, Kind::kEvent);
  if (mark == nullptr)
    return kInvalidHandle;
  const std::scoped_lock lock(mark->mutex);
  if (mark->device->error != 0)
    return mark->device->error;
  return mark->stream == nullptr || mark->stream->reached(mark->number) ? 0 : kNotReady;
}

FAKE int cuEventSynchronize(void *event) {
  if (const int fault = machine().due("cuEventSynchronize"))
    return fault;
  auto *mark = as<EventHandle>(event, Kind::kEvent);
  if (mark == nullptr)
    return kInvalidHandle;
  std::shared_ptr<Stream> stream;
  std::uint64_t number = 0;
  {
    const std::scoped_lock lock(mark->mutex);
    stream = mark->stream;
    number = mark->number;
  }
  if (stream != nullptr)
    stream->wait(number);
  return mark->device->error;
}

FAKE int cuGraphLaunch(void *graph, void *stream) {
  machine().note('l');
  if (const int code = refused("cuGraphLaunch"))
    return code;
  auto *work = as<GraphHandle>(graph, Kind::kGraph);
  auto *queue = as<StreamHandle>(stream, Kind::kStream);
  if (work == nullptr || queue == nullptr || work->device != &queue->stream->device())
    return kInvalidHandle;
  queue->stream->push(work->work);
  return 0;
}

FAKE int cuGraphExecDestroy(void *graph) { return destroyed<GraphHandle>(graph, Kind::kGraph); }

// -- memory -------------------------------------------------------------------------------------

FAKE int cuMemHostAlloc(void **memory, std::size_t bytes, unsigned) {
  if (const int code = refused("cuMemHostAlloc"))
    return code;
  *memory = std::malloc(bytes);
  if (*memory == nullptr)
    return kOutOfMemory;
  machine().keep_block(*memory, bytes, true);
  return 0;
}

FAKE int cuMemFreeHost(void *memory) {
  if (!machine().drop_block(memory, true))
    return kInvalidValue;
  std::free(memory);
  return 0;
}

FAKE int cuMemHostGetDevicePointer_v2(std::uint64_t *device, void *host, unsigned) {
  *device = reinterpret_cast<std::uintptr_t>(host);
  return refused("cuMemHostGetDevicePointer");
}

FAKE int cuMemAlloc_v2(std::uint64_t *memory, std::size_t bytes) {
  if (const int code = refused("cuMemAlloc"))
    return code;
  void *block = std::malloc(bytes);
  if (block == nullptr)
    return kOutOfMemory;
  machine().keep_block(block, bytes, false);
  *memory = reinterpret_cast<std::uintptr_t>(block);
  return 0;
}

FAKE int cuMemFree_v2(std::uint64_t memory) {
  if (!machine().drop_block(pointer(memory), false))
    return kInvalidValue;
  std::free(pointer(memory));
  return 0;
}

FAKE int cuMemcpyHtoDAsync_v2(std::uint64_t to, const void *from, std::size_t bytes, void *stream) {
  machine().note('i');
  return copied("cuMemcpyHtoDAsync", pointer(to), from, bytes, stream, true);
}

FAKE int cuMemcpyDtoHAsync_v2(void *to, std::uint64_t from, std::size_t bytes, void *stream) {
  return copied("cuMemcpyDtoHAsync", to, pointer(from), bytes, stream, false);
}
