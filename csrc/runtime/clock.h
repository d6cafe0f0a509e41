// Time in nanoseconds of the steady clock, and waits that end on time.
#pragma once

#include <sys/prctl.h>

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "core/types.h"

namespace dsi {

inline Nanos now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

inline std::chrono::steady_clock::time_point at_ns(Nanos time) {
  return std::chrono::steady_clock::time_point(std::chrono::nanoseconds(time));
}

// Linux rounds a thread's sleeps up by 50 us by default; with this they end within a few us.
inline void ask_for_precise_sleeps() { prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL); }

// A wait until a point in time that another thread may end early. Sleeps, then spins the last
// stretch: a sleeping thread wakes up late by about that much on a virtual machine.
class PreciseWait {
public:
  // Returns true at `deadline`, false where `ended()` was true before. Blocks; call wake() after a
  // change.
  template <typename Ended> bool until(Nanos deadline, Ended ended) {
    {
      std::unique_lock lock(mutex_);
      wake_.wait_until(lock, at_ns(deadline - kSpin), ended);
    }
    while (now_ns() < deadline) {
      if (ended()) {
        return false;
      }
      relax();
    }
    return true;
  }

  void wake() {
    const std::scoped_lock lock(mutex_); // so that a waiter between its test and its sleep hears it
    wake_.notify_all();
  }

private:
  static constexpr Nanos kSpin = 60'000;

  static void relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }

  std::mutex mutex_; // guards nothing but the sleep itself; `ended` reads an atomic
  std::condition_variable wake_;
};

} // namespace dsi
