// Compared with the toolkit's header: every function of csrc/cuda/api.h has the parameters that
// cuda.h gives it, and the name that cuda.h maps the plain one to. Nothing here runs; compiled by
// CMake where it finds cuda.h, and by tests/python/test_cuda_driver.py where Triton brought one.
#include <cuda.h>

#include <string_view>
#include <type_traits>

#include "cuda/api.h"

namespace {

template <typename Ours, typename Theirs> constexpr bool same_abi() {
  if constexpr (std::is_pointer_v<Ours> && std::is_pointer_v<Theirs>) {
    using OursTo = std::remove_pointer_t<Ours>;
    using TheirsTo = std::remove_pointer_t<Theirs>;
    return std::is_const_v<OursTo> == std::is_const_v<TheirsTo> &&
           same_abi<std::remove_const_t<OursTo>, std::remove_const_t<TheirsTo>>();
  } else if constexpr (std::is_void_v<Ours> || std::is_class_v<Ours>) {
    return std::is_void_v<Ours> == std::is_void_v<Theirs> &&
           std::is_class_v<Ours> == std::is_class_v<Theirs>; // the driver's own objects
  } else if constexpr (std::is_enum_v<Theirs>) {
    return std::is_integral_v<Ours> && sizeof(Ours) == sizeof(Theirs);
  } else {
    return std::is_integral_v<Ours> && std::is_integral_v<Theirs> &&
           sizeof(Ours) == sizeof(Theirs) && std::is_signed_v<Ours> == std::is_signed_v<Theirs>;
  }
}

template <typename Ours, typename Theirs> struct SameFunction {
  static constexpr bool check() { return false; }
};
template <typename Ours, typename... OurParameters, typename Theirs, typename... TheirParameters>
struct SameFunction<Ours (*)(OurParameters...), Theirs (*)(TheirParameters...)> {
  static constexpr bool check() {
    if constexpr (sizeof...(OurParameters) == sizeof...(TheirParameters))
      return same_abi<Ours, Theirs>() && (same_abi<OurParameters, TheirParameters>() && ...);
    else
      return false;
  }
};

#define DSI_SAME(member, symbol, parameters)                                                       \
  static_assert(SameFunction<decltype(dsi::cuda::Api::member), decltype(&::symbol)>::check(),      \
                "csrc/cuda/api.h does not agree with cuda.h on " #symbol);
DSI_CUDA_ENTRY_POINTS(DSI_SAME)

#define DSI_TEXT(symbol) #symbol
#define DSI_MAPPED(plain) std::string_view(DSI_TEXT(plain))
static_assert(DSI_MAPPED(cuDevicePrimaryCtxRelease) == "cuDevicePrimaryCtxRelease_v2");
static_assert(DSI_MAPPED(cuCtxPushCurrent) == "cuCtxPushCurrent_v2");
static_assert(DSI_MAPPED(cuCtxPopCurrent) == "cuCtxPopCurrent_v2");
static_assert(DSI_MAPPED(cuStreamDestroy) == "cuStreamDestroy_v2");
static_assert(DSI_MAPPED(cuEventDestroy) == "cuEventDestroy_v2");
static_assert(DSI_MAPPED(cuMemHostGetDevicePointer) == "cuMemHostGetDevicePointer_v2");
static_assert(DSI_MAPPED(cuMemAlloc) == "cuMemAlloc_v2");
static_assert(DSI_MAPPED(cuMemFree) == "cuMemFree_v2");
static_assert(DSI_MAPPED(cuMemcpyHtoDAsync) == "cuMemcpyHtoDAsync_v2");
static_assert(DSI_MAPPED(cuMemcpyDtoHAsync) == "cuMemcpyDtoHAsync_v2");
// And those that have one name only.
static_assert(DSI_MAPPED(cuStreamCreateWithPriority) == "cuStreamCreateWithPriority");
static_assert(DSI_MAPPED(cuEventRecord) == "cuEventRecord");
static_assert(DSI_MAPPED(cuEventQuery) == "cuEventQuery");
static_assert(DSI_MAPPED(cuEventSynchronize) == "cuEventSynchronize");
static_assert(DSI_MAPPED(cuStreamSynchronize) == "cuStreamSynchronize");
static_assert(DSI_MAPPED(cuGraphLaunch) == "cuGraphLaunch");
static_assert(DSI_MAPPED(cuMemHostAlloc) == "cuMemHostAlloc");

static_assert(dsi::cuda::kNotReady == CUDA_ERROR_NOT_READY);
static_assert(dsi::cuda::kStreamNonBlocking == CU_STREAM_NON_BLOCKING);
static_assert(dsi::cuda::kEventBlockingSync == CU_EVENT_BLOCKING_SYNC);
static_assert(dsi::cuda::kEventDisableTiming == CU_EVENT_DISABLE_TIMING);
static_assert(dsi::cuda::kHostPortable == CU_MEMHOSTALLOC_PORTABLE);
static_assert(dsi::cuda::kHostMapped == CU_MEMHOSTALLOC_DEVICEMAP);

} // namespace
