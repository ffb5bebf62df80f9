// Counts the heap allocations of the program, which links allocation_counter.cc. The counter sees all threads
// and replaces operator new, so a test that uses it is a program of its own.
#pragma once

#include <cstdint>

namespace sluice::test {

// The allocations by operator new since the start of the program.
[[nodiscard]] uint64_t allocations() noexcept;

}  // namespace sluice::test
