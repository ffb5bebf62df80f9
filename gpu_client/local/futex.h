// Waits for changes of words that processes share, and wakes their waiters: futex(2).
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdint>
#include <ctime>

#include "core/units.h"

namespace sluice::local {

[[nodiscard]] inline timespec to_timespec(Nanos t) noexcept {
  return {.tv_sec = static_cast<time_t>(t / kSecond), .tv_nsec = static_cast<long>(t % kSecond)};
}

// Returns when the word differs from `value`, after `timeout`, and sometimes earlier: call it in a loop.
inline void futex_wait(const std::atomic<uint32_t>& word, uint32_t value, Nanos timeout) noexcept {
  const timespec t = to_timespec(timeout);
  ::syscall(SYS_futex, &word, FUTEX_WAIT, value, &t, nullptr, 0);
}

inline void futex_wake(const std::atomic<uint32_t>& word, int most = INT_MAX) noexcept {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, most, nullptr, nullptr, 0);
}

}  // namespace sluice::local
