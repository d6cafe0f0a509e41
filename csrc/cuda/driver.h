// The CUDA driver, opened at run time. Nothing here is linked against CUDA: a machine without it
// gets a reason, never a crash.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "cuda/api.h"

namespace dsi::cuda {

// A driver call failed. what(): "cuGraphLaunch: CUDA_ERROR_LAUNCH_FAILED (719)".
class CudaError : public std::runtime_error {
public:
  CudaError(const std::string &call, Result code, std::string name);
  Result code() const { return code_; }
  const std::string &name() const { return name_; } // "unknown error" where the driver has none
  // The device's context is broken for good: every later call on it fails too.
  bool sticky() const;

private:
  Result code_;
  std::string name_;
};

class Driver;

// What opening the driver came to.
struct Opened {
  std::shared_ptr<const Driver> driver; // null: CUDA is unavailable
  std::string reason;                   // why it is null, for a person to read; else empty
  Result code = kSuccess;               // the call that failed returned it; 0: none was reached
};

// Immutable once opened; all methods are thread-safe and need no GIL. The library stays loaded
// until the process ends, as unloading a driver with live threads is nobody's promise.
class Driver {
public:
  static constexpr const char *kLibrary = "libcuda.so.1";
  static constexpr int kLeastVersion = 12000; // 12.0: older ones run no torch that this needs

  // Loads `library` by dlopen's rules and initialises it. Blocks: the first cuInit of a process
  // takes up to seconds. Never throws on what a machine can lack.
  static Opened open(const std::string &library = kLibrary);

  const Api &api() const { return api_; }
  int version() const { return version_; } // 12040 is CUDA 12.4
  const std::vector<std::string> &device_names() const { return device_names_; } // one per device
  std::string error_name(Result code) const;
  // Throws CudaError unless `code` is success. `call` names the driver's function.
  void check(Result code, const char *call) const {
    if (code != kSuccess)
      fail(code, call);
  }

private:
  Driver() = default;
  [[noreturn]] void fail(Result code, const char *call) const;

  Api api_;
  int version_ = 0;
  std::vector<std::string> device_names_;
};

} // namespace dsi::cuda
