// Waits for a change of a word of this process, and wakes the waiting threads: futex(2).
//
// std::atomic::wait of libstdc++ first calls sched_yield(), and it keeps the waiters of all words that are
// not an int in a few shared lists. On a busy machine each yield takes as long as the time slices of the
// other threads, several milliseconds, and each notification wakes threads that wait for something else.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <cstdint>

namespace sluice::host {

// Returns when the word differs from `value`, and sometimes earlier: call it in a loop.
inline void futex_wait(const uint32_t* word, uint32_t value) noexcept {
  ::syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, nullptr);
}

inline void futex_wake_all(const uint32_t* word) noexcept {
  ::syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX);
}

}  // namespace sluice::host
