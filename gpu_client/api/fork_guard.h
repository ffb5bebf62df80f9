// Detects use of a session in a child of fork(), at the cost of one load. In the child the parent's sessions
// have no threads, the child must not write to their connections, and their mutexes may stay locked.
#pragma once

#include <cstdint>

namespace sluice::api {

// Installs the handler that counts forks. Must succeed before the first fork_generation() is stored. Returns
// false if the system has no memory for the handler.
[[nodiscard]] bool install_fork_handler() noexcept;

// Returns the number of forks that lead to this process; a child's number differs from its parent's. Any
// thread.
[[nodiscard]] uint64_t fork_generation() noexcept;

}  // namespace sluice::api
