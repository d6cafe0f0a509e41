// Random tests do less where every instruction costs ten: what sanitizers look for is found in
// fewer runs.
#pragma once

namespace dsi::test {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

constexpr int effort(int runs) { return kSanitized ? runs / 10 : runs; }

} // namespace dsi::test
