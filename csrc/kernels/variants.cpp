#include <array>
#include <atomic>
#include <string_view>

#include "kernels/passes.h"

namespace dsi {
namespace {

#if defined(__x86_64__)
bool has_avx2() { return __builtin_cpu_supports("avx2") != 0; }
bool has_avx512() {
  return __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
         __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512vl") != 0;
}
#endif

const Passes *find(std::string_view name) {
#if defined(__x86_64__)
  if (name == "avx512" && has_avx512())
    return &kAvx512Passes;
  if (name == "avx2" && has_avx2())
    return &kAvx2Passes;
#endif
  return name == "baseline" ? &kBaselinePasses : nullptr;
}

const Passes *best() {
  for (const char *name : {"avx512", "avx2"}) {
    if (const Passes *found = find(name))
      return found;
  }
  return &kBaselinePasses;
}

// Relaxed: a table is constant, and any of them gives the same bits.
std::atomic<const Passes *> forced{nullptr};

} // namespace

const Passes &passes() {
  static const Passes *const chosen = best();
  const Passes *const other = forced.load(std::memory_order_relaxed);
  return other != nullptr ? *other : *chosen;
}

bool force_passes(const char *name) {
  const Passes *const found = name != nullptr ? find(name) : nullptr;
  if (name != nullptr && found == nullptr)
    return false;
  forced.store(found, std::memory_order_relaxed);
  return true;
}

} // namespace dsi
