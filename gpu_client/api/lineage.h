// Tells a process from the one it was forked from, at the price of a load. In a child of fork() the sessions
// of the parent have neither their threads nor a share in the conversation, and their locks may be held for
// ever.
#pragma once

#include <cstdint>

namespace sluice::api {

// Before the first generation() that is kept. False when the system has no memory for it.
[[nodiscard]] bool watch_forks() noexcept;

// Differs from that of the process which this one was forked from. Any thread.
[[nodiscard]] uint64_t generation() noexcept;

}  // namespace sluice::api
