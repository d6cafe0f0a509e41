#include "cuda/driver.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <utility>

namespace dsi::cuda {

namespace {

// Results after which the primary context cannot be used any more, and the process has to end to
// get a new one (CUDA driver API, "Data types", CUresult).
constexpr std::array<Result, 14> kSticky = {
    4,   // DEINITIALIZED
    46,  // DEVICE_UNAVAILABLE
    214, // ECC_UNCORRECTABLE
    220, // NVLINK_UNCORRECTABLE
    700, // ILLEGAL_ADDRESS
    702, // LAUNCH_TIMEOUT
    709, // CONTEXT_IS_DESTROYED
    710, // ASSERT
    714, // HARDWARE_STACK_ERROR
    715, // ILLEGAL_INSTRUCTION
    716, // MISALIGNED_ADDRESS
    717, // INVALID_ADDRESS_SPACE
    718, // INVALID_PC
    719, // LAUNCH_FAILED
};

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

// The first entry point that `library` lacks, or null.
const char *load(void *library, Api &api) {
#define DSI_CUDA_LOAD(member, symbol, parameters)                                                  \
  api.member = reinterpret_cast<decltype(api.member)>(::dlsym(library, #symbol));                  \
  if (api.member == nullptr)                                                                       \
    return #symbol;
  DSI_CUDA_ENTRY_POINTS(DSI_CUDA_LOAD)
#undef DSI_CUDA_LOAD
  return nullptr;
}

} // namespace

CudaError::CudaError(const std::string &call, Result code, std::string name)
    : std::runtime_error(call + ": " + name + " (" + std::to_string(code) + ")"), code_(code),
      name_(std::move(name)) {}

bool CudaError::sticky() const {
  return std::find(kSticky.begin(), kSticky.end(), code_) != kSticky.end();
}

Opened Driver::open(const std::string &library) {
  const auto unavailable = [](std::string reason, Result code = kSuccess) {
    return Opened{nullptr, std::move(reason), code};
  };
  void *handle = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char *why = ::dlerror();
    return unavailable("no driver library (" + std::string(why != nullptr ? why : library) + ")");
  }
  const std::shared_ptr<Driver> driver(new Driver);
  const Api &api = driver->api_;
  if (const char *missing = load(handle, driver->api_))
    return unavailable(library + " is no CUDA driver, or one older than CUDA " +
                       version_text(kLeastVersion) + ": it has no " + missing);
  const auto failed = [&](const char *call, Result code) {
    return unavailable(CudaError(call, code, driver->error_name(code)).what(), code);
  };
  if (const Result code = api.driver_version(&driver->version_))
    return failed("cuDriverGetVersion", code);
  if (driver->version_ < kLeastVersion)
    return unavailable("the driver is for CUDA " + version_text(driver->version_) +
                       ", needed is one for " + version_text(kLeastVersion) + " or newer");
  if (const Result code = api.init(0))
    return failed("cuInit", code);
  int count = 0;
  if (const Result code = api.device_count(&count))
    return failed("cuDeviceGetCount", code);
  if (count < 1)
    return unavailable("the driver sees no device");
  for (int i = 0; i < count; ++i) {
    DeviceHandle device = 0;
    std::array<char, 256> name{};
    if (const Result code = api.device_get(&device, i))
      return failed("cuDeviceGet", code);
    if (const Result code = api.device_name(name.data(), static_cast<int>(name.size()) - 1, device))
      return failed("cuDeviceGetName", code);
    driver->device_names_.emplace_back(name.data());
  }
  return {driver, "", kSuccess};
}

std::string Driver::error_name(Result code) const {
  const char *name = nullptr;
  return api_.error_name(code, &name) == kSuccess && name != nullptr ? name : "unknown error";
}

void Driver::fail(Result code, const char *call) const {
  throw CudaError(call, code, error_name(code));
}

} // namespace dsi::cuda
