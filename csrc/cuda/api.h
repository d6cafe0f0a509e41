// The part of the CUDA driver's ABI that is used here, declared by hand so that no toolkit is
// needed. tests/cpp/support/cuda_prototypes.cpp compares it with cuda.h where there is one.
#pragma once

#include <cstddef>
#include <cstdint>

namespace dsi::cuda {

// The driver's own objects, never complete here.
struct ContextObject;
struct StreamObject;
struct EventObject;
struct GraphExecObject;

using Result = int;                  // CUresult
using DeviceHandle = int;            // CUdevice
using DevicePointer = std::uint64_t; // CUdeviceptr

inline constexpr Result kSuccess = 0;
inline constexpr Result kNotReady = 600;
inline constexpr unsigned kStreamNonBlocking = 1; // no order with the default stream
inline constexpr unsigned kEventBlockingSync = 1;
inline constexpr unsigned kEventDisableTiming = 2;
inline constexpr unsigned kHostPortable = 1; // pinned for every context
inline constexpr unsigned kHostMapped = 2;   // and part of the device's address space

// ENTRY(member, symbol, parameters); all return a Result. The names with _v2 are those that cuda.h
// maps the plain names to: the plain symbols still exist, with an older ABI.
#define DSI_CUDA_ENTRY_POINTS(ENTRY)                                                               \
  ENTRY(init, cuInit, (unsigned flags))                                                            \
  ENTRY(driver_version, cuDriverGetVersion, (int *version))                                        \
  ENTRY(error_name, cuGetErrorName, (Result error, const char **name))                             \
  ENTRY(device_count, cuDeviceGetCount, (int *count))                                              \
  ENTRY(device_get, cuDeviceGet, (DeviceHandle * device, int ordinal))                             \
  ENTRY(device_name, cuDeviceGetName, (char *name, int length, DeviceHandle device))               \
  ENTRY(context_retain, cuDevicePrimaryCtxRetain, (ContextObject * *context, DeviceHandle device)) \
  ENTRY(context_release, cuDevicePrimaryCtxRelease_v2, (DeviceHandle device))                      \
  ENTRY(context_push, cuCtxPushCurrent_v2, (ContextObject * context))                              \
  ENTRY(context_pop, cuCtxPopCurrent_v2, (ContextObject * *context))                               \
  ENTRY(stream_create, cuStreamCreateWithPriority,                                                 \
        (StreamObject * *stream, unsigned flags, int priority))                                    \
  ENTRY(stream_destroy, cuStreamDestroy_v2, (StreamObject * stream))                               \
  ENTRY(stream_synchronize, cuStreamSynchronize, (StreamObject * stream))                          \
  ENTRY(event_create, cuEventCreate, (EventObject * *event, unsigned flags))                       \
  ENTRY(event_destroy, cuEventDestroy_v2, (EventObject * event))                                   \
  ENTRY(event_record, cuEventRecord, (EventObject * event, StreamObject * stream))                 \
  ENTRY(event_query, cuEventQuery, (EventObject * event))                                          \
  ENTRY(event_synchronize, cuEventSynchronize, (EventObject * event))                              \
  ENTRY(host_allocate, cuMemHostAlloc, (void **memory, std::size_t bytes, unsigned flags))         \
  ENTRY(host_free, cuMemFreeHost, (void *memory))                                                  \
  ENTRY(host_device_pointer, cuMemHostGetDevicePointer_v2,                                         \
        (DevicePointer * device, void *host, unsigned flags))                                      \
  ENTRY(device_allocate, cuMemAlloc_v2, (DevicePointer * memory, std::size_t bytes))               \
  ENTRY(device_free, cuMemFree_v2, (DevicePointer memory))                                         \
  ENTRY(copy_in, cuMemcpyHtoDAsync_v2,                                                             \
        (DevicePointer to, const void *from, std::size_t bytes, StreamObject *stream))             \
  ENTRY(copy_out, cuMemcpyDtoHAsync_v2,                                                            \
        (void *to, DevicePointer from, std::size_t bytes, StreamObject *stream))                   \
  ENTRY(graph_launch, cuGraphLaunch, (GraphExecObject * graph, StreamObject * stream))             \
  ENTRY(graph_destroy, cuGraphExecDestroy, (GraphExecObject * graph))

// One pointer per entry point, all set or none.
struct Api {
#define DSI_CUDA_MEMBER(member, symbol, parameters) Result(*member) parameters = nullptr;
  DSI_CUDA_ENTRY_POINTS(DSI_CUDA_MEMBER)
#undef DSI_CUDA_MEMBER
};

} // namespace dsi::cuda
